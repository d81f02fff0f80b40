"""`dovetail status`, `nodes`, `slots`, `history`: what goes on, now and over time."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from rich.live import Live

from dovetail.cli import exits, live
from dovetail.cli.client import connect
from dovetail.cli.output import Figure, Output, count, table
from dovetail.cli.parsing import add_connection, duration
from dovetail.errors import Unavailable

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType

    from dovetail.cli.client import Client

_BARS = "▁▂▃▄▅▆▇█"
_COURSE = 40
"""Characters of a figure's course."""


def add_status(parser: argparse.ArgumentParser) -> None:
    add_connection(parser)
    parser.add_argument("--once", action="store_true", help="show it once, also on a terminal")
    parser.add_argument(
        "--every", type=duration, default=1.0, metavar="TIME", help="how often to look (1s)"
    )
    parser.set_defaults(run=_status)


def add_nodes(parser: argparse.ArgumentParser) -> None:
    add_connection(parser)
    parser.set_defaults(run=_nodes)


def add_slots(parser: argparse.ArgumentParser) -> None:
    add_connection(parser)
    parser.set_defaults(run=_slots)


def add_history(parser: argparse.ArgumentParser) -> None:
    add_connection(parser)
    parser.add_argument("figure", nargs="*", help="e.g. in, lag; all of them unless named")
    parser.add_argument(
        "--last", type=duration, default=3600.0, metavar="TIME", help="how far back (1h)"
    )
    parser.add_argument("--step", type=duration, metavar="TIME", help="a value each so long")
    parser.add_argument("--service", help="only of this service")
    parser.set_defaults(run=_history)


def _status(arguments: argparse.Namespace) -> int:
    client, output = connect(arguments), Output.of(arguments)
    stats = client.get("/v1/stats")
    if output.as_json or arguments.once or not output.console.is_terminal:
        output.show(stats, live.parts)
        return _verdict(stats)
    return _verdict(_watch(stats, client, output, arguments.every))


def _watch(stats: dict[str, Any], client: Client, output: Output, every_s: float) -> dict[str, Any]:
    """Redraw until Ctrl-C, which is how this view is left; gives what was seen last."""
    notice = "Ctrl-C ends this view"
    with Live(console=output.console, auto_refresh=False) as display:
        try:
            while True:
                display.update(live.render(stats, notice), refresh=True)
                time.sleep(every_s)
                try:
                    stats = client.get("/v1/stats")
                    notice = "Ctrl-C ends this view"
                except Unavailable as error:
                    notice = f"as seen last: {error}"
        except KeyboardInterrupt:
            return stats


def _verdict(stats: dict[str, Any]) -> int:
    off = stats["totals"] is not None and stats["totals"]["problems"]
    return exits.NO if off or stats["state"] == "degraded" else exits.FINE


def _nodes(arguments: argparse.Namespace) -> int:
    nodes = connect(arguments).get("/v1/nodes")
    Output.of(arguments).show(nodes, lambda _: [live.processes(nodes)])
    lost = any(node["state"] in {"gone", "failed"} for node in nodes)
    return exits.NO if lost else exits.FINE


def _slots(arguments: argparse.Namespace) -> int:
    Output.of(arguments).show(connect(arguments).get("/v1/slots"), _slots_shown)
    return exits.FINE


def _slots_shown(slots: list[dict[str, Any]]) -> Iterator[RenderableType]:
    rows = (
        (
            count(slot["slot"]),
            count(slot["link"]),
            _owner(slot["cache_phase"]),
            _owner(slot["disk_phase"]),
        )
        for slot in slots
    )
    headings = ("slot", "link", "cache phase", "disk phase")
    yield table(headings, rows, "no slot is known yet")


def _owner(node: int | None) -> str:
    return "nobody" if node is None else f"node {node}"


def _history(arguments: argparse.Namespace) -> int:
    answer = connect(arguments).get(
        "/v1/stats/history",
        seconds=round(arguments.last),
        step=arguments.step and round(arguments.step),
        figure=arguments.figure or None,
        service=arguments.service,
    )
    Output.of(arguments).show(answer, _history_shown)
    return exits.FINE


def _history_shown(answer: dict[str, Any]) -> Iterator[RenderableType]:
    rows = (_series(series) for series in answer["series"])
    yield table(("of", "figure", "last", "least", "most", "course"), rows, "nothing is kept yet")


def _series(series: dict[str, Any]) -> tuple[object, ...]:
    values = series["values"]
    known = [value for value in values if value is not None]
    of = series["service"] or "pipeline"
    return (
        of if series["node"] is None else f"{of}-{series['node']}",
        series["figure"],
        *(_figure(pick(known)) if known else None for pick in (_last, min, max)),
        _course(values),
    )


def _last(values: Sequence[float]) -> float:
    return values[-1]


def _figure(value: float) -> Figure:
    return Figure(f"{value:,.0f}" if value == round(value) else f"{value:,.4g}")


def _course(values: Sequence[float | None]) -> str:
    """A bar for each part of the time; a gap where nothing was heard."""
    parts = min(_COURSE, len(values))
    ends = [round(part * len(values) / parts) for part in range(parts + 1)] if parts else [0]
    last = [
        next((value for value in reversed(values[begin:end]) if value is not None), None)
        for begin, end in pairwise(ends)
    ]
    known = [value for value in last if value is not None]
    low, high = (min(known), max(known)) if known else (0.0, 0.0)
    scale = (len(_BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(" " if one is None else _BARS[round((one - low) * scale)] for one in last)
