"""What the benchmark has measured, as one JSON object and as a table to read."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from bench.measure import MIB, Progress

if TYPE_CHECKING:
    from bench.arrivals import Latency
    from bench.children import Sent

NOISY = 0.05
"""Share of the cores that others may take in a phase before its rate means little."""


@dataclass
class Sustained:
    share: float
    sent: Sent
    latency: Latency
    cpu_s: dict[str, float]
    others: float


@dataclass
class Figures:
    """What was measured, phase by phase."""

    events: int = 0
    progress: Progress = field(default_factory=lambda: Progress(0.0))
    hit_rate: float = 0.0
    cpu_s: dict[str, float] = field(default_factory=dict)
    resident: dict[str, int] = field(default_factory=dict)
    held: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Most bytes held, and the budget, by process."""
    others: float = 0.0
    preload_rate: float = 0.0
    sustained: list[Sustained] = field(default_factory=list)
    baseline: dict[str, float] = field(default_factory=dict)
    baseline_cpu_s: dict[str, float] = field(default_factory=dict)
    baseline_others: float = 0.0
    broker_rate: float = 0.0
    restarts: int = 0


def summary(figures: Figures) -> dict[str, Any]:
    rate = figures.progress.rate()
    first, last = figures.sustained[0], figures.sustained[-1]
    a_million = 1e6 / figures.events
    cpu = {name: seconds * a_million for name, seconds in figures.cpu_s.items()}
    for name in ("generator", "reader"):
        cpu[name] = last.cpu_s.get(name, 0.0) * 1e6 / last.sent.events
    baseline_events = figures.baseline["seconds"] * figures.baseline["events_per_s"]
    baseline_rate = figures.baseline["events_per_s"]
    return {
        "events_per_s": round(rate),
        "middle_events_per_s": round(figures.progress.middle_rate()),
        "p50_ms": round(first.latency.p50_ms, 1),
        "p99_ms": round(first.latency.p99_ms, 1),
        "latency_at_rate": [
            {
                "share": each.share,
                "events_per_s": round(each.sent.rate),
                "generator_behind_s": each.sent.behind_s,
                "others_share_of_cpu": round(each.others, 3),
                **{name: round(value, 1) for name, value in asdict(each.latency).items()},
            }
            for each in figures.sustained
        ],
        "baseline_events_per_s": round(baseline_rate),
        "over_baseline": round(rate / baseline_rate, 2),
        "broker_events_per_s": round(figures.broker_rate),
        "preload_events_per_s": round(figures.preload_rate),
        "pipeline_cpu_s_per_million": round(sum(figures.cpu_s.values()) * a_million, 2),
        "cpu_s_per_million": {name: round(value, 2) for name, value in sorted(cpu.items())},
        "baseline_cpu_s_per_million": {
            name: round(seconds / baseline_events * 1e6, 2)
            for name, seconds in sorted(figures.baseline_cpu_s.items())
        },
        "rss_mb": {name: round(b / MIB) for name, b in sorted(figures.resident.items())},
        "held_mb": {
            name: [round(held / MIB, 1), round(budget / MIB, 1)]
            for name, (held, budget) in sorted(figures.held.items())
        },
        "hit_rate": round(figures.hit_rate, 4),
        "baseline_hit_rate": round(figures.baseline["hit_rate"], 4),
        "others_share_of_cpu": round(figures.others, 3),
        "baseline_others_share_of_cpu": round(figures.baseline_others, 3),
        "restarts": figures.restarts,
        "events": figures.events,
    }


def table(result: dict[str, Any]) -> str:
    noise = result["others_share_of_cpu"], result["baseline_others_share_of_cpu"]
    noisy = max(noise) > NOISY
    middle, hits = result["middle_events_per_s"], result["hit_rate"]
    script, script_hits = result["baseline_events_per_s"], result["baseline_hit_rate"]
    lines = [
        "",
        f"pipeline       {result['events_per_s']:>10,} events/s   {hits:.1%} hits",
        f"  its middle   {middle:>10,} events/s   from 10 % to 90 % of the answers",
        f"baseline       {script:>10,} events/s   {script_hits:.1%} hits",
        f"over baseline  {result['over_baseline']:>10.2f} times{'   (noisy)' if noisy else ''}",
        f"broker alone   {result['broker_events_per_s']:>10,} events/s   in and out, no work",
        "",
        "latency, source record to committed output read (ms)",
    ]
    for at in result["latency_at_rate"]:
        behind = at["generator_behind_s"]
        late = f"   generator up to {behind:.2f} s behind" if behind else ""
        lines.append(
            f"  {at['share']:.0%} = {at['events_per_s']:>8,} events/s   p50 {at['p50_ms']:>7,.0f}"
            f"   p99 {at['p99_ms']:>7,.0f}   max {at['max_ms']:>7,.0f}{late}"
        )
    lines += ["", f"  {'process':<16}{'CPU s/M events':>16}{'resident MiB':>14}  held/budget MiB"]
    cpu, resident, held = result["cpu_s_per_million"], result["rss_mb"], result["held_mb"]
    for name in sorted(cpu, key=lambda name: -cpu[name]):
        of_budget = "{}/{}".format(*held[name]) if name in held else ""
        lines.append(f"  {name:<16}{cpu[name]:>16.2f}{resident.get(name, 0):>14,}  {of_budget}")
    lines.append(f"  {'all, a drain':<16}{result['pipeline_cpu_s_per_million']:>16.2f}")
    lines += ["", f"  {'with the script':<16}{'CPU s/M events':>16}{'resident MiB':>14}"]
    cpu = result["baseline_cpu_s_per_million"]
    for name in sorted(cpu, key=lambda name: -cpu[name]):
        shown = f"{resident[name]:,}" if name == "baseline" else ""
        lines.append(f"  {name:<16}{cpu[name]:>16.2f}{shown:>14}")
    lines.append(f"  {'all':<16}{sum(cpu.values()):>16.2f}")
    if noisy:
        drain, script = noise
        lines.append(
            f"\nnoisy: other processes took {drain:.0%} of the cores in the drain and "
            f"{script:.0%} beside the script; compare CPU seconds rather than rates"
        )
    if result["restarts"]:
        lines += ["", f"services were started again {result['restarts']} times: see their logs"]
    return "\n".join(lines)
