"""Cached entries (H_R) in the same pool as the pending events, so that a byte can be either.

    coldest ─► key ─► key ─► key ◄─ hottest     in the order of use or of arrival
                │      │      │
              entry  entry  entry               all rows of a key, in the layout of entry.py

`MasterCache` is the cache of a node that only caches: an arena of its own, spliced from
where it lies. Here a batch's hits are copied together first, each entry once however many
events it answers: the price for memory that moves freely between the two phases.

Memory: a block a key (and its text), and one for each 60 bytes of its entry.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np
from numba import njit

from dovetail.join.entry import HEADER, KEY_LENGTH
from dovetail.join.entry import ROWS as ENTRY_ROWS
from dovetail.join.memory import load_int32, load_int64, prefetch
from dovetail.join.pool import (
    BATCH,
    CACHED_BLOCKS,
    CACHED_KEYS,
    COLDEST,
    FREE,
    HOTTEST,
    LINK,
    LONGS,
    NONE,
    ROOM,
    WORDS,
    Pool,
    field,
    give_chain,
    inner,
    more_blocks,
    read,
    take,
    write,
)
from dovetail.join.records import (
    BEHIND,
    CACHED,
    COUNT,
    ENTRY,
    SIZE,
    STANDS_AT,
    START,
    TAKES,
    USED_BY,
    VALUE,
    append,
    blocks_of_key,
    enter,
    forget,
    seek,
    unlink,
)

if TYPE_CHECKING:
    from dovetail.join.columns import Bytes, Ints
    from dovetail.join.entry import Entries

_AHEAD = 8
CREDIT = 1000
"""Credit is kept in thousandths of a block."""
LARGEST_SHARE = 8
"""An entry takes at most one part in so many of the cache's limit: one huge key can never
push out a thousand useful ones."""


class Eviction(IntEnum):
    """Who makes room for a new key."""

    NOBODY = 0
    COLDEST = 1
    LEAST_FREQUENT = 2
    """The coldest whose count, halved each time it is passed over, has come to nothing."""


@dataclass(frozen=True, slots=True)
class Kept:
    kept: int
    refused: int
    evicted: int


class CachedEntries:
    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def __len__(self) -> int:
        """Join keys held."""
        return int(self._pool.state[CACHED_KEYS])

    @property
    def blocks(self) -> int:
        return int(self._pool.state[CACHED_BLOCKS])

    @property
    def pool_blocks(self) -> int:
        return self._pool.blocks

    def gather(self, owners: Ints) -> tuple[Bytes, Ints]:
        """Copy the entries of these records together; return where each record's starts."""
        return _gather(self._pool, owners)

    def smaller(
        self, entries: Entries, share: float, pending: Ints, factor: float
    ) -> tuple[Ints, int]:
        """Which entries, times the factor, take less than this share of their pending blocks.

        Those of all together come with it.
        """
        return _smaller(entries.data, entries.bounds, share, pending, factor)

    def keep(self, entries: Entries, chosen: Ints, limit: int, eviction: Eviction) -> Kept:
        """Add the chosen entries; the cache never takes more than `limit` blocks.

        A key that is pending or cached already is left as it is.
        """
        kept, evicted = _keep(
            self._pool, entries.data, entries.bounds, chosen, limit, int(eviction)
        )
        return Kept(kept, len(chosen) - kept, evicted)

    def shrink(self, limit: int) -> int:
        """Evict the coldest keys until at most so many blocks are left; return how many keys."""
        return _shrink(self._pool, limit)

    def review(self, cycles: float, events_save: float, factor: float, memory: int) -> int:
        """Charge every key what it has taken for so many cycles; return how many could not pay.

        A key is credited what its hits have saved: `events_save` blocks each. It can save up
        for `memory` cycles, and brought the credit for one when it came.
        """
        return _review(self._pool, cycles, events_save, factor, memory)

    def values(self) -> Ints:
        """The join keys or hashes held, the coldest first."""
        return _values(self._pool)


@njit(cache=True, nogil=True)
def _gather(pool: Pool, owners: Ints) -> tuple[Bytes, Ints]:
    words, state = pool.words, pool.state
    starts = np.empty(len(owners), np.int64)
    firsts = np.empty(len(owners), np.int64)
    state[BATCH] = (state[BATCH] + 1) & 0x7FFFFFFF
    batch = state[BATCH]
    size = 0
    distinct = 0
    for i in range(len(owners)):
        word = owners[i] * WORDS
        if words[word + USED_BY] != batch:
            words[word + USED_BY] = batch
            words[word + STANDS_AT] = size // 8
            size += words[word + SIZE]
            firsts[distinct] = owners[i]
            distinct += 1
        starts[i] = field(pool, owners[i], STANDS_AT) * 8
    out = np.empty(size, np.uint8)
    at = 0
    for i in range(distinct):
        if i + _AHEAD < distinct:
            prefetch(pool.longs, words[firsts[i + _AHEAD] * WORDS + ENTRY] * LONGS)
        word = firsts[i] * WORDS
        length = field(pool, firsts[i], SIZE)
        read(pool, field(pool, firsts[i], ENTRY), LINK, out, at, length)
        at += length
    return out, starts


@inner
def _takes(data: Bytes, start: int, end: int) -> int:
    """Blocks of the entry that stands there, as a cached key."""
    return blocks_of_key(load_int32(data, start + KEY_LENGTH)) + 1 + more_blocks(ROOM, end - start)


@njit(cache=True, nogil=True)
def _smaller(
    data: Bytes, bounds: Ints, share: float, pending: Ints, factor: float
) -> tuple[Ints, int]:
    chosen = np.empty(len(pending), np.int64)
    count = 0
    total = 0
    for i in range(len(pending)):
        total += pending[i]
        chosen[count] = i
        count += share * pending[i] > factor * _takes(data, bounds[i], bounds[i + 1])
    return chosen[:count], total


@inner
def _evict(pool: Pool, key: int) -> None:
    word = key * WORDS
    pool.state[CACHED_KEYS] -= 1
    pool.state[CACHED_BLOCKS] -= pool.words[word + TAKES]
    unlink(pool, COLDEST, HOTTEST, key)
    give_chain(pool, field(pool, key, ENTRY))
    forget(pool, key)


@inner
def _evict_one(pool: Pool, eviction: int) -> bool:
    """Evict the coldest key, or give it another chance; tell whether it left."""
    key = pool.state[COLDEST]
    word = key * WORDS + COUNT
    if eviction == 2 and pool.words[word] > 0:
        pool.words[word] >>= 1
        unlink(pool, COLDEST, HOTTEST, key)
        append(pool, COLDEST, HOTTEST, key)
        return False
    _evict(pool, key)
    return True


@inner
def _keep(
    pool: Pool, data: Bytes, bounds: Ints, chosen: Ints, limit: int, eviction: int
) -> tuple[int, int]:
    kept = 0
    evicted = 0
    for nth in range(len(chosen)):
        start, end = bounds[chosen[nth]], bounds[chosen[nth] + 1]
        needed = _takes(data, start, end)
        text = start + HEADER + 4 * load_int32(data, start + ENTRY_ROWS)
        text_end = text + load_int32(data, start + KEY_LENGTH)
        key = load_int64(data, start)
        if needed * LARGEST_SHARE > limit or seek(pool, key, data, text, text_end) != NONE:
            continue
        while eviction != 0 and (
            pool.state[CACHED_BLOCKS] + needed > limit
            or (pool.state[FREE] < needed and pool.state[CACHED_KEYS] > 0)
        ):
            if _evict_one(pool, eviction):
                evicted += 1
        if pool.state[FREE] < needed or pool.state[CACHED_BLOCKS] + needed > limit:
            continue
        _hold(pool, key, data, start, end, text, text_end, needed)
        kept += 1
    return kept, evicted


@inner
def _hold(
    pool: Pool,
    key: int,
    data: Bytes,
    start: int,
    end: int,
    text: int,
    text_end: int,
    takes: int,
) -> None:
    record = enter(pool, key, CACHED, data, text, text_end)
    word = record * WORDS
    entry = take(pool)
    write(pool, entry, LINK, data, start, end - start)
    pool.words[word + ENTRY] = entry
    pool.words[word + SIZE] = end - start
    pool.words[word + TAKES] = takes
    pool.words[word + COUNT] = 0
    pool.longs[record * LONGS + START] = takes * CREDIT
    append(pool, COLDEST, HOTTEST, record)
    pool.state[CACHED_KEYS] += 1
    pool.state[CACHED_BLOCKS] += takes


@inner
def _shrink(pool: Pool, limit: int) -> int:
    evicted = 0
    while pool.state[CACHED_BLOCKS] > limit:
        _evict(pool, pool.state[COLDEST])
        evicted += 1
    return evicted


@inner
def _review(pool: Pool, cycles: float, events_save: float, factor: float, memory: int) -> int:
    evicted = 0
    key = pool.state[COLDEST]
    while key != NONE:
        behind = field(pool, key, BEHIND)
        takes = field(pool, key, TAKES) * CREDIT
        saved = field(pool, key, COUNT) * events_save * CREDIT
        credit = pool.longs[key * LONGS + START] + saved - factor * takes * cycles
        if credit < 0:
            _evict(pool, key)
            evicted += 1
        else:
            pool.longs[key * LONGS + START] = np.int64(min(credit, float(memory * takes)))
            pool.words[key * WORDS + COUNT] = 0
        key = behind
    return evicted


@njit(cache=True, nogil=True)
def _values(pool: Pool) -> Ints:
    values = np.empty(pool.state[CACHED_KEYS], np.int64)
    key = pool.state[COLDEST]
    for i in range(len(values)):
        values[i] = pool.longs[key * LONGS + VALUE]
        key = field(pool, key, BEHIND)
    return values
