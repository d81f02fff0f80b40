"""A model's answer: the rate, the bytes and what they are for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dovetail.errors import ConfigError

if TYPE_CHECKING:
    from dovetail.join.cost.workload import Workload


@dataclass(frozen=True, slots=True)
class Parts:
    """Bytes by part."""

    cache: float = 0.0
    """H_R"""
    pending: float = 0.0
    """H_S, and the events on their way into it."""
    queue: float = 0.0
    disk_buffer: float = 0.0

    @property
    def total(self) -> float:
        return self.cache + self.pending + self.queue + self.disk_buffer

    def times(self, nodes: int) -> Parts:
        return Parts(*(nodes * part for part in self.values()))

    def values(self) -> tuple[float, float, float, float]:
        return self.cache, self.pending, self.queue, self.disk_buffer


@dataclass(frozen=True, slots=True)
class Plan:
    rate: float
    """μ, events a second that are answered."""
    parts: Parts
    pages: float
    """Pages a read of R; 0 where nothing is read."""
    events: float
    """w, events that a step answers on average; for a lookup, its keys. SSBJ's chunks differ in
    size and so does HYBRIDJOIN's w: hence a mean, not a whole number."""
    hit_share: float
    """Events that the cache answers."""
    reason: str

    @property
    def memory(self) -> float:
        return self.parts.total


def pending_parts(workload: Workload, events: float) -> Parts:
    """So many events in H_S and the queue."""
    return Parts(
        pending=events * workload.fudge * workload.event_bytes,
        queue=events * workload.pointer_bytes,
    )


def in_memory(workload: Workload, rate: float) -> Plan:
    """All of R in the cache: SSBJ's Theorem 3."""
    parts = Parts(cache=workload.in_memory_bytes)
    reason = "all master rows are in the cache: a join in main memory, which reads nothing"
    return Plan(rate, parts, 0, 0, 1.0, reason)


def require_rate(rate: float, highest: float) -> None:
    """Refuse a rate that no memory buys, because it takes the processor's time alone."""
    if not (math.isfinite(rate) and rate > 0):
        raise ConfigError(f"the rate must be above 0 events a second, not {rate}")
    if rate >= highest:
        raise ConfigError(
            f"{rate:,.0f} events/s cannot be had from one node with any memory: its own work "
            f"ends at {highest:,.0f} events/s; split the stream over more nodes"
        )


def require_memory(memory: float, least: float) -> None:
    if not memory >= least:
        raise ConfigError(
            f"{memory:,.0f} bytes of memory are too few: give it at least {math.ceil(least):,}"
        )
