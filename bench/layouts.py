"""The pipeline's layouts: which processes its stages run in, and what is reported of each.

A layout's figures stand in the benchmark's last line as `<layout>_<figure>`, beside those of what
it is compared with, so that a new layout takes one more entry in LAYOUTS.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bench.measure import MIB

if TYPE_CHECKING:
    from bench.figures import Scripted
    from bench.measure import Resident
    from bench.sustained import Sustained
    from bench.trial import Drained


@dataclass(frozen=True)
class Layout:
    name: str
    settings: dict[str, Any] = field(default_factory=dict)
    """What a pipeline's file says for it."""


SPLIT = Layout("split")
"""A process for each stage of each node, and control."""
FUSED = Layout("fused", {"layout": "fused"})
"""One process for the node, and control."""
LAYOUTS = (SPLIT, FUSED)


@dataclass
class Measured:
    """What was measured of `auto` in one layout."""

    drained: Drained
    sustained: list[Sustained]
    start_s: float
    """From starting the services, an event waiting, to the first output at a reader."""
    resident: dict[str, Resident]
    """By process, after the higher of the fixed rates."""
    snapshot: Drained | None = None
    """The same backlog, R from snapshot files instead of the database."""


@dataclass
class Compared:
    """What the layouts are compared with."""

    lru: Scripted
    broker_rate: float
    """Of the broker alone."""
    lru_sustained: list[Sustained]
    copy_sustained: list[Sustained]


def layout_keys(layout: str, measured: Measured, compared: Compared) -> dict[str, float]:
    """What the last line says of a layout."""
    found = {
        "over_lru": measured.drained.rate / compared.lru.rate,
        "cpu_over_lru": measured.drained.cpu_s_per_event / compared.lru.cpu_s_per_event,
        "over_broker": measured.drained.rate / compared.broker_rate,
        **_latencies(measured.sustained),
        "p50_over_lru_20k": _p50_over(measured.sustained, compared.lru_sustained, "20k"),
        "p50_over_lru_1k": _p50_over(measured.sustained, compared.lru_sustained, "1k"),
        "p50_over_copy_20k": _p50_over(measured.sustained, compared.copy_sustained, "20k"),
        "resident_mib": sum(each.rss for each in measured.resident.values()) / MIB,
        "pss_mib": sum(each.pss for each in measured.resident.values()) / MIB,
        "start_s": measured.start_s,
    }
    if measured.snapshot:
        found["snapshot_over_lru"] = measured.snapshot.rate / compared.lru.rate
        found["snapshot_over_broker"] = measured.snapshot.rate / compared.broker_rate
    return {f"{layout}_{name}": round(value, 2) for name, value in found.items()}


def compared_keys(compared: Compared) -> dict[str, float]:
    """The same of what the layouts are compared with."""
    latencies = {"lru": compared.lru_sustained, "copy": compared.copy_sustained}
    return {
        f"{who}_{name}": round(value, 2)
        for who, sustained in latencies.items()
        for name, value in _latencies(sustained).items()
    }


def _latencies(sustained: list[Sustained]) -> dict[str, float]:
    found = {}
    for each in sustained:
        if not each.name.endswith("%"):
            found[f"p50_ms_{each.name}"] = each.latency.p50_ms
            found[f"p99_ms_{each.name}"] = each.latency.p99_ms
    return found


def _p50_over(ours: list[Sustained], theirs: list[Sustained], name: str) -> float:
    return _at(ours, name).latency.p50_ms / _at(theirs, name).latency.p50_ms


def _at(sustained: list[Sustained], name: str) -> Sustained:
    return next(each for each in sustained if each.name == name)


def resident_table(layout: str, resident: dict[str, dict[str, float]], memory_mib: float) -> str:
    """What each process has in memory, largest first."""
    lines = [
        f"{layout}: in memory with {memory_mib:g} MiB for the join, after 20,000 events/s (MiB)",
        f"  {'process':<16}{'resident':>10}{'shared out':>12}{'its own':>9}",
    ]
    total: dict[str, float] = {"rss": 0.0, "pss": 0.0, "own": 0.0}
    for name in sorted(resident, key=lambda name: -resident[name]["rss"]):
        lines.append(_resident_line(name, resident[name]))
        for column in total:
            total[column] += resident[name][column]
    return "\n".join([*lines, _resident_line("all", total)])


def _resident_line(name: str, of: dict[str, float]) -> str:
    return f"  {name:<16}{of['rss']:>10,.1f}{of['pss']:>12,.1f}{of['own']:>9,.1f}"
