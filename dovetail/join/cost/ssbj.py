"""SSBJ: a scan behind a cache that holds a key where its rows take less than its events (§3).

    M      = (b + h_R·f)·v_R + w_S·(R_t/b)·(v_P + f·v_S)                                   (1)
    c_loop = c_I/O(b) + b·(c_H + c_B) + w_N·(c_S + c_H + c_O) + w_S·(c_E + c_S + c_A + c_O)  (2)
    μ      = (w_N + w_S) / c_loop                                                          (3)
    λ ≤ μ                                                                                (4, 5)

A key with m master rows and n expected events a cycle of R is cached when m·v_R < n·v_S
(Theorem 2, the cache inequality); H_R and H_S then take Σ min(m_cache, m_disk) over the keys,
which is the least they can (Theorem 1); at a rate that would take more than all of R, all of R is
cached (Theorem 3).

Where this departs from the text:
- (2) charges c_B for each of the b rows of every step, as if all moved into the cache. Once the
  cache has converged none do: keys are held against the inequality (c_F), and `switched` says
  how many rows move.
- A miss is looked up in H_R before (Algorithm 1, line 17), which (2) leaves out. Rightly, here:
  one table holds both sides' keys, and the lookup finds where the event is to be appended.
- c_F is charged for each miss, not for each row: a key is held against the inequality when its
  events leave.
- (6) puts bytes of memory in place of events, so its units do not agree. What it is after is (5)
  with w_S solved from (1) and w_N = w_S·hits/(1 - hits): `highest_rate`.
- The inequality's sides are the bytes really taken, f·v_R a row and f·v_S + v_P an event. With
  v_P = 0 that is Theorem 2 to the letter; otherwise only that makes the sum of Theorem 1 least.

Sizes of reads are in pages, as in MESHJOIN: b rows of the text are b/rows_a_page pages.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from dovetail.errors import ConfigError
from dovetail.join.cost.factors import Factors, Work
from dovetail.join.cost.plan import (
    Parts,
    Plan,
    in_memory,
    pending_parts,
    require_memory,
    require_rate,
)
from dovetail.join.cost.search import grid, last_where

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from dovetail.join.cost.workload import Workload

    Floats = NDArray[np.float64]

_A_DOUBLING = 4


def belongs_in_cache(
    workload: Workload, rows: float, events: float, switching_factor: float = 1.0
) -> bool:
    """The cache inequality for a key with m rows and n events pending: in a cycle, by the text.

    The switching factor s_f is against fluttering (Algorithm 1, line 33).
    """
    return (
        events * workload.pending_event_bytes > switching_factor * rows * workload.cached_row_bytes
    )


def cached_rows(workload: Workload, events_a_cycle: ArrayLike) -> Floats:
    """h_R after convergence: the rows of all keys for which the inequality holds."""
    pending = np.asarray(events_a_cycle, np.float64) * workload.residence
    event = pending * workload.pending_event_bytes
    return workload.popularity.rows_above(workload.cached_row_bytes / event)


def smaller_sides(workload: Workload, events_a_cycle: ArrayLike) -> Floats:
    """Bytes of H_R and H_S with its queue: the sum of Theorem 1."""
    events = np.asarray(events_a_cycle, np.float64)
    rows = cached_rows(workload, events)
    waiting = (1 - workload.popularity.share(rows)) * events * workload.residence
    return rows * workload.cached_row_bytes + waiting * workload.pending_event_bytes


def memory(workload: Workload, pages: float, cached: float, missed: float) -> Parts:
    """Equation 1, for h_R rows cached and w_S events a step that miss them."""
    waiting = pending_parts(workload, missed * workload.pages / pages * workload.residence)
    return Parts(
        cache=cached * workload.cached_row_bytes,
        pending=waiting.pending,
        queue=waiting.queue,
        disk_buffer=pages * workload.buffer_bytes,
    )


def loop(
    workload: Workload, pages: float, hits: float, missed: float, switched: float = 0.0
) -> Work:
    """What one step does: equation 2, for w_N hits and w_S misses."""
    return (
        _read(workload, pages)
        + _hit(workload) * hits
        + _miss(workload) * missed
        + Work(switch=switched)
    )


def rate(workload: Workload, factors: Factors, pages: float, hits: float, missed: float) -> float:
    """Equation 3."""
    return (hits + missed) / factors.cost(loop(workload, pages, hits, missed))


def least_memory(workload: Workload, factors: Factors, arrivals: float) -> Plan:
    """Tune b for the least memory at which equation 5 holds; never more than all of R."""
    highest = _highest(workload, factors)
    require_rate(arrivals, highest)
    whole = in_memory(workload, highest)
    pages = grid(1, workload.pages, _A_DOUBLING)
    events = last_where(lambda n: _rate(workload, factors, pages, n) < arrivals, len(pages))
    # The search ends just below the turn, and where there is none, at a number without meaning.
    events = events * (1 + 1e-12)
    reached = _rate(workload, factors, pages, events) >= arrivals * (1 - 1e-9)
    bytes_held = pages * workload.buffer_bytes + smaller_sides(workload, events)
    bytes_held = np.where(reached, bytes_held, math.inf)
    best = int(np.argmin(bytes_held))
    if bytes_held[best] >= whole.memory:
        return whole
    return _plan(workload, factors, float(pages[best]), float(events[best]))


def highest_rate(workload: Workload, factors: Factors, budget: float) -> Plan:
    """Tune b for the highest rate in this memory."""
    if budget >= workload.in_memory_bytes:
        return in_memory(workload, _highest(workload, factors))
    require_memory(budget, 2 * workload.buffer_bytes)
    pages = grid(1, workload.pages, _A_DOUBLING)
    pages = pages[pages * workload.buffer_bytes < budget]
    room = budget - pages * workload.buffer_bytes
    events = last_where(lambda n: smaller_sides(workload, n) <= room, len(pages))
    best = int(np.argmax(_rate(workload, factors, pages, events)))
    return _plan(workload, factors, float(pages[best]), float(events[best]))


def _read(workload: Workload, pages: float) -> Work:
    return Work(seek=1, page=pages, step=1, match=pages * workload.rows_a_page)


def _hit(workload: Workload) -> Work:
    return Work(take=1, probe=1, output=workload.popularity.matches)


def _miss(workload: Workload) -> Work:
    return Work(take=1, append=1, evict=1, compare=1, output=workload.popularity.matches)


def _highest(workload: Workload, factors: Factors) -> float:
    a_hit = factors.cost(_hit(workload))
    if a_hit <= 0:
        raise ConfigError("the cost factors take, probe and output cannot all be 0 s: measure them")
    return 1 / a_hit


def _rate(workload: Workload, factors: Factors, pages: Floats, events_a_cycle: Floats) -> Floats:
    """Equation 3 for many b at once, with the hits that the inequality gives."""
    events = events_a_cycle * pages / workload.pages
    hit = workload.popularity.share(cached_rows(workload, events_a_cycle))
    reading = factors.seek + pages * factors.page
    scanning = factors.step + pages * workload.rows_a_page * factors.match
    an_event = hit * factors.joining(_hit(workload)) + (1 - hit) * factors.joining(_miss(workload))
    return np.asarray(events / factors.together(reading, scanning + events * an_event))


def _plan(workload: Workload, factors: Factors, pages: float, events_a_cycle: float) -> Plan:
    rows = float(cached_rows(workload, events_a_cycle))
    hit = float(workload.popularity.share(rows))
    events = events_a_cycle * pages / workload.pages
    reached = rate(workload, factors, pages, events * hit, events * (1 - hit))
    limit = workload.cached_row_bytes / workload.pending_event_bytes / workload.residence
    reason = (
        f"R passes every {events_a_cycle / reached:.3g} s, {pages:,.0f} pages a read; the "
        f"{rows:,.0f} rows with more than {limit:.3g} events in that time take fewer bytes cached "
        f"than those events pending, and answer {hit:.0%}"
    )
    parts = memory(workload, pages, rows, events * (1 - hit))
    return Plan(reached, parts, pages, events, hit, reason)
