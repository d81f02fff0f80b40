"""The cache phase by itself, in ns an event: probe, probe and splice, and taking migrations.

    python -m bench.cache_probe [seconds a figure]

Four fifths of the events hit, Zipf 1 over all that is cached; rows of 120 bytes.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import numpy as np

from bench.engine.data import EVENT_BYTES, ROW_BYTES, drawn, objects
from dovetail.join.caching import CachePhase
from dovetail.join.columns import Column, JoinKeys
from dovetail.join.entry import Entries, MasterRows
from dovetail.join.kinds import JoinKind
from dovetail.join.splice import null_row, splice
from dovetail.stream.migration_codec import decode, encode

if TYPE_CHECKING:
    from collections.abc import Callable

    from dovetail.join.columns import Ints

_CACHED = 200_000
_BYTES_A_KEY = 400
_BATCHES = (5_000, 10_000, 20_000)
_HITS = 0.8
_NO_ROW = null_row([b'"v"'])
_ROUNDS = 5


def entries(first: int, count: int) -> Entries:
    keys = JoinKeys.of_ints(np.arange(first, first + count, dtype=np.int64))
    return Entries.of(keys, MasterRows(keys, objects(count, ROW_BYTES)))


def filled(algorithm: str) -> CachePhase:
    cache = CachePhase(algorithm, _BYTES_A_KEY * _CACHED)
    ones = np.ones(_CACHED, np.int64)
    cache.take(entries(0, _CACHED), 10 * ones, 0, ones)
    if len(cache) != _CACHED:
        raise AssertionError(f"{len(cache)} of {_CACHED} keys are cached")
    return cache


def asked() -> Ints:
    keys = drawn(_CACHED, 1.0, ordered=False)
    misses = np.random.default_rng(1).random(len(keys)) >= _HITS
    return np.where(misses, keys + _CACHED, keys)


def ns_each(run: Callable[[int], int], seconds: float) -> float:
    """The median over rounds; `run` takes the events done so far and returns how many it did."""
    run(0)
    costs = []
    for _ in range(_ROUNDS):
        done = 0
        began = time.perf_counter()
        while (taken := time.perf_counter() - began) < seconds / _ROUNDS:
            done += run(done)
        costs.append(1e9 * taken / done)
    return float(np.median(costs))


def probing(cache: CachePhase, keys: Ints, batch: int, *, spliced: bool) -> Callable[[int], int]:
    data = objects(batch, EVENT_BYTES)

    def run(done: int) -> int:
        first = done % (len(keys) - batch)
        hits = cache.probe(JoinKeys.of_ints(keys[first : first + batch]))
        if spliced:
            events = data.take(hits.positions)
            splice(JoinKind.INNER, events, hits.entries, hits.starts, _NO_ROW)
        return batch

    return run


def taking(cache: CachePhase, batch: int) -> Callable[[int], int]:
    """Migrations as they come from the topic, each of a new key that pushes another out."""
    column = entries(_CACHED, batch)
    ones = np.ones(batch, np.int64)
    message = encode(Column(column.data, column.bounds), 1, ones, 1)

    def run(done: int) -> int:
        arrived = decode(message)
        whole = Entries.received(arrived.entries)
        # Other keys each time: the first eight bytes of an entry are its key.
        starts = whole.bounds[:-1, None] + np.arange(8)
        values = np.arange(_CACHED + done, _CACHED + done + batch, dtype=np.int64)
        whole.data[starts] = values.view(np.uint8).reshape(-1, 8)
        cache.take(whole, ones, 1, ones)
        cache.departed()
        return batch

    return run


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 5.0
    keys = asked()
    print(f"{'':<10}{'batch':>8}{'probe':>10}{'and splice':>12}   ns an event, {_HITS:.0%} hits")
    for algorithm in ("srj", "cachejoin", "ssbj"):
        cache = filled(algorithm)
        for batch in _BATCHES:
            probe = ns_each(probing(cache, keys, batch, spliced=False), seconds)
            both = ns_each(probing(cache, keys, batch, spliced=True), seconds)
            print(f"{algorithm:<10}{batch:>8}{probe:>10.1f}{both:>12.1f}")
    cost = ns_each(taking(filled("srj"), 20_000), seconds)
    print(f"{'srj':<10}{20_000:>8}{cost:>10.1f} ns a migration decoded and taken, one evicted each")


if __name__ == "__main__":
    main()
