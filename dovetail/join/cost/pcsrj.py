"""PCSRJ: CACHEJOIN on n nodes, each with its slots of S and R (§3.3); n = 1 is CACHEJOIN.

    M      = 2·b·v_R + 2·h_R·v_R + alpha·[M - 2·(b + h_R)·v_R] + (1 - alpha)·[…]           (1)
    c_loop = 2·c_I/O(b) + 2·b·(c_H + c_F) + 2·w_S·(c_S + c_A + c_O + c_E)
             + 2·w_N·(c_S + c_H + c_O)                                                     (2)
    μ      = 2·(w_N + w_S) / c_loop                                                        (3)

with 2 for the two nodes. Taken by the letter, (2) adds up the time of nodes that work at the same
time, and the 2 of (3) then cancels: no number of nodes would gain anything, against the paper's
own 1.65 to 2 times. So c_loop is one node's here, and μ = n·(w_N + w_S)/c_loop. As in SSBJ, a
miss's lookup in H_R is that of its own place, and c_F is charged for each miss. (1) has no fudge
factor for H_R: it is that of the rest.

w_N and w_S are not in the text. The cache holds the h_R most sought-after rows, which the
threshold tends to; w_S is HYBRIDJOIN's w for what they leave over, and w_N = w_S·hits/(1 - hits).
The slots' hash spreads keys evenly, so that a node has every n-th rank, its cache the same share
of hits as one cache of all, and its partitions of d rows span n·d ranks.

h_R is tuned together with b. The threshold's own tuning climbs to the same split, and so does the
inequality of `ssbj-index`: this is its model too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from dovetail.join.cost import hybridjoin
from dovetail.join.cost.factors import Factors, Work
from dovetail.join.cost.plan import (
    Parts,
    Plan,
    in_memory,
    pending_parts,
    require_memory,
    require_rate,
)
from dovetail.join.cost.search import grid

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from dovetail.join.cost.workload import Workload

    Floats = NDArray[np.float64]

_A_DOUBLING = 2
_CERTAIN = 1e-9
"""Fewer misses than this are a float's rounding."""


def memory(workload: Workload, pages: float, cached: float, pending: float, nodes: int) -> Parts:
    """Equation 1, for h_R rows cached and h_S events pending on each node."""
    waiting = pending_parts(workload, pending)
    return Parts(
        cache=cached * workload.cached_row_bytes,
        pending=waiting.pending,
        queue=waiting.queue,
        disk_buffer=pages * workload.buffer_bytes,
    ).times(nodes)


def loop(workload: Workload, pages: float, hits: float, missed: float) -> Work:
    """What one step of one node does: equation 2 without its 2."""
    return _read(workload, pages) + _hit(workload) * hits + _miss(workload) * missed


def rate(
    workload: Workload, factors: Factors, pages: float, hits: float, missed: float, nodes: int
) -> float:
    """Equation 3, for nodes that work at the same time."""
    return nodes * (hits + missed) / factors.cost(loop(workload, pages, hits, missed))


def least_memory(workload: Workload, factors: Factors, arrivals: float, nodes: int = 2) -> Plan:
    """Tune b and h_R for the least memory, over all nodes, that keeps up."""
    highest = nodes / factors.joining(_hit(workload))
    require_rate(arrivals, highest)
    found = [in_memory(workload, highest)]
    for candidates in _candidates(workload, nodes):
        missed, feasible = candidates.misses_for(factors, arrivals / nodes)
        pending = np.maximum(candidates.partitions.pending(missed), 1.0)
        held = np.where(feasible, candidates.bytes_held(pending), np.inf)
        best = int(np.argmin(held))
        if np.isfinite(held[best]):
            found.append(candidates.plan(factors, best, float(pending[best])))
    return min(found, key=lambda plan: plan.memory)


def highest_rate(workload: Workload, factors: Factors, budget: float, nodes: int = 2) -> Plan:
    """Tune b and h_R for the highest rate in this memory, which is all nodes' together."""
    if budget >= workload.in_memory_bytes:
        return in_memory(workload, nodes / factors.joining(_hit(workload)))
    require_memory(budget, nodes * (workload.buffer_bytes + workload.pending_event_bytes))
    found = []
    for candidates in _candidates(workload, nodes):
        pending = candidates.events_in(budget / nodes)
        affordable = pending >= 1
        if affordable.any():
            rates = np.where(affordable, candidates.rates(factors, np.maximum(pending, 1.0)), 0.0)
            best = int(np.argmax(rates))
            found.append(candidates.plan(factors, best, float(pending[best])))
    return max(found, key=lambda plan: plan.rate)


@dataclass(frozen=True)
class _Candidates:
    """One node's partitions of one size, with caches of many sizes."""

    workload: Workload
    nodes: int
    pages: float
    cached: Floats
    """Rows in one node's cache."""
    hit: Floats
    partitions: hybridjoin.Partitions

    def bytes_held(self, pending: Floats) -> Floats:
        return np.asarray(
            self.pages * self.workload.buffer_bytes
            + self.cached * self.workload.cached_row_bytes
            + pending * self.workload.pending_event_bytes
        )

    def events_in(self, budget: float) -> Floats:
        """h_S, what is left for pending events."""
        left = budget - self.bytes_held(np.zeros_like(self.cached))
        return np.asarray(left / self.workload.pending_event_bytes)

    def misses_for(self, factors: Factors, arrivals: float) -> tuple[Floats, NDArray[np.bool_]]:
        """w_S for one node to keep up, and where that is possible at all."""
        feasible = arrivals * (1 - self.hit) * self._a_miss(factors) < 1
        a_miss = np.where(feasible, self._a_miss(factors), 0.0)
        read = _read(self.workload, self.pages)
        missed = factors.keeping_up(
            factors.reading(read) * (1 - self.hit),
            factors.joining(read) * (1 - self.hit),
            (1 - self.hit) * a_miss,
            arrivals,
        )
        return missed, feasible

    def rates(self, factors: Factors, pending: Floats) -> Floats:
        missed = self.partitions.answered(pending)
        read = _read(self.workload, self.pages)
        joining = factors.joining(read) + missed * self._a_miss(factors)
        events = missed / (1 - self.hit)
        return np.asarray(self.nodes * events / factors.together(factors.reading(read), joining))

    def _a_miss(self, factors: Factors) -> Floats:
        """Seconds of a miss and of the hits that come with it."""
        hits = self.hit / (1 - self.hit)
        return np.asarray(
            factors.joining(_miss(self.workload)) + hits * factors.joining(_hit(self.workload))
        )

    def plan(self, factors: Factors, best: int, pending: float) -> Plan:
        one = replace(self.partitions, probabilities=self.partitions.probabilities[best])
        missed = float(one.answered(np.array(pending)))
        cached, hit = float(self.cached[best]), float(self.hit[best])
        hits = missed * hit / (1 - hit)
        each = f" on each of {self.nodes} nodes" if self.nodes > 1 else ""
        reason = (
            f"{cached:,.0f} cached rows answer {hit:.0%}; {pending:,.0f} pending events let a "
            f"read of {self.pages:,.0f} pages at the oldest key answer {missed:,.1f}{each}"
        )
        return Plan(
            rate(self.workload, factors, self.pages, hits, missed, self.nodes),
            memory(self.workload, self.pages, cached, pending, self.nodes),
            self.pages,
            hits + missed,
            hit,
            reason,
        )


def _candidates(workload: Workload, nodes: int) -> Iterator[_Candidates]:
    total = grid(1, workload.rows, _A_DOUBLING)
    total = np.concatenate([[0.0], total[total < workload.rows]])
    hit = workload.popularity.share(total)
    some_miss = hit < 1 - _CERTAIN
    total, hit = total[some_miss], hit[some_miss]
    for pages in grid(1, max(1.0, workload.pages / nodes), _A_DOUBLING).tolist():
        parts = hybridjoin.partitions(workload, pages, total, nodes)
        yield _Candidates(workload, nodes, pages, total / nodes, hit, parts)


def _read(workload: Workload, pages: float) -> Work:
    return Work(seek=1, page=pages, step=1, match=pages * workload.rows_a_page)


def _hit(workload: Workload) -> Work:
    return Work(take=1, probe=1, output=workload.popularity.matches)


def _miss(workload: Workload) -> Work:
    return Work(take=1, append=1, evict=1, compare=1, output=workload.popularity.matches)
