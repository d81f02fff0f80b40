"""What the benchmark has measured, as one JSON object and as a table to read."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from bench.layouts import Compared, compared_keys, layout_keys, resident_table
from bench.measure import MIB
from bench.sustained import HALF
from dovetail.topology import CACHE_PHASE, DISK_PHASE, INGEST, MAPPER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.layouts import Measured
    from bench.measure import Resident
    from bench.sustained import Sustained
    from bench.trial import Drained

NOISY = 0.05
"""Share of the cores that others may take in a phase before its rate means little."""
AUTO = "auto"


@dataclass
class Scripted:
    """What was measured of a script."""

    result: dict[str, float]
    cpu_s: dict[str, float]
    others: float
    resident: int

    @property
    def rate(self) -> float:
        return self.result["events_per_s"]

    @property
    def events(self) -> float:
        return self.result["seconds"] * self.rate

    @property
    def cpu_s_per_event(self) -> float:
        """Broker and database included."""
        return sum(self.cpu_s.values()) / self.events

    @property
    def queries_an_event(self) -> float:
        return self.result["queries"] / self.events


@dataclass
class Figures:
    """What was measured, phase by phase."""

    relation_bytes: int = 0
    """R's: its rows as they are encoded for the output."""
    memory: int = 0
    resident_memory: int = 0
    """The budget with which the processes' memory was measured."""
    nodes: int = 0
    pipelines: dict[str, Drained] = field(default_factory=dict)
    """By algorithm, all in the first layout."""
    layouts: dict[str, Measured] = field(default_factory=dict)
    """`auto`, by layout."""
    preload_rate: float = 0.0
    resident: dict[str, int] = field(default_factory=dict)
    """The most that was seen, by process."""
    held: dict[str, tuple[float, float]] = field(default_factory=dict)
    lru: Scripted | None = None
    lru_sustained: list[Sustained] = field(default_factory=list)
    copy_sustained: list[Sustained] = field(default_factory=list)
    one_by_one: Scripted | None = None
    broker_rate: float = 0.0
    restarts: int = 0

    @property
    def noise(self) -> dict[str, float]:
        """The share of the cores that others took, phase by phase."""
        found = {name: drained.others for name, drained in self.pipelines.items()}
        for name, script in (("lru", self.lru), ("tuple", self.one_by_one)):
            if script:
                found[name] = script.others
        snapshots = ((layout, one.snapshot) for layout, one in self.layouts.items())
        found |= {f"{layout}, snapshot": one.others for layout, one in snapshots if one}
        found |= {f"{who} at {each.name}": each.others for who, each in self.at_rates()}
        return found

    def at_rates(self) -> Iterator[tuple[str, Sustained]]:
        """Everything that was measured at a steady rate, and of whom."""
        for layout, measured in self.layouts.items():
            yield from ((layout, each) for each in measured.sustained)
        yield from (("lru", each) for each in self.lru_sustained)
        yield from (("copy", each) for each in self.copy_sustained)


def summary(figures: Figures) -> dict[str, Any]:
    auto, lru, one = figures.pipelines[AUTO], figures.lru, figures.one_by_one
    assert lru is not None
    assert one is not None
    sustained = next(iter(figures.layouts.values())).sustained
    half, last = next(each for each in sustained if each.share == HALF), sustained[-1]
    compared = Compared(lru, figures.broker_rate, figures.lru_sustained, figures.copy_sustained)
    cpu = _a_million(auto.cpu_s, auto.events)
    for name in ("generator", "reader"):
        cpu[name] = last.cpu_s.get(name, 0.0) * 1e6 / last.sent.events
    fixed = {name: each for name, each in figures.pipelines.items() if name != AUTO}
    best = max((each.rate for each in fixed.values()), default=auto.rate)
    queries = auto.figures.get("reads", 0.0) / auto.events
    return {
        "events_per_s": round(auto.rate),
        "p50_ms": round(half.latency.p50_ms, 1),
        "p99_ms": round(half.latency.p99_ms, 1),
        "auto_over_tuple": round(auto.rate / one.rate, 2),
        "auto_over_lru": round(auto.rate / lru.rate, 2),
        "auto_over_best_min": round(auto.rate / best, 2),
        "queries_over_tuple": round(queries / one.queries_an_event, 5),
        "ingest_us": _us(auto.cpu_s, INGEST, auto.events),
        "mapper_us": _us(auto.cpu_s, MAPPER, auto.events),
        "cache_us": _us(auto.cpu_s, CACHE_PHASE, auto.events),
        "disk_us": _us(auto.cpu_s, DISK_PHASE, auto.missed),
        "broker_events_per_s": round(figures.broker_rate),
        "middle_events_per_s": round(auto.middle_rate),
        "tuple_events_per_s": round(one.rate),
        "lru_events_per_s": round(lru.rate),
        "algorithms": {
            name: {
                "events_per_s": round(each.rate),
                "hit_rate": round(each.hit_rate, 4),
                "estimated": each.estimated,
                "reads_per_thousand": _a_thousand(each, "reads"),
                "rows_read_per_thousand": _a_thousand(each, "rows_read"),
                "migrations_per_thousand": _a_thousand(each, "migrations"),
                "tombstones_per_thousand": _a_thousand(each, "cache_tombstones"),
                "cpu_s_per_million": round(each.cpu_s_per_event * 1e6, 2),
            }
            for name, each in figures.pipelines.items()
        },
        "latency_at_rate": [_at_rate(who, each) for who, each in figures.at_rates()],
        "queries_per_thousand": {
            "auto": round(queries * 1000, 2),
            "lru": round(lru.queries_an_event * 1000, 2),
            "tuple": round(one.queries_an_event * 1000, 2),
        },
        "preload_events_per_s": round(figures.preload_rate),
        "cpu_s_per_million": {name: round(value, 2) for name, value in sorted(cpu.items())},
        "lru_cpu_s_per_million": {
            name: round(value, 2)
            for name, value in sorted(_a_million(lru.cpu_s, lru.events).items())
        },
        "rss_mb": {name: round(b / MIB) for name, b in sorted(figures.resident.items())},
        "lru_rss_mb": round(lru.resident / MIB),
        "held_mb": {
            name: [round(held / MIB, 1), round(budget / MIB, 1)]
            for name, (held, budget) in sorted(figures.held.items())
        },
        "relation_mb": round(figures.relation_bytes / MIB, 1),
        "memory_mb": round(figures.memory / MIB, 2),
        "resident_at_mib": round(figures.resident_memory / MIB, 2),
        "resident_mib": {
            layout: {name: _mib(each) for name, each in measured.resident.items()}
            for layout, measured in figures.layouts.items()
        },
        "nodes": figures.nodes,
        "hit_rate": round(auto.hit_rate, 4),
        "lru_hit_rate": round(lru.result["hit_rate"], 4),
        "others_share_of_cpu": {name: round(share, 3) for name, share in figures.noise.items()},
        "restarts": figures.restarts,
        "events": auto.events,
        **compared_keys(compared),
        **{
            key: value
            for layout, measured in figures.layouts.items()
            for key, value in layout_keys(layout, measured, compared).items()
        },
    }


def _at_rate(who: str, each: Sustained) -> dict[str, Any]:
    return {
        "who": who,
        "at": each.name,
        "share": each.share,
        "events_per_s": round(each.sent.rate),
        "generator_behind_s": each.sent.behind_s,
        "others_share_of_cpu": round(each.others, 3),
        "cpu_s_per_million": round(each.cpu_s_per_million, 2),
        **{name: round(value, 1) for name, value in asdict(each.latency).items()},
    }


def _mib(resident: Resident) -> dict[str, float]:
    return {name: round(size / MIB, 1) for name, size in asdict(resident).items()}


def _a_million(cpu_s: dict[str, float], events: float) -> dict[str, float]:
    return {name: seconds / max(1.0, events) * 1e6 for name, seconds in cpu_s.items()}


def _us(cpu_s: dict[str, float], service: str, events: int) -> float:
    """CPU of a service's processes, an event, in µs."""
    used = sum(seconds for name, seconds in cpu_s.items() if name.split("-")[0] == service)
    return round(used / max(1, events) * 1e6, 2)


def _a_thousand(drained: Drained, figure: str) -> float:
    return round(drained.figures.get(figure, 0.0) / max(1, drained.events) * 1000, 2)


def table(result: dict[str, Any]) -> str:
    lines = [
        "",
        (
            f"R is {result['relation_mb']:,} MiB of encoded rows; memory {result['memory_mb']} MiB "
            f"in all, on {result['nodes']} node(s); skew 1"
        ),
        "",
        f"  {'':<16}{'events/s':>10}{'hits':>8}{'queries/1,000':>15}{'CPU s/M':>9}",
    ]
    for name, each in result["algorithms"].items():
        about = "   too slow to be drained: what its disk phase keeps up with"
        lines.append(
            f"  {name:<16}{each['events_per_s']:>10,}{each['hit_rate']:>8.1%}"
            f"{each['reads_per_thousand']:>15.2f}{each['cpu_s_per_million']:>9.2f}"
            f"{about if each['estimated'] else ''}"
        )
    for name, label in (("lru", "LRU script"), ("tuple", "tuple by tuple")):
        hits = f"{result['lru_hit_rate']:.1%}" if name == "lru" else ""
        used = f"{sum(result['lru_cpu_s_per_million'].values()):.2f}" if name == "lru" else ""
        lines.append(
            f"  {label:<16}{result[f'{name}_events_per_s']:>10,}{hits:>8}"
            f"{result['queries_per_thousand'][name]:>15.2f}{used:>9}"
        )
    lines += [
        f"  {'broker alone':<16}{result['broker_events_per_s']:>10,}   in and out, no work",
        "",
        (
            f"auto is {result['auto_over_tuple']} times as fast as tuple by tuple with "
            f"{result['queries_over_tuple']:.2%} of its queries, {result['auto_over_lru']} times "
            f"as fast as the script, {result['auto_over_best_min']} of the best fixed algorithm"
        ),
        "",
        *_latency_lines(result),
        "",
        *_layout_lines(result),
    ]
    lines += ["", f"  {'process':<16}{'CPU s/M events':>16}{'resident MiB':>14}  held/budget MiB"]
    cpu, resident, held = result["cpu_s_per_million"], result["rss_mb"], result["held_mb"]
    for name in sorted(cpu, key=lambda name: -cpu[name]):
        of_budget = "{}/{}".format(*held[name]) if name in held else ""
        lines.append(f"  {name:<16}{cpu[name]:>16.2f}{resident.get(name, 0):>14,}  {of_budget}")
    lines += ["", f"  {'with the script':<16}{'CPU s/M events':>16}"]
    cpu = result["lru_cpu_s_per_million"]
    lines += [f"  {name:<16}{cpu[name]:>16.2f}" for name in sorted(cpu, key=lambda n: -cpu[n])]
    noise = result["others_share_of_cpu"]
    worst = max(noise, key=lambda name: noise[name])
    if noise[worst] > NOISY:
        lines.append(
            f"\nnoisy: other processes took {noise[worst]:.0%} of the cores beside {worst}; "
            f"compare CPU seconds rather than rates"
        )
    if result["restarts"]:
        lines += ["", f"services were started again {result['restarts']} times: see their logs"]
    return "\n".join(lines)


def _latency_lines(result: dict[str, Any]) -> Iterator[str]:
    yield "latency, source record to committed output read (ms)"
    yield f"  {'':<16}{'events/s':>17}{'p50':>9}{'p99':>9}{'max':>9}{'CPU s/M':>9}"
    labels = {"lru": "LRU script", "copy": "bare copy"}
    for at in result["latency_at_rate"]:
        who = labels.get(at["who"], f"auto, {at['who']}")
        share = f"{at['share']:.0%} =" if at["share"] else ""
        behind = at["generator_behind_s"]
        late = f"   generator up to {behind:.2f} s behind" if behind else ""
        yield (
            f"  {who:<16}{share:>7}{at['events_per_s']:>10,}{at['p50_ms']:>9,.0f}"
            f"{at['p99_ms']:>9,.0f}{at['max_ms']:>9,.0f}{at['cpu_s_per_million']:>9.2f}{late}"
        )


def _layout_lines(result: dict[str, Any]) -> Iterator[str]:
    for layout, resident in result["resident_mib"].items():
        yield (
            f"{layout} over the script: {result[f'{layout}_over_lru']} times the rate, "
            f"{result[f'{layout}_cpu_over_lru']} of its CPU per event; at 20,000 events/s "
            f"{result[f'{layout}_p50_over_lru_20k']} times its p50, and "
            f"{result[f'{layout}_p50_over_copy_20k']} times that of a bare transactional copy"
        )
        if (over := result.get(f"{layout}_snapshot_over_lru")) is not None:
            yield (
                f"{layout} over a snapshot: {over} times the script, and "
                f"{result[f'{layout}_snapshot_over_broker']} of what the broker alone copies"
            )
        yield f"{layout}: first output {result[f'{layout}_start_s']:.1f} s after the start, warm"
        yield ""
        yield resident_table(layout, resident, result["resident_at_mib"])
