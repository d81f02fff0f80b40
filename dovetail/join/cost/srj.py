"""SRJ: misses of an LRU cache are looked up in batches, hits go past them (§2).

The formulas are lost in the text that we have; they are derived here from its definitions. Miss
number i of a batch of k arrives I seconds after the one before; C_batch(k) = request + k·key,
C_miss = C_batch(1), and r = k·C_miss/C_batch(k) is what batching saves.

    L_tuple(i)  = i·C_miss - (i - 1)·I              the misses before it come first
    L_batch(i)  = (k - i)·I + C_batch(k)            the batch fills, then is looked up
    mean gain   = C_miss·(k + 1)/2 - (k - 1)·I - C_batch(k)
    maximum SD  = Σ C_batch / I                     over the batches that wait

With r constant the gain is linear in k, and falls while r < 2·C_miss/(C_miss - 2·I): the paper's
"smallest batch". With r rising, larger batches gain ever more. What bounds k from above is then
the order constraint, memory, or that the throughput k/C_batch(k) hardly rises any more; from
below, that batches must be done as fast as they fill, C_batch(k) ≤ k·I. A batch no larger than
that has the least latency: that is `best_batch`.

The hits of an LRU cache follow from the distribution by Che's approximation: a key is held while
it was asked for within the last t events, 1 - exp(-p·t), with t such that the cache is full.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from dovetail.errors import ConfigError
from dovetail.join.cost.factors import Factors, Work
from dovetail.join.cost.plan import Parts, Plan, require_memory, require_rate
from dovetail.join.cost.popularity import ranges
from dovetail.join.cost.search import grid, last_where

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from dovetail.join.cost.workload import Workload

    Floats = NDArray[np.float64]

LARGEST_BATCH = 8192
"""Keys of a query: beyond some thousand the database gains nothing."""
_GOOD_ENOUGH = 0.95
_A_DOUBLING = 2


def batch_cost(factors: Factors, keys: float) -> float:
    """C_batch(k)."""
    return factors.cost(Work(request=1, key=keys))


def saving(factors: Factors, keys: float) -> float:
    """r, the cost of the misses one by one over that of the batch."""
    return keys * batch_cost(factors, 1) / batch_cost(factors, keys)


def throughput(factors: Factors, keys: float) -> float:
    """Misses a second that batches of k look up."""
    return keys / batch_cost(factors, keys)


def mean_gain(factors: Factors, interval: float, keys: float) -> float:
    """Seconds by which a miss is answered earlier, on average, than one by one."""
    return (
        batch_cost(factors, 1) * (keys + 1) / 2 - (keys - 1) * interval - batch_cost(factors, keys)
    )


def best_batch(factors: Factors, interval: float, largest: int = LARGEST_BATCH) -> int:
    """The optimal k for misses that arrive every `interval` seconds.

    The smallest that keeps up; where none does, the smallest with nearly all the throughput that
    the largest has.
    """
    if interval > factors.key:
        keeping_up = factors.request / (interval - factors.key)
        if keeping_up <= largest:
            return max(1, math.ceil(keeping_up))
    wanted = _GOOD_ENOUGH * throughput(factors, largest)
    return min(largest, math.ceil(wanted * factors.request / (1 - wanted * factors.key)))


def scrambling_distance(batches: Sequence[float], interval: float) -> float:
    """The most places by which a miss can fall behind: maximum SD.

    From the seconds that each batch in the waiting queue takes.
    """
    return math.fsum(batches) / interval


def largest_batch(factors: Factors, interval: float, order_constraint: float) -> int:
    """The most keys of one batch for which no miss falls behind further than allowed.

    0 if not even one key's lookup is fast enough.
    """
    allowed = order_constraint * interval - factors.request
    if allowed < factors.key:
        return 0
    return LARGEST_BATCH if factors.key == 0 else min(LARGEST_BATCH, int(allowed / factors.key))


def hit_share(workload: Workload, cached: float) -> float:
    """Hits of an LRU cache of so many rows."""
    if cached >= workload.rows:
        return 1.0
    keys, probabilities = _keys(workload)
    room = cached / workload.popularity.rows_a_key
    window = last_where(lambda t: _held(keys, probabilities, t) <= room, 1)
    return float(_hits(keys, probabilities, window)[0]) + _rowless(workload)


def rows_for(workload: Workload, share: float) -> float:
    """Rows that an LRU cache must hold for such a share of hits: the inverse."""
    wanted = share - _rowless(workload)
    if wanted <= 0:
        return 0.0
    keys, probabilities = _keys(workload)
    window = last_where(lambda t: _hits(keys, probabilities, t) <= wanted, 1)
    return float(_held(keys, probabilities, window)[0]) * workload.popularity.rows_a_key


def least_memory(
    workload: Workload, factors: Factors, arrivals: float, largest: int = LARGEST_BATCH
) -> Plan:
    """Tune k and the cache for the least memory that keeps up."""
    require_rate(arrivals, _highest(workload, factors))
    plans = []
    for keys in grid(1, largest, _A_DOUBLING).tolist():
        missed = min(1.0, throughput(factors, keys) / arrivals)
        cached = rows_for(workload, 1 - missed)
        plans.append(_plan(workload, factors, keys, cached, max(1 - missed, _rowless(workload))))
    return min(plans, key=lambda plan: plan.memory)


def highest_rate(
    workload: Workload, factors: Factors, budget: float, largest: int = LARGEST_BATCH
) -> Plan:
    """Tune k and the cache for the highest rate in this memory."""
    require_memory(budget, _batch_bytes(workload, 1))
    plans = []
    for keys in grid(1, largest, _A_DOUBLING).tolist():
        left = budget - _batch_bytes(workload, keys)
        if left >= 0:
            cached = min(left / workload.cached_row_bytes, workload.rows)
            hit = hit_share(workload, cached)
            plans.append(_plan(workload, factors, keys, cached, hit))
    return max(plans, key=lambda plan: plan.rate)


def _keys(workload: Workload) -> tuple[Floats, Floats]:
    """Alike keys together: how many, and the probability of each."""
    popularity = workload.popularity
    edges = ranges(workload.rows)
    rows = np.diff(edges)
    shares = np.diff(popularity.share(edges))
    return rows / popularity.rows_a_key, shares / rows * popularity.rows_a_key


def _rowless(workload: Workload) -> float:
    """Events of keys without master rows: known as such, they are hits that take no room."""
    return float(workload.popularity.share(0))


def _held(keys: Floats, probabilities: Floats, window: Floats) -> Floats:
    return np.asarray((keys * -np.expm1(-probabilities * window[:, None])).sum(axis=1))


def _hits(keys: Floats, probabilities: Floats, window: Floats) -> Floats:
    held = keys * probabilities * -np.expm1(-probabilities * window[:, None])
    return np.asarray(held.sum(axis=1))


def _highest(workload: Workload, factors: Factors) -> float:
    """The thread of hits takes, looks up and answers every event; batches run beside it."""
    an_event = factors.cost(Work(take=1, probe=1, output=workload.popularity.matches))
    if an_event <= 0:
        raise ConfigError("the cost factors take, probe and output cannot all be 0 s: measure them")
    return 1 / an_event


def _batch_bytes(workload: Workload, keys: float) -> float:
    """A batch's events wait, and its rows arrive, before they enter the cache."""
    return keys * (
        workload.pending_event_bytes + workload.popularity.rows_a_key * workload.row_bytes
    )


def _plan(workload: Workload, factors: Factors, keys: float, cached: float, hit: float) -> Plan:
    missed = 1 - hit
    lookups = throughput(factors, keys) / missed if missed > 0 else math.inf
    reached = min(_highest(workload, factors), lookups)
    reason = (
        f"{cached:,.0f} rows in an LRU cache answer {hit:.0%}; the rest is looked up {keys:,.0f} "
        f"keys a query, {missed * reached / keys:,.0f} queries a second"
    )
    parts = Parts(
        cache=cached * workload.cached_row_bytes,
        pending=keys * workload.fudge * workload.event_bytes,
        queue=keys * workload.pointer_bytes,
        disk_buffer=keys * workload.popularity.rows_a_key * workload.row_bytes,
    )
    return Plan(reached, parts, 0, keys, hit, reason)
