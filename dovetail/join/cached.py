"""Cached entries (H_R) in the same pool as the pending events, so that a byte can be either.

    coldest ─► key ─► key ─► key ◄─ hottest     in the order of use or of arrival
                │      │      │
              entry  entry  entry               all rows of a key, in the layout of entry.py

A batch's hits are copied together before they are spliced, each entry once however many events
it answers: the price for memory that moves freely between the two phases. A node that only
caches (caching.py) has a pool in which nothing is pending.

Memory: a block a key (and its text), and one for each 60 bytes of its entry.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np

from dovetail.join.departed import new_departed, note, note_record
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
    BEFORE,
    BEHIND,
    CACHED,
    COUNT,
    ENTRY,
    HASHED,
    READ_AT,
    SIZE,
    STANDS_AT,
    START,
    TAKES,
    USED_BY,
    VALUE,
    append,
    blocks_of_key,
    enter,
    fetch_record,
    fetch_slot,
    forget,
    hashed,
    seek,
    state_of,
    tag_in,
    tag_of,
    unlink,
)
from dovetail.kernels import kernel

if TYPE_CHECKING:
    from dovetail.join.columns import Bytes, Flags, Ints, JoinKeys
    from dovetail.join.departed import Departed
    from dovetail.join.entry import Entries

_AHEAD = 8
_KEYS_AHEAD = 16
_MOST = NOTHING = (1 << 31) - 1
"""NOTHING is later than any time at which rows were read."""
_LOW = 0xFFFFFFFF
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


_UNNOTED = new_departed(0)


class CachedEntries:
    """Whoever leaves by itself, or is refused by `take`, is noted in `departed`.

    Keys that are pending in the same pool are nobody's here: they are left as they are.
    """

    def __init__(self, pool: Pool, departed: Departed = _UNNOTED) -> None:
        self._pool = pool
        self._departed = departed
        self.read_at = 0
        """As of when the rows are that `keep` is given, in the unit of `take`."""

    def __len__(self) -> int:
        """Join keys held."""
        return int(self._pool.state[CACHED_KEYS])

    @property
    def blocks(self) -> int:
        return int(self._pool.state[CACHED_BLOCKS])

    @property
    def pool_blocks(self) -> int:
        return self._pool.blocks

    def probe(
        self, keys: JoinKeys, most: int, *, by_recency: bool
    ) -> tuple[Ints, Bytes, Ints, Ints]:
        """Find these keys, and copy the entries of those that are held together.

        Of the first keys only, if all entries together take more than `most` bytes. Return the
        positions of the hits, the entries, where each hit's starts, and the positions of the
        misses. Hits are counted and, by recency, make their keys the most recently used ones: a
        batch is a moment.
        """
        texts = keys.texts
        return _probe(self._pool, keys.values, texts.data, texts.bounds, most, by_recency)

    def gather(self, owners: Ints) -> tuple[Bytes, Ints]:
        """Copy the entries of these records together; return where each record's starts."""
        return _gather(self._pool, owners)

    def keep(self, entries: Entries, chosen: Ints, limit: int, eviction: Eviction) -> Kept:
        """Add the chosen entries; the cache never takes more than `limit` blocks.

        A key that is pending or cached already is left as it is.
        """
        kept, evicted = _keep(
            self._pool,
            self._departed,
            entries.data,
            entries.bounds,
            chosen,
            self.read_at,
            limit,
            int(eviction),
        )
        return Kept(kept, len(chosen) - kept, evicted)

    def take(
        self, entries: Entries, wanted: Flags, read_at: Ints, limit: int, eviction: Eviction
    ) -> Kept:
        """Add the wanted entries, and replace those of keys that are cached, wanted or not.

        A key keeps what its hits have earned it; one that is pending is about to be answered by
        newer rows. `read_at` is when its rows were read, in any unit that fits 31 bits.
        """
        kept, evicted = _take(
            self._pool,
            self._departed,
            entries.data,
            entries.bounds,
            wanted,
            read_at,
            limit,
            int(eviction),
        )
        return Kept(kept, len(entries) - kept, evicted)

    def drop(self, keys: JoinKeys) -> int:
        """Forget these keys, where they are held; return how many were."""
        return _drop(self._pool, keys.values, keys.texts.data, keys.texts.bounds)

    def drop_records(self, records: Ints) -> None:
        _drop_records(self._pool, records)

    def sweep(self, first: int, end: int, before: int) -> tuple[int, int]:
        """Evict whose rows were read before a time, looking at these slots of the table.

        There is a slot a block of the pool. Return how many left, and the earliest time at
        which the rows of one that stays were read, or NOTHING.
        """
        return _sweep(self._pool, self._departed, first, end, before)

    def shrink(self, limit: int) -> int:
        """Evict the coldest keys until at most so many blocks are left; return how many keys."""
        return _shrink(self._pool, self._departed, limit)

    def review(
        self, cycles: float, events_save: float, factor: float, memory: int, enough: int = 0
    ) -> int:
        """Charge every key what it has taken for so many cycles; return how many had to leave.

        A key is credited what its hits have saved: `events_save` blocks each. It can save up
        for `memory` cycles, and brought the credit for one when it came. Who cannot pay leaves,
        the coldest first, while the cache takes more than `enough` blocks.
        """
        return _review(self._pool, self._departed, cycles, events_save, factor, memory, enough)

    def values(self) -> Ints:
        """The join keys or hashes held, the coldest first."""
        return _values(self._pool, self.records())

    def records(self) -> Ints:
        """The records of the keys held, the coldest first."""
        return _records(self._pool)


def smaller(entries: Entries, share: float, pending: Ints, factor: float) -> Ints:
    """Which entries, times the factor, take less than this share of their pending blocks."""
    return _smaller(entries.data, entries.bounds, share, pending, factor)


@inner
def use(pool: Pool, key: int, by_recency: bool) -> None:
    """Count a hit."""
    word = key * WORDS + COUNT
    pool.words[word] += pool.words[word] < _MOST
    if by_recency:
        unlink(pool, COLDEST, HOTTEST, key)
        append(pool, COLDEST, HOTTEST, key)


@kernel
def _probe(
    pool: Pool, values: Ints, texts: Bytes, bounds: Ints, most: int, by_recency: bool
) -> tuple[Ints, Bytes, Ints, Ints]:
    words, state = pool.words, pool.state
    hits = np.empty(len(values), np.int64)
    starts = np.empty(len(values), np.int64)
    misses = np.empty(len(values), np.int64)
    used = np.empty(len(values), np.int64)
    state[BATCH] = (state[BATCH] + 1) & 0x7FFFFFFF
    batch = state[BATCH]
    tags = np.empty(HASHED, np.int64)
    found = distinct = size = 0
    seen = len(values)
    for i in range(len(values)):
        tag = hashed(pool, values, texts, bounds, i, tags)
        key = seek(pool, tag, values[i], texts, bounds[i], bounds[i + 1])
        if key == NONE:
            misses[i - found] = i
            continue
        word = key * WORDS
        if words[word + USED_BY] != batch:
            if size and size + words[word + SIZE] > most:
                seen = i
                break
            words[word + USED_BY] = batch
            words[word + STANDS_AT] = size // 8
            size += words[word + SIZE]
            used[distinct] = key
            distinct += 1
        words[word + COUNT] += words[word + COUNT] < _MOST
        hits[found] = i
        starts[found] = field(pool, key, STANDS_AT) * 8
        found += 1
    if by_recency:
        _renew(pool, used, distinct)
    entries = np.empty(size, np.uint8)
    _copy_entries(pool, used, distinct, entries)
    return hits[:found].copy(), entries, starts[:found].copy(), misses[: seen - found].copy()


@inner
def _renew(pool: Pool, records: Ints, count: int) -> None:
    """Make these keys the most recently used ones."""
    for i in range(count):
        if i + _AHEAD < count:
            ahead = records[i + _AHEAD]
            prefetch(pool.longs, field(pool, ahead, BEFORE) * LONGS)
            prefetch(pool.longs, field(pool, ahead, BEHIND) * LONGS)
        unlink(pool, COLDEST, HOTTEST, records[i])
        append(pool, COLDEST, HOTTEST, records[i])


@inner
def _copy_entries(pool: Pool, records: Ints, count: int, out: Bytes) -> None:
    at = 0
    for i in range(count):
        if i + _AHEAD < count:
            prefetch(pool.longs, field(pool, records[i + _AHEAD], ENTRY) * LONGS)
        length = field(pool, records[i], SIZE)
        read(pool, field(pool, records[i], ENTRY), LINK, out, at, length)
        at += length


@kernel
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
    _copy_entries(pool, firsts, distinct, out)
    return out, starts


@inner
def _takes(data: Bytes, start: int, end: int) -> int:
    """Blocks of the entry that stands there, as a cached key."""
    return blocks_of_key(load_int32(data, start + KEY_LENGTH)) + 1 + more_blocks(ROOM, end - start)


@kernel
def _smaller(data: Bytes, bounds: Ints, share: float, pending: Ints, factor: float) -> Ints:
    chosen = np.empty(len(pending), np.int64)
    count = 0
    for i in range(len(pending)):
        chosen[count] = i
        count += share * pending[i] > factor * _takes(data, bounds[i], bounds[i + 1])
    return chosen[:count]


@inner
def _evict(pool: Pool, key: int) -> None:
    word = key * WORDS
    pool.state[CACHED_KEYS] -= 1
    pool.state[CACHED_BLOCKS] -= pool.words[word + TAKES]
    unlink(pool, COLDEST, HOTTEST, key)
    give_chain(pool, field(pool, key, ENTRY))
    forget(pool, key)


@inner
def _leave(pool: Pool, departed: Departed, key: int) -> None:
    note_record(departed, pool, key)
    _evict(pool, key)


@inner
def _evict_one(pool: Pool, departed: Departed, eviction: int) -> bool:
    """Evict the coldest key, or give it another chance; tell whether it left."""
    key = pool.state[COLDEST]
    word = key * WORDS + COUNT
    if eviction == 2 and pool.words[word] > 0:
        pool.words[word] >>= 1
        unlink(pool, COLDEST, HOTTEST, key)
        append(pool, COLDEST, HOTTEST, key)
        return False
    behind = field(pool, key, BEHIND)
    _leave(pool, departed, key)
    # Who is to leave next is seldom one that was touched lately.
    if behind != NONE:
        following = field(pool, behind, BEHIND)
        prefetch(pool.longs, following * LONGS)
        prefetch(pool.longs, field(pool, behind, ENTRY) * LONGS)
        fetch_slot(pool, tag_in(pool, behind), pool.longs[behind * LONGS + VALUE])
    return True


@inner
def _make_room(
    pool: Pool, departed: Departed, needed: int, limit: int, eviction: int
) -> tuple[bool, int]:
    """Whether there is room for so many blocks, and who had to leave for it."""
    evicted = 0
    while eviction != 0 and (
        pool.state[CACHED_BLOCKS] + needed > limit
        or (pool.state[FREE] < needed and pool.state[CACHED_KEYS] > 0)
    ):
        if _evict_one(pool, departed, eviction):
            evicted += 1
    room = pool.state[FREE] >= needed and pool.state[CACHED_BLOCKS] + needed <= limit
    return room, evicted


@inner
def _keep(
    pool: Pool,
    departed: Departed,
    data: Bytes,
    bounds: Ints,
    chosen: Ints,
    read_at: int,
    limit: int,
    eviction: int,
) -> tuple[int, int]:
    kept = 0
    evicted = 0
    for nth in range(len(chosen)):
        start, end = bounds[chosen[nth]], bounds[chosen[nth] + 1]
        needed = _takes(data, start, end)
        text = start + HEADER + 4 * load_int32(data, start + ENTRY_ROWS)
        text_end = text + load_int32(data, start + KEY_LENGTH)
        key = load_int64(data, start)
        tag = tag_of(pool, key, data, text, text_end)
        if needed * LARGEST_SHARE > limit or seek(pool, tag, key, data, text, text_end) != NONE:
            continue
        room, left = _make_room(pool, departed, needed, limit, eviction)
        evicted += left
        if room:
            record = _hold(pool, tag, key, data, start, end, text, text_end, needed)
            pool.words[record * WORDS + READ_AT] = read_at
            kept += 1
    return kept, evicted


@inner
def _tag_at(pool: Pool, data: Bytes, start: int) -> int:
    """The tag of the key whose entry starts there."""
    text = start + HEADER + 4 * load_int32(data, start + ENTRY_ROWS)
    end = text + load_int32(data, start + KEY_LENGTH)
    return tag_of(pool, load_int64(data, start), data, text, end)


@inner
def _take(
    pool: Pool,
    departed: Departed,
    data: Bytes,
    bounds: Ints,
    wanted: Flags,
    read_at: Ints,
    limit: int,
    eviction: int,
) -> tuple[int, int]:
    kept = 0
    evicted = 0
    for i in range(len(wanted)):
        if i + _KEYS_AHEAD < len(wanted):
            far, near = bounds[i + _KEYS_AHEAD], bounds[i + _KEYS_AHEAD // 2]
            fetch_slot(pool, _tag_at(pool, data, far), load_int64(data, far))
            fetch_record(pool, _tag_at(pool, data, near))
        start, end = bounds[i], bounds[i + 1]
        needed = _takes(data, start, end)
        text = start + HEADER + 4 * load_int32(data, start + ENTRY_ROWS)
        text_end = text + load_int32(data, start + KEY_LENGTH)
        key = load_int64(data, start)
        tag = tag_of(pool, key, data, text, text_end)
        record = seek(pool, tag, key, data, text, text_end)
        wants = wanted[i]
        count = 0
        credit = needed * CREDIT
        if record != NONE and state_of(pool, record) != CACHED:
            continue
        if record != NONE:
            wants = True
            count = field(pool, record, COUNT)
            credit = pool.longs[record * LONGS + START]
            _evict(pool, record)
        if wants and needed * LARGEST_SHARE <= limit:
            room, left = _make_room(pool, departed, needed, limit, eviction)
            evicted += left
            if room:
                record = _hold(pool, tag, key, data, start, end, text, text_end, needed)
                pool.words[record * WORDS + COUNT] = count
                pool.words[record * WORDS + READ_AT] = read_at[i]
                pool.longs[record * LONGS + START] = credit
                kept += 1
                continue
        note(departed, key, data, text, text_end - text)
    return kept, evicted


@inner
def _drop(pool: Pool, values: Ints, texts: Bytes, bounds: Ints) -> int:
    dropped = 0
    for i in range(len(values)):
        tag = tag_of(pool, values[i], texts, bounds[i], bounds[i + 1])
        record = seek(pool, tag, values[i], texts, bounds[i], bounds[i + 1])
        if record != NONE and state_of(pool, record) == CACHED:
            _evict(pool, record)
            dropped += 1
    return dropped


@inner
def _drop_records(pool: Pool, records: Ints) -> None:
    for i in range(len(records)):
        _evict(pool, records[i])


@inner
def _sweep(pool: Pool, departed: Departed, first: int, end: int, before: int) -> tuple[int, int]:
    slots = pool.slots
    evicted = 0
    oldest = NOTHING
    for at in range(first, end):
        if at + _AHEAD < end and slots[at + _AHEAD] != NONE:
            prefetch(pool.longs, (slots[at + _AHEAD] & _LOW) * LONGS)
        # Who leaves is followed in its slot by another.
        while slots[at] != NONE:
            record: int = slots[at] & _LOW
            if state_of(pool, record) != CACHED:
                break
            read_at = field(pool, record, READ_AT)
            if read_at >= before:
                oldest = min(oldest, read_at)
                break
            _leave(pool, departed, record)
            evicted += 1
    return evicted, oldest


@inner
def _hold(
    pool: Pool,
    tag: int,
    key: int,
    data: Bytes,
    start: int,
    end: int,
    text: int,
    text_end: int,
    takes: int,
) -> int:
    record = enter(pool, tag, key, CACHED, data, text, text_end)
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
    return record


@inner
def _shrink(pool: Pool, departed: Departed, limit: int) -> int:
    evicted = 0
    while pool.state[CACHED_BLOCKS] > limit:
        _leave(pool, departed, pool.state[COLDEST])
        evicted += 1
    return evicted


@inner
def _review(
    pool: Pool,
    departed: Departed,
    cycles: float,
    events_save: float,
    factor: float,
    memory: int,
    enough: int,
) -> int:
    evicted = 0
    key = pool.state[COLDEST]
    while key != NONE:
        behind = field(pool, key, BEHIND)
        takes = field(pool, key, TAKES) * CREDIT
        saved = field(pool, key, COUNT) * events_save * CREDIT
        credit = pool.longs[key * LONGS + START] + saved - factor * takes * cycles
        if credit < 0 and pool.state[CACHED_BLOCKS] > enough:
            _leave(pool, departed, key)
            evicted += 1
        else:
            credit = max(0.0, min(credit, float(memory * takes)))
            pool.longs[key * LONGS + START] = np.int64(credit)
            pool.words[key * WORDS + COUNT] = 0
        key = behind
    return evicted


@kernel
def _records(pool: Pool) -> Ints:
    records = np.empty(pool.state[CACHED_KEYS], np.int64)
    key = pool.state[COLDEST]
    for i in range(len(records)):
        records[i] = key
        key = field(pool, key, BEHIND)
    return records


@kernel
def _values(pool: Pool, records: Ints) -> Ints:
    values = np.empty(len(records), np.int64)
    for i in range(len(records)):
        values[i] = pool.longs[records[i] * LONGS + VALUE]
    return values
