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

Both tunings try b over all of R: w follows from (5) for a rate, from (1) for a memory.

AMESHJOIN has the same model: it asks it again at every step.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from dovetail.join.cost.factors import Factors, Work
from dovetail.join.cost.plan import Parts, Plan, require_memory, require_rate
from dovetail.join.cost.search import grid

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dovetail.join.cost.workload import Workload

    Floats = NDArray[np.float64]

_A_DOUBLING = 8


def memory(workload: Workload, pages: float, events: float) -> Parts:
    """Equation 1."""
    waiting = events * workload.pages / pages * workload.residence
    return Parts(
        pending=(events + waiting * workload.fudge) * workload.event_bytes,
        queue=waiting * workload.pointer_bytes,
        disk_buffer=pages * workload.buffer_bytes,
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
    an_event = factors.joining(_event(workload))
    require_rate(arrivals, 1 / an_event if an_event else math.inf)
    pages = grid(1, workload.pages, _A_DOUBLING)
    reading, scanning = _reading(workload, factors, pages)
    events = factors.keeping_up(reading, scanning, an_event, arrivals)
    held = pages * workload.buffer_bytes + events * (
        workload.event_bytes + _queue(workload) / pages
    )
    best = int(np.argmin(held))
    return _plan(workload, factors, int(pages[best]), float(events[best]))


def highest_rate(workload: Workload, factors: Factors, budget: float) -> Plan:
    """Tune b and w for the highest rate in this memory."""
    require_memory(budget, 2 * workload.buffer_bytes)
    pages = grid(1, workload.pages, _A_DOUBLING)
    pages = pages[pages * workload.buffer_bytes < budget]
    room = budget - pages * workload.buffer_bytes
    events = room / (workload.event_bytes + _queue(workload) / pages)
    reading, scanning = _reading(workload, factors, pages)
    joining = scanning + events * factors.joining(_event(workload))
    best = int(np.argmax(events / factors.together(reading, joining)))
    return _plan(workload, factors, int(pages[best]), float(events[best]))


def _reading(workload: Workload, factors: Factors, pages: Floats) -> tuple[Floats, Floats]:
    """Seconds of a step's read, and of joining it with nothing."""
    rows = pages * workload.rows_a_page
    return factors.seek + pages * factors.page, factors.step + rows * factors.match


def _read(workload: Workload, pages: float) -> Work:
    return Work(seek=1, page=pages, step=1, match=pages * workload.rows_a_page)


def _event(workload: Workload) -> Work:
    return Work(take=1, append=1, evict=1, output=workload.popularity.matches)


def _queue(workload: Workload) -> float:
    """Bytes pending for each event that a read of one page would answer: N_R·q."""
    return workload.pages * workload.pending_event_bytes * workload.residence


def _plan(workload: Workload, factors: Factors, pages: int, events: float) -> Plan:
    seconds = cycle(workload, factors, pages, events)
    reached = rate(workload, factors, pages, events)
    reason = (
        f"R passes every {seconds:.3g} s, {pages:,} pages a read; meanwhile "
        f"{reached * seconds * workload.residence:,.0f} events wait"
    )
    return Plan(reached, memory(workload, pages, events), pages, events, 0.0, reason)
