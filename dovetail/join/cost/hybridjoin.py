"""HYBRIDJOIN: read the partition of the oldest pending key, answer all it can (§4.4, §4.5).

    M      = v_P + alpha·(M - v_P) + (1 - alpha)·(M - v_P)                                 (1)
    w      = k·h_S·d / R_t                                                                 (2)
    c_loop = c_I/O(v_P) + (v_P/v_R)·c_H + w·(c_O + c_E + c_S + c_A)                        (3)
    μ      = w / c_loop                                                                    (4)

alpha is what a hash entry takes of it and its queue node: h_S = (M - v_P)/(f·v_S + node).
The first bracket of (3) is garbled in the text, "c_I / O (v_P)"; c_I/O(v_P) is meant. The line
above (2) makes w proportional to the skew e too, which would answer nothing at skew 0: not used.

The text measures k (1.36 in its setup). Here it is derived. An event that reaches the front of
the queue has waited a time T, the same for all; let X events arrive in it. A partition that draws
a share q of them is read T after the first of its events since the last read, thus every
T + T/(q·X). So, summed over partitions, with x = q·X:

    1/w   = Σ q / (1 + x)                      reads an event
    h_S   = Σ x·(1 + x/2) / (1 + x) + w'/2     events pending when a read begins
    w' - 1 = Σ q·(1 + x + x/(1 + x))           E[w²]/E[w]: a read's answers make room all at once

From h_S follows X, from X follows w, and k = w·R_t/(h_S·d). At skew 0 and with many events a
partition k = 2: an event leaves at its match, after half a cycle on average, where MESHJOIN holds
it for a whole one. Fewer than one event a partition makes w = 1, an INLJ, as Theorem 2 has it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dovetail.join.cost.factors import Factors, Work
from dovetail.join.cost.plan import Parts, Plan, pending_parts, require_memory, require_rate
from dovetail.join.cost.popularity import ranges
from dovetail.join.cost.search import grid

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dovetail.join.cost.workload import Workload

    Floats = NDArray[np.float64]

_A_DOUBLING = 2
_NEWTON = 60
"""Steps at most. Both curves are concave, so that Newton's method from the left climbs to the
root without ever passing it."""
_PRECISION = 1e-13


@dataclass(frozen=True)
class Partitions:
    """R in partitions, alike ones together; probabilities may have leading axes of candidates."""

    counts: Floats
    probabilities: Floats
    """q, the share of the missed events that one partition of the range draws."""

    def answered(self, pending: Floats) -> Floats:
        """w, events that a read answers on average when so many are pending (h_S)."""
        return self._answered(self._arrivals_for_pending(pending))

    def pending(self, answered: Floats) -> Floats:
        """h_S, events that must be pending for a read to answer so many."""
        wanted = np.maximum(answered, 1.0)
        arrivals = np.zeros_like(wanted)
        for _ in range(_NEWTON):
            x = self.probabilities * arrivals[..., None]
            reads = self._sum(self.probabilities / (1 + x))
            slope = self._sum((self.probabilities / (1 + x)) ** 2) / reads**2
            step = (wanted - 1 / reads) / slope
            arrivals = arrivals + step
            if (step <= _PRECISION * arrivals).all():
                break
        return self._pending(arrivals)

    def _arrivals_for_pending(self, pending: Floats) -> Floats:
        """X of the header."""
        arrivals = np.zeros_like(pending)
        for _ in range(_NEWTON):
            x = self.probabilities * arrivals[..., None]
            bend = self.probabilities * (1 + 1 / (1 + x) ** 2) / 2
            slope = self._sum(bend * (1 + self.probabilities))
            step = np.maximum(pending - self._pending(arrivals), 0.0) / slope
            arrivals = arrivals + step
            if (step <= _PRECISION * arrivals).all():
                break
        return arrivals

    def _pending(self, arrivals: Floats) -> Floats:
        x = self.probabilities * arrivals[..., None]
        refill = self.probabilities * (1 + x + x / (1 + x))
        return self._sum(x * (1 + x / 2) / (1 + x) + refill / 2) + 0.5

    def _answered(self, arrivals: Floats) -> Floats:
        x = self.probabilities * arrivals[..., None]
        return np.asarray(1 / self._sum(self.probabilities / (1 + x)))

    def _sum(self, values: Floats) -> Floats:
        return np.asarray((values * self.counts).sum(axis=-1))


def partitions(
    workload: Workload, pages: float, cached: Floats | None = None, nodes: int = 1
) -> Partitions:
    """Cut a node's R into partitions; the most sought-after `cached` rows draw no misses.

    Where R lies in the order of popularity, neighbours share a partition. Where it does not, each
    of the most sought-after keys is taken to lie in a partition of its own, and everything below
    them to be spread evenly. Of n nodes each has every n-th key.
    """
    popularity = workload.popularity
    rows = pages * workload.rows_a_page * nodes
    edges = ranges(max(1.0, workload.rows / rows))
    counts = np.diff(edges)
    held = (np.zeros(1) if cached is None else cached)[..., None]
    if workload.ordered:
        shares = popularity.share(np.minimum(np.maximum(edges * rows, held), workload.rows))
        draws = np.diff(shares, axis=-1) / counts
    else:
        single = held + edges * popularity.rows_a_key * nodes
        shares = popularity.share(np.minimum(single, workload.rows))
        draws = np.diff(shares, axis=-1) / counts + (1 - shares[..., -1:]) / edges[-1]
    total = (draws * counts).sum(axis=-1, keepdims=True)
    return Partitions(counts, draws / total)


def memory(workload: Workload, pages: float, pending: float) -> Parts:
    """Equation 1, for h_S events pending."""
    waiting = pending_parts(workload, pending)
    return Parts(0.0, waiting.pending, waiting.queue, pages * workload.buffer_bytes)


def alpha(workload: Workload) -> float:
    """Alpha of equation 1, the hash table's weight."""
    return workload.fudge * workload.event_bytes / workload.pending_event_bytes


def answered(workload: Workload, pages: float, pending: float, k: float) -> float:
    """Give w by equation 2, for a k that was measured."""
    return k * pending * pages * workload.rows_a_page / workload.rows


def derived_k(workload: Workload, pages: float, pending: float) -> float:
    """Give k of equation 2 from the distribution."""
    parts = partitions(workload, pages)
    answers = float(parts.answered(np.array([pending]))[0])
    return answers / answered(workload, pages, pending, 1.0)


def loop(workload: Workload, pages: float, events: float) -> Work:
    """What one step does: equation 3."""
    return _read(workload, pages) + _event(workload) * events


def rate(workload: Workload, factors: Factors, pages: float, events: float) -> float:
    """Equation 4."""
    return events / factors.cost(loop(workload, pages, events))


def least_memory(workload: Workload, factors: Factors, arrivals: float) -> Plan:
    """Tune the partition's size for the least memory that keeps up."""
    an_event = factors.joining(_event(workload))
    require_rate(arrivals, 1 / an_event if an_event else np.inf)
    plans = []
    for pages in grid(1, workload.pages, _A_DOUBLING).tolist():
        wanted = factors.events_for(_read(workload, pages), an_event, arrivals)
        parts = partitions(workload, pages)
        pending = max(1.0, float(parts.pending(np.array([wanted]))[0]))
        plans.append(_plan(workload, factors, pages, pending, max(1.0, wanted)))
    return min(plans, key=lambda plan: plan.memory)


def highest_rate(workload: Workload, factors: Factors, budget: float) -> Plan:
    """Tune the partition's size for the highest rate in this memory."""
    require_memory(budget, workload.buffer_bytes + workload.pending_event_bytes)
    plans = []
    for pages in grid(1, workload.pages, _A_DOUBLING).tolist():
        pending = (budget - pages * workload.buffer_bytes) / workload.pending_event_bytes
        if pending < 1:
            break
        parts = partitions(workload, pages)
        answers = float(parts.answered(np.array([pending]))[0])
        plans.append(_plan(workload, factors, pages, pending, answers))
    return max(plans, key=lambda plan: plan.rate)


def _read(workload: Workload, pages: float) -> Work:
    return Work(seek=1, page=pages, step=1, match=pages * workload.rows_a_page)


def _event(workload: Workload) -> Work:
    return Work(take=1, append=1, evict=1, output=workload.popularity.matches)


def _plan(
    workload: Workload, factors: Factors, pages: float, pending: float, answers: float
) -> Plan:
    reason = (
        f"{pending:,.0f} pending events let a read of {pages:,.0f} pages at the oldest key "
        f"answer {answers:,.1f}"
    )
    reached = rate(workload, factors, pages, answers)
    return Plan(reached, memory(workload, pages, pending), pages, answers, 0.0, reason)
