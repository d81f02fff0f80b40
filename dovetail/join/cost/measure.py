"""The cost factors of this machine, from the join's own kernels.

Every kernel works on structures larger than the processor's caches, a batch at a time, each batch
once: of all batches the fastest counts, for the others met other processes. Of a read or a lookup
the median counts, for a disk's own waits are part of it. Pending events are measured by what they
are made of, a place in a table and a copy of the event: a running join refines that
(`Factors.refined`). What reads R or looks keys up is passed in, and so is the clock.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numba import njit

from dovetail.join.cache import MasterCache
from dovetail.join.columns import Column, JoinKeys
from dovetail.join.cost.factors import TYPICAL, Factors
from dovetail.join.entry import Entries, MasterRows
from dovetail.join.kinds import JoinKind
from dovetail.join.splice import null_row, splice
from dovetail.join.table import EMPTY, home, new_table, put, remove_at

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dovetail.join.columns import Flags, Ints

    Clock = Callable[[], float]
    """Seconds from any start, as time.perf_counter gives them."""

BATCH = 8192
READS = 15
PAGES = (1, 4, 16, 64, 256, 1024)
KEYS = (1, 10, 100, 1000)


def measure(
    clock: Clock,
    read: Callable[[int], object] | None = None,
    lookup: Callable[[int], object] | None = None,
    keys: int = 200_000,
    row_bytes: int = 120,
    event_bytes: int = 130,
) -> Factors:
    """Measure the factors: those of reading by `read(pages)`, those of a lookup by `lookup(keys)`.

    Without these two their factors are the typical ones. The structures hold `keys` keys.
    """
    found = _measure_kernels(clock, keys, row_bytes, event_bytes)
    if read is not None:
        seek, page = affine(PAGES, [_median(clock, read, pages) for pages in PAGES])
        found = replace(found, seek=seek, page=page)
    if lookup is not None:
        request, key = affine(KEYS, [_median(clock, lookup, count) for count in KEYS])
        found = replace(found, request=request, key=key)
    return found


def affine(sizes: Sequence[int], seconds: Sequence[float]) -> tuple[float, float]:
    """Fit seconds = fixed + size·each, neither below 0, by the least relative error."""
    scale = 1 / np.asarray(seconds)
    weighted = np.stack([scale, np.asarray(sizes) * scale], axis=1)
    (fixed, each), *_ = np.linalg.lstsq(weighted, np.ones(len(scale)), rcond=None)
    if fixed < 0 or each < 0:
        column = weighted[:, 1] if fixed < 0 else weighted[:, 0]
        alone = float(column.sum() / (column @ column))
        return (0.0, alone) if fixed < 0 else (alone, 0.0)
    return float(fixed), float(each)


def _measure_kernels(clock: Clock, keys: int, row_bytes: int, event_bytes: int) -> Factors:
    dice = np.random.default_rng(1)
    ids = dice.permutation(keys).astype(np.int64)
    rows = _entries(ids, row_bytes)
    cache = MasterCache(2 * rows.data.nbytes)
    cache.insert(rows)
    events = _objects(keys, event_bytes)
    wanted = JoinKeys.of_ints(dice.integers(0, keys, keys))
    absent = JoinKeys.of_ints(dice.integers(keys, 2 * keys, keys))
    found = cache.find(wanted)
    no_row = null_row([b'"v"'])
    counts, held = dice.integers(0, 9, keys), dice.integers(1, 3, keys)
    table = new_table(keys)

    def output(first: int, end: int) -> object:
        batch = events.slice(first, end)
        return splice(JoinKind.INNER, batch, cache.arena, found[first:end], no_row)

    # In this order: what is evicted was appended before, and an insertion may move entries.
    kernels: dict[str, Callable[[int, int], object]] = {
        "take": lambda first, end: events.take(wanted.values[first:end]),
        "probe": lambda first, end: cache.find(wanted.slice(first, end)),
        "match": lambda first, end: cache.find(absent.slice(first, end)),
        "output": output,
        "compare": lambda first, end: _smaller(
            counts[first:end], event_bytes, held[first:end], row_bytes
        ),
        "append": lambda first, end: _put_many(*table, ids[first:end]),
        "evict": lambda first, end: _remove_many(*table, ids[first:end]),
        "switch": lambda first, end: cache.insert(Entries(rows.data, rows.bounds[first : end + 1])),
    }
    seconds = {name: _fastest(clock, kernel, keys) for name, kernel in kernels.items()}
    seconds["append"] += seconds["take"]
    return replace(TYPICAL, **seconds)


def _fastest(clock: Clock, kernel: Callable[[int, int], object], keys: int) -> float:
    """Seconds an operation, of the fastest batch. The first batch compiles and does not count."""
    each = []
    for first in range(0, keys, BATCH):
        end = min(first + BATCH, keys)
        began = clock()
        kernel(first, end)
        each.append((clock() - began) / (end - first))
    return max(min(each[1:] or each), 1e-12)


def _median(clock: Clock, work: Callable[[int], object], size: int) -> float:
    seconds = []
    for _ in range(READS):
        began = clock()
        work(size)
        seconds.append(clock() - began)
    return max(float(np.median(seconds)), 1e-9)


def _objects(count: int, size: int) -> Column:
    """JSON objects of so many bytes."""
    one = b'{"v":"' + b"x" * max(0, size - 8) + b'"}'
    bounds = np.arange(count + 1, dtype=np.int64) * len(one)
    return Column(np.frombuffer(bytearray(one * count), np.uint8), bounds)


def _entries(ids: Ints, row_bytes: int) -> Entries:
    keys = JoinKeys.of_ints(ids)
    return Entries.of(keys, MasterRows(keys, _objects(len(ids), row_bytes)))


@njit(cache=True, nogil=True)
def _smaller(events: Ints, event_bytes: int, rows: Ints, row_bytes: int) -> Flags:
    cached = np.empty(len(events), np.bool_)
    for i in range(len(events)):
        cached[i] = rows[i] * row_bytes < events[i] * event_bytes
    return cached


@njit(cache=True, nogil=True)
def _put_many(slots: Ints, positions: Ints, keys: Ints) -> None:
    for i in range(len(keys)):
        put(slots, positions, keys[i], i)


@njit(cache=True, nogil=True)
def _remove_many(slots: Ints, positions: Ints, keys: Ints) -> None:
    for i in range(len(keys)):
        at = home(len(slots), keys[i])
        while slots[at] != keys[i] or positions[at] == EMPTY:
            at = (at + 1) & (len(slots) - 1)
        remove_at(slots, positions, at)
