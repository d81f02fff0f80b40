"""The live table in the terminal: totals of the pipeline, and one line a service."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

_MIB = 1 << 20


def fetch(url: str) -> dict[str, Any] | None:
    """The control service's stats; None while it does not answer."""
    try:
        with urllib.request.urlopen(f"{url}/v1/stats", timeout=5) as answer:  # noqa: S310 - our own
            stats: dict[str, Any] = json.load(answer)
            return stats
    except (urllib.error.URLError, OSError, ValueError):
        return None


class Live:
    """Turns stats into what is shown; remembers the last totals to tell rates."""

    def __init__(self) -> None:
        self._last: tuple[float, dict[str, Any]] | None = None
        self._rates = {"in": 0.0, "outputs": 0.0}

    def render(self, stats: dict[str, Any] | None, notice: str = "") -> Group:
        if stats is None or stats["totals"] is None:
            return Group(Text("waiting for the control service"), Text(notice))
        self._learn(stats["totals"])
        return Group(self._totals(stats["totals"]), _services(stats["services"]), Text(notice))

    def line(self, stats: dict[str, Any] | None) -> str:
        """The same in one line, for a log or a terminal that cannot be redrawn."""
        if stats is None or stats["totals"] is None:
            return "waiting for the control service"
        totals = stats["totals"]
        self._learn(totals)
        return (
            f"in {totals['in']:,} ({self._rates['in']:,.0f}/s)  "
            f"enriched {totals['enriched']:,} ({self._rates['outputs']:,.0f}/s)  "
            f"unmatched {totals['unmatched']:,}  dead {totals['dead_lettered']:,}  "
            f"shed {totals['shed']:,}  "
            f"hits {_share(totals['hit_rate'])}  in flight {totals['in_flight']:,}  "
            f"waiting {totals['waiting']:,}"
        )

    def _learn(self, totals: dict[str, Any]) -> None:
        now = time.monotonic()
        if self._last is not None and now - self._last[0] > 0.5:
            seconds = now - self._last[0]
            for name in self._rates:
                rate = (totals[name] - self._last[1][name]) / seconds
                self._rates[name] += 0.5 * (rate - self._rates[name])
        if self._last is None or now - self._last[0] > 0.5:
            self._last = (now, totals)

    def _totals(self, totals: dict[str, Any]) -> Table:
        table = Table(box=None, pad_edge=False)
        for name in ("in", "enriched", "unmatched", "dead letters", "shed", "in flight", "waiting"):
            table.add_column(name, justify="right")
        for name in ("in/s", "out/s", "hit rate", "sum"):
            table.add_column(name, justify="right", style="cyan")
        table.add_row(
            f"{totals['in']:,}",
            f"{totals['enriched']:,}",
            f"{totals['unmatched']:,}",
            f"{totals['dead_lettered']:,}",
            f"{totals['shed']:,}",
            f"{totals['in_flight']:,}",
            f"{totals['waiting']:,}",
            f"{self._rates['in']:,.0f}",
            f"{self._rates['outputs']:,.0f}",
            _share(totals["hit_rate"]),
            "[red]off[/red]" if totals["problems"] else "[green]holds[/green]",
        )
        return table


def _services(services: list[dict[str, Any]]) -> Table:
    table = Table(pad_edge=False, header_style="bold")
    table.add_column("service")
    table.add_column("state")
    for name in ("in/s", "out/s", "lag", "held / budget", "resident", "cpu"):
        table.add_column(name, justify="right")
    for service in services:
        rates, figures = service["rates"], service["figures"]
        out = sum(rates.get(f"events.{name}", 0) for name in ("clean", "mapped", "outputs"))
        budget = figures.get("budget_bytes")
        table.add_row(
            f"{service['service']}-{service['node']}",
            _coloured(service["state"]),
            f"{rates.get('events.in', 0):,.0f}",
            f"{out:,.0f}",
            f"{figures.get('lag', 0):,.0f}",
            f"{_mib(figures['held_bytes'])} / {_mib(budget)}" if budget else "",
            _mib(figures["resident_bytes"]),
            _share(rates.get("cpu_seconds")),
        )
    return table


def _coloured(state: str) -> str:
    colour = {"ready": "green", "gone": "red", "failed": "red"}.get(state, "yellow")
    return f"[{colour}]{state}[/{colour}]"


def _mib(count: float) -> str:
    return f"{count / _MIB:,.1f} MiB"


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.0%}"
