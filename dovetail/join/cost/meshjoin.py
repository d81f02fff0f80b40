"""MESHJOIN: every chunk of w events waits while R is scanned once, b pages a step (§3.2, §3.3).

    M      = b·v_P + w·v_S + w·(N_R/b)·sizeof(ptr) + w·f·(N_R/b)·v_S                       (1)
    c_loop = c_I/O(b) + w·c_E + w·c_S + w·c_A + b·(v_P/v_R)·c_H + s·b·(v_P/v_R)·c_O         (2)
    μ      = w / c_loop                                                                    (3)
    reads an event = b/w,  reads a second = b/c_loop                                       (4)
    λ·c_loop ≤ w                                                                           (5)

s stands for the selectivity, the paper's sigma: the outputs that one row of R makes. What a step
outputs is, over a cycle, what w events find: s·b·v_P/v_R = w·matches. It is counted that way here,
so that s need not be known, and changes with w as it does in truth. The names that the text gives
the two of (4) contradict its Table 1; the formulas themselves are clear.

Both tunings have a closed form, for with a = page + (v_P/v_R)·c_H, B = an event's own cost and
q = f·v_S + sizeof(ptr):

    least M at a rate λ      w = g·(seek + a·b), g = λ/(1 - λ·B): M(b) is a line plus a hyperbola,
                             least at b² = g·seek·N_R·q / (v_P + g·a·v_S)
    highest μ at a memory M  w = (M - b·v_P)·b / (v_S·b + N_R·q), and dμ/db = 0 is quadratic in b

AMESHJOIN has the same model: it asks it again at every step.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from dovetail.join.cost.factors import Factors, Work
from dovetail.join.cost.plan import Parts, Plan, require_memory, require_rate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dovetail.join.cost.workload import Workload


def memory(workload: Workload, pages: float, events: float) -> Parts:
    """Equation 1."""
    waiting = events * workload.pages / pages * workload.residence
    return Parts(
        pending=(events + waiting * workload.fudge) * workload.event_bytes,
        queue=waiting * workload.pointer_bytes,
        disk_buffer=pages * workload.page_bytes,
    )


def loop(workload: Workload, pages: float, events: float) -> Work:
    """What one step does: equation 2."""
    return _read(workload, pages) + _event(workload) * events


def rate(workload: Workload, factors: Factors, pages: float, events: float) -> float:
    """Equation 3."""
    return events / factors.cost(loop(workload, pages, events))


def selectivity(workload: Workload, pages: float, events: float) -> float:
    """Give the selectivity of equation 2, the outputs for a row of R that passes."""
    return events * workload.popularity.matches / (pages * workload.rows_a_page)


def reads_an_event(pages: float, events: float) -> float:
    """Pages read for an event: equation 4, first half."""
    return pages / events


def reads_a_second(workload: Workload, factors: Factors, pages: float, events: float) -> float:
    """Pages read a second: equation 4, second half."""
    return pages / factors.cost(loop(workload, pages, events))


def keeps_up(
    workload: Workload, factors: Factors, arrivals: float, pages: float, events: float
) -> bool:
    """Whether the service rate reaches the arrival rate: equation 5."""
    return arrivals * factors.cost(loop(workload, pages, events)) <= events


def cycle(workload: Workload, factors: Factors, pages: float, events: float) -> float:
    """Seconds for one scan of R, which an event waits."""
    return workload.pages / pages * factors.cost(loop(workload, pages, events))


def least_memory(workload: Workload, factors: Factors, arrivals: float) -> Plan:
    """Tune b and w for the least memory that keeps up."""
    an_event = factors.cost(_event(workload))
    require_rate(arrivals, 1 / an_event if an_event else math.inf)
    weight = arrivals / (1 - arrivals * an_event)
    waiting = weight * factors.seek * _queue(workload)
    passing = workload.page_bytes + weight * _a_page(workload, factors) * workload.event_bytes
    plans = (
        _plan(workload, factors, pages, weight * factors.cost(_read(workload, pages)))
        for pages in _near(workload, math.sqrt(waiting / passing))
    )
    return min(plans, key=lambda plan: plan.memory)


def highest_rate(workload: Workload, factors: Factors, budget: float) -> Plan:
    """Tune b and w for the highest rate in this memory."""
    require_memory(budget, 2 * workload.page_bytes)
    queue = _queue(workload)
    a_page = _a_page(workload, factors)
    constant = factors.seek * queue
    linear = factors.seek * workload.event_bytes + a_page * queue
    square = budget * a_page * workload.event_bytes + workload.page_bytes * linear
    half = workload.page_bytes * constant
    root = math.sqrt(half * half + square * budget * constant)
    best = (root - half) / square if square else 1.0
    affordable = (pages for pages in _near(workload, best) if pages * workload.page_bytes < budget)
    plans = (
        _plan(
            workload,
            factors,
            pages,
            (budget - pages * workload.page_bytes) / (workload.event_bytes + queue / pages),
        )
        for pages in affordable
    )
    return max(plans, key=lambda plan: plan.rate)


def _read(workload: Workload, pages: float) -> Work:
    return Work(seek=1, page=pages, match=pages * workload.rows_a_page)


def _event(workload: Workload) -> Work:
    return Work(take=1, append=1, evict=1, output=workload.popularity.matches)


def _a_page(workload: Workload, factors: Factors) -> float:
    return factors.page + workload.rows_a_page * factors.match


def _queue(workload: Workload) -> float:
    """Bytes pending for each event that a read of one page would answer: N_R·q."""
    return workload.pages * workload.pending_event_bytes * workload.residence


def _near(workload: Workload, pages: float) -> Iterator[int]:
    """The whole numbers around an optimum among real ones, within R."""
    most = max(1, math.floor(workload.pages))
    yield from {min(max(1, math.floor(pages)), most), min(max(1, math.ceil(pages)), most), 1}


def _plan(workload: Workload, factors: Factors, pages: int, events: float) -> Plan:
    seconds = cycle(workload, factors, pages, events)
    reached = rate(workload, factors, pages, events)
    reason = (
        f"R passes every {seconds:.3g} s, {pages:,} pages a read; meanwhile "
        f"{reached * seconds * workload.residence:,.0f} events wait"
    )
    return Plan(reached, memory(workload, pages, events), pages, events, 0.0, reason)
