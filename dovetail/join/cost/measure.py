"""The cost factors of this machine, from steps of the engine itself.

    append   offer events of new keys                 match   feed rows that nobody waits for
    evict    feed rows that each answer one event     step    feed one page
    probe    offer events of cached keys              output  splice the answers
    compare  what `evict` takes more with a cache     switch  warm the cache

Every operation is done on structures larger than the processor's caches, a batch at a time, each
batch once: of all batches the fastest counts, for the others met other processes. Of a read or a
lookup the median counts, for a disk's own waits are part of it. What reads R or looks keys up is
passed in, and so is the clock.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from dovetail.join.columns import Column, JoinKeys
from dovetail.join.cost.factors import TYPICAL, Factors
from dovetail.join.engine import Engine, fed
from dovetail.join.entry import Entries, MasterRows
from dovetail.join.exchange import Events, Read
from dovetail.join.kinds import JoinKind
from dovetail.join.phase import Relation
from dovetail.join.splice import null_row, splice

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dovetail.join.columns import Ints
    from dovetail.join.exchange import Answers

    Clock = Callable[[], float]
    """Seconds from any start, as time.perf_counter gives them."""

BATCH = 8192
READS = 15
PAGES = (1, 4, 16, 64, 256, 1024)
KEYS = (1, 10, 100, 1000)
_A_PAGE = 64
_ROOMY = 1000
"""Bytes of memory a key, more than enough for it to be pending or cached."""
_FREE = 1e-12


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
    found = _Bench(clock, keys, row_bytes, event_bytes).factors()
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


class _Bench:
    """R and S of so many keys in random order, and engines that hold all of them."""

    def __init__(self, clock: Clock, keys: int, row_bytes: int, event_bytes: int) -> None:
        self._clock = clock
        self._keys = np.random.default_rng(1).permutation(keys).astype(np.int64)
        self._rows = _objects(keys, row_bytes)
        self._events = _objects(keys, event_bytes)

    def factors(self) -> Factors:
        pending = self._engine("meshjoin")
        appended = self._fastest(lambda some: pending.offer(self._batch(some)))
        matched = self._fastest(lambda some: self._feed(pending, some, shift=len(self._keys)))
        step = self._shortest(lambda some: self._feed(pending, some, shift=len(self._keys)))
        answers: list[Answers] = []
        evicted = self._fastest(lambda some: answers.extend(self._feed(pending, some)))
        cached = self._engine("ssbj")
        self._fastest(lambda some: cached.offer(self._batch(some)))
        compared = self._fastest(lambda some: self._feed(cached, some))
        switched = self._fastest(lambda some: cached.warm(self._entries(some)))
        probed = self._fastest(lambda some: cached.offer(self._batch(some)))
        return replace(
            TYPICAL,
            step=max(step - _A_PAGE * matched, _FREE),
            append=appended,
            match=matched,
            evict=max(evicted - matched, _FREE),
            compare=max(compared - evicted, _FREE),
            switch=switched,
            probe=probed,
            output=self._output(answers),
            take=_FREE,  # an event is read where it is let in
        )

    def _engine(self, algorithm: str) -> Engine:
        relation = Relation(pages=1 << 40, page_bytes=1, unique=True)
        room = len(self._keys) * _ROOMY
        return Engine(algorithm, relation, 2 * room, disk_buffer=room)

    def _batch(self, some: slice) -> Events:
        keys = JoinKeys.of_ints(self._keys[some])
        ids = np.arange(some.start, some.stop)
        return Events(keys, self._events.slice(some.start, some.stop), ids)

    def _master(self, some: slice, shift: int = 0) -> MasterRows:
        keys = JoinKeys.of_ints(self._keys[some] + shift)
        return MasterRows(keys, self._rows.slice(some.start, some.stop))

    def _entries(self, some: slice) -> Entries:
        return Entries.of(JoinKeys.of_ints(self._keys[some]), self._master(some))

    def _feed(self, engine: Engine, some: slice, shift: int = 0) -> list[Answers]:
        engine.wants()
        rows = self._master(some, shift)
        return list(fed(engine, Read(rows, 1, np.array([len(rows)]))))

    def _output(self, answers: list[Answers]) -> float:
        no_row = null_row([b'"v"'])
        seconds = []
        for some in answers:
            began = self._clock()
            splice(JoinKind.INNER, some.events, some.entries, some.starts, no_row)
            seconds.append((self._clock() - began) / len(some))
        return max(min(seconds[1:] or seconds), _FREE)

    def _fastest(self, work: Callable[[slice], object]) -> float:
        """Seconds an item, of the fastest batch. The first batch compiles and does not count."""
        return self._least(work, BATCH) / BATCH

    def _shortest(self, work: Callable[[slice], object]) -> float:
        """Seconds of the shortest step with a page of rows."""
        return self._least(work, _A_PAGE)

    def _least(self, work: Callable[[slice], object], size: int) -> float:
        seconds = []
        for first in range(0, len(self._keys) - size + 1, max(size, BATCH)):
            began = self._clock()
            work(slice(first, first + size))
            seconds.append(self._clock() - began)
        return max(min(seconds[1:] or seconds), _FREE)


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
    bounds: Ints = np.arange(count + 1, dtype=np.int64) * len(one)
    return Column(np.frombuffer(bytearray(one * count), np.uint8), bounds)
