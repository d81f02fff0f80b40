"""The live table: totals of the pipeline, and one line a process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.text import Text

from dovetail.cli.output import NOTHING, Figure, count, plain, share, size, state, table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rich.console import RenderableType

_WAITING = "waiting for the control service"
_PASSED_ON = ("clean", "mapped", "outputs")


def render(stats: dict[str, Any] | None, notice: str = "") -> Group:
    return Group(*parts(stats), Text(notice, style="dim"))


def parts(stats: dict[str, Any] | None) -> Iterator[RenderableType]:
    """What there is to see in `/v1/stats`; None while nobody answers."""
    if stats is None:
        yield plain(_WAITING)
        return
    yield _headline(stats)
    if stats["totals"] is None:
        yield plain("the ledgers have not been read yet")
    else:
        yield from _totals(stats["totals"], stats["rates"])
        yield from (Text(f"off: {problem}", style="red") for problem in stats["totals"]["problems"])
    yield processes(stats["services"])


def line(stats: dict[str, Any] | None) -> str:
    """The same in one line, for a log or a terminal that cannot be redrawn."""
    if stats is None or stats["totals"] is None:
        return _WAITING
    totals, rates = stats["totals"], stats["rates"]
    return (
        f"in {totals['in']:,} ({rates.get('in', 0):,.0f}/s)  "
        f"enriched {totals['enriched']:,} ({rates.get('outputs', 0):,.0f}/s)  "
        f"unmatched {totals['unmatched']:,}  dead {totals['dead_lettered']:,}  "
        f"shed {totals['shed']:,}  "
        f"hits {share(totals['hit_rate'])}  in flight {totals['in_flight']:,}  "
        f"waiting {totals['waiting']:,}"
    )


def processes(listed: Iterable[dict[str, Any]]) -> RenderableType:
    """A line for each process, as `/v1/nodes` lists them."""
    headings = ("process", "state", "in/s", "out/s", "lag", "budget held", "resident", "cpu", "")
    return table(headings, map(_process, listed), "no process has been heard of")


def _process(one: dict[str, Any]) -> tuple[object, ...]:
    rates = one["rates"]
    return (
        f"{one['service']}-{one['node']}",
        state(one["state"]),
        count(rates.get("events.in", 0)),
        count(sum(rates.get(f"events.{name}", 0) for name in _PASSED_ON)),
        count(one["lag"]),
        _held(one["held_bytes"], one["budget_bytes"]),
        size(one["resident_bytes"]),
        share(rates.get("cpu_seconds")),
        one["reason"],
    )


def _held(held: float | None, budget: float | None) -> Figure:
    return Figure(f"{(held or 0) / budget:.0%} of {size(budget)}" if budget else NOTHING)


def _headline(stats: dict[str, Any]) -> Text:
    reason = plain(f": {stats['reason']}" if stats["reason"] else "")
    return Text.assemble(
        plain(stats["pipeline"]), " is ", state(stats["state"]), reason, f"  {stats['at'][:19]}Z"
    )


def _totals(totals: dict[str, Any], rates: dict[str, Any]) -> Iterator[RenderableType]:
    """What became of the events, then how fast; both fit a terminal of eighty columns."""
    events = {
        "in": totals["in"],
        "enriched": totals["enriched"],
        "unmatched": totals["unmatched"],
        "dead letters": totals["dead_lettered"],
        "parked": totals["parked"],
        "shed": totals["shed"],
        **({"lost": totals["lost"]} if totals.get("lost") else {}),
        "in flight": totals["in_flight"],
        "waiting": totals["waiting"],
    }
    yield table(tuple(events), [tuple(map(count, events.values()))], "")
    holds = state("off" if totals["problems"] else "holds")
    speed = (count(rates.get("in", 0)), count(rates.get("outputs", 0)), share(totals["hit_rate"]))
    yield table(("in/s", "out/s", "hit rate", "conservation"), [(*speed, holds)], "")
