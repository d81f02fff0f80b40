"""Pending events (H_S) and the arrival queue: a queue of join keys, each with its events.

    oldest ─► key ─► key ─► key ◄─ newest       doubly linked: a key leaves from anywhere
               │      │      │
               e      e      e                  its events in the order of their arrival
               e             e
                             e

An event waits with its key and leaves with it: what answers one event of a key answers all
of them. So the queue needs no pointer an event, chunks may differ in size, and removing a
key from the middle (HYBRIDJOIN's doubly linked queue, §4.1) is one step.

Memory: a block a key (and its text), and for an event of n bytes one block for the first 40
and one for each 60 more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dovetail.join.cached import use
from dovetail.join.columns import Column, JoinKeys
from dovetail.join.matching import answer
from dovetail.join.memory import prefetch
from dovetail.join.pool import (
    BLOCK,
    CACHED_KEYS,
    COLLECTED_BLOCKS,
    EVENT_BLOCKS,
    EVENTS,
    FREE,
    KEYS,
    LINK,
    LONGS,
    NEWEST,
    NEXT,
    NONE,
    OLDEST,
    SEQUENCE,
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
    FIRST_EVENT,
    HASHED,
    LAST_EVENT,
    PENDING,
    ROWS,
    ROWS_BYTES,
    ROWS_FIRST,
    START,
    TEXT,
    VALUE,
    append,
    blocks_of_key,
    enter,
    fetch_slot,
    forget,
    hashed,
    seek,
    state_of,
    tag_in,
    text_length,
    unlink,
)
from dovetail.kernels import kernel

if TYPE_CHECKING:
    from dovetail.join.columns import Bytes, Flags, Ints
    from dovetail.join.exchange import Events

# An event's first block, in words of four bytes but for its id, of eight.
_NEXT_EVENT, _EVENT_ID, _EVENT_LENGTH, _EVENT_SEQUENCE, _EVENT_AT = 1, 1, 4, 5, 24
FIRST_ROOM = BLOCK - _EVENT_AT
_AHEAD = 16
_NOTES = 48
"""Bytes that are noted of an event that leaves, beside its own."""
_ALL = 1 << 62
_LOW = 0xFFFFFFFF
UNBOUNDED = -1


@dataclass(slots=True)
class Admission:
    """On which terms a batch is let in."""

    start: int = 0
    """The page that a new key will see first."""
    events: int = UNBOUNDED
    """w: how many events may become pending now."""
    kept_free: int = 0
    """Blocks that must stay free."""
    rows_a_key: int = 0
    """Blocks to keep free for the rows that each new key will collect."""
    distance: int = UNBOUNDED
    """How far an event may be from the oldest pending one, in events (scrambling distance)."""
    by_recency: bool = False
    """Whether a hit makes its key the most recently used one."""


@dataclass(frozen=True, slots=True)
class Admitted:
    events: int
    """How many of the batch were let in, from its start: answered by a hit, or pending."""
    hits: Ints
    """Positions of the events that the cache answers."""
    owners: Ints
    """The record of each hit's key."""


_NOTHING = np.empty(0, np.int64)
NOBODY = Admitted(0, _NOTHING, _NOTHING)


@dataclass(slots=True)
class Leaving:
    """Keys that are answered, and whose events leave in slices."""

    keys: Ints
    counts: Ints
    blocks: Ints
    """Of what has left."""
    gone: int = 0
    """How many of the keys have left, with all their events."""

    @property
    def done(self) -> bool:
        return self.gone == len(self.keys)


@dataclass(frozen=True, slots=True)
class Left:
    """Events of keys that leave: all of them, or a slice."""

    events: Column
    ids: Ints
    ranks: Ints
    """For each event the place of its key among those that leave."""
    counts: Ints
    """n: events a key."""
    blocks: Ints
    """Blocks that each key took, its record included and collected rows not."""


class Pending:
    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def __len__(self) -> int:
        """Events that wait."""
        return int(self._pool.state[EVENTS])

    @property
    def keys(self) -> int:
        """Distinct join keys that events wait for."""
        return int(self._pool.state[KEYS])

    @property
    def blocks_an_event(self) -> float:
        """v_S: what an event takes, on average over those that wait."""
        return float(self._pool.state[EVENT_BLOCKS] / max(1, len(self)))

    @property
    def oldest_start(self) -> int | None:
        """The start of the key that waits longest."""
        if not self.keys:
            return None
        return int(self._pool.longs[self._pool.state[OLDEST] * LONGS + START])

    def admit(self, events: Events, terms: Admission) -> Admitted:
        """Let events in from the batch's start, until one would break the terms."""
        return Admitted(
            *_admit(
                self._pool,
                events.keys.values,
                events.keys.texts.data,
                events.keys.texts.bounds,
                events.data.data,
                events.data.bounds,
                events.ids,
                terms.start,
                len(events) if terms.events == UNBOUNDED else terms.events,
                terms.kept_free,
                terms.rows_a_key,
                terms.distance,
                terms.by_recency,
            )
        )

    def oldest(self, count: int) -> Ints:
        """The records of the keys that wait longest."""
        return _oldest(self._pool, min(count, self.keys))

    def keys_of(self, records: Ints) -> JoinKeys:
        values, data, bounds = _keys_of(self._pool, records)
        return JoinKeys(values, Column(data, bounds))

    def awaited(self, keys: JoinKeys) -> Flags:
        """Which of these keys have events that wait."""
        return _awaited(self._pool, keys.values, keys.texts.data, keys.texts.bounds)

    def restart(self, start: int) -> None:
        """Forget what all keys have collected: `start` is the first page that they see."""
        _restart(self._pool, start)

    def send_back(self, records: Ints, start: int) -> None:
        """Let keys start over, as the newest: `start` is the first page that they see."""
        _send_back(self._pool, records, start)

    def dismiss(self, records: Ints) -> Left:
        """Take out the events of pending keys without an answer, with all that these collected."""
        _dismiss(self._pool, records)
        return self.remove(self.leaving(records))

    def clear(self) -> None:
        """Forget all that waits, and what is answered and has not left yet."""
        _clear(self._pool)

    def leaving(self, answered: Ints) -> Leaving:
        """The keys that are answered, to be removed in slices."""
        counts = self._pool.words[answered * WORDS + COUNT].astype(np.int64)
        return Leaving(answered, counts, np.zeros(len(answered), np.int64))

    def remove(self, leaving: Leaving, most: int = _ALL) -> Left:
        """Take out events of at most so many bytes, or one, and free all that they took."""
        leaving.gone, data, bounds, ids, ranks = _remove(
            self._pool, leaving.keys, leaving.gone, leaving.blocks, most
        )
        return Left(Column(data, bounds), ids, ranks, leaving.counts, leaving.blocks)


@kernel
def _admit(
    pool: Pool,
    values: Ints,
    texts: Bytes,
    text_bounds: Ints,
    data: Bytes,
    bounds: Ints,
    ids: Ints,
    start: int,
    most: int,
    kept_free: int,
    rows_a_key: int,
    distance: int,
    by_recency: bool,
) -> tuple[int, Ints, Ints]:
    state = pool.state
    possible = len(values) if state[CACHED_KEYS] else 0
    hits = np.empty(possible, np.int64)
    owners = np.empty(possible, np.int64)
    tags = np.empty(HASHED, np.int64)
    found = 0
    missed = 0
    for i in range(len(values)):
        if distance != UNBOUNDED and _too_far(pool, distance):
            return i, hits[:found].copy(), owners[:found].copy()
        text, text_end = text_bounds[i], text_bounds[i + 1]
        tag = hashed(pool, values, texts, text_bounds, i, tags)
        key = seek(pool, tag, values[i], texts, text, text_end)
        if key != NONE and state_of(pool, key) == CACHED:
            use(pool, key, by_recency)
            hits[found] = i
            owners[found] = key
            found += 1
        else:
            length = bounds[i + 1] - bounds[i]
            needed = 1 + more_blocks(FIRST_ROOM, length)
            if key == NONE:
                needed += blocks_of_key(text_end - text) + rows_a_key
            if missed == most or state[FREE] - kept_free < needed:
                return i, hits[:found].copy(), owners[:found].copy()
            if key == NONE:
                key = enter(pool, tag, values[i], PENDING, texts, text, text_end)
                _await(pool, key, start)
                kept_free += rows_a_key
            _add_event(pool, key, ids[i], data, bounds[i], length)
            missed += 1
        state[SEQUENCE] += 1
    return len(values), hits[:found].copy(), owners[:found].copy()


@inner
def _await(pool: Pool, key: int, start: int) -> None:
    """Put a new key at the queue's end."""
    pool.words[key * WORDS + COUNT] = 0
    pool.words[key * WORDS + ROWS] = 0
    pool.words[key * WORDS + ROWS_BYTES] = 0
    pool.longs[key * LONGS + START] = start
    append(pool, OLDEST, NEWEST, key)
    pool.state[KEYS] += 1


@inner
def _too_far(pool: Pool, distance: int) -> bool:
    oldest = pool.state[OLDEST]
    if oldest == NONE:
        return False
    event = field(pool, oldest, FIRST_EVENT)
    ahead = pool.state[SEQUENCE] - pool.words[event * WORDS + _EVENT_SEQUENCE]
    far: bool = (ahead & 0xFFFFFFFF) > distance
    return far


@inner
def _add_event(pool: Pool, key: int, name: int, data: Bytes, start: int, length: int) -> None:
    before = pool.state[FREE]
    event = take(pool)
    word = event * WORDS
    pool.words[word + _NEXT_EVENT] = NONE
    pool.longs[event * LONGS + _EVENT_ID] = name
    pool.words[word + _EVENT_LENGTH] = length
    pool.words[word + _EVENT_SEQUENCE] = pool.state[SEQUENCE] & 0xFFFFFFFF
    write(pool, event, _EVENT_AT, data, start, length)
    last = field(pool, key, LAST_EVENT)
    if last == NONE:
        pool.words[key * WORDS + FIRST_EVENT] = event
    else:
        pool.words[last * WORDS + _NEXT_EVENT] = event
    pool.words[key * WORDS + LAST_EVENT] = event
    pool.words[key * WORDS + COUNT] += 1
    pool.state[EVENTS] += 1
    pool.state[EVENT_BLOCKS] += before - pool.state[FREE]


@kernel
def _oldest(pool: Pool, count: int) -> Ints:
    records = np.empty(count, np.int64)
    at = pool.state[OLDEST]
    for i in range(count):
        records[i] = at
        at = field(pool, at, BEHIND)
    return records


@kernel
def _keys_of(pool: Pool, records: Ints) -> tuple[Ints, Bytes, Ints]:
    longs = pool.longs
    values = np.empty(len(records), np.int64)
    bounds = np.zeros(len(records) + 1, np.int64)
    for i in range(len(records)):
        values[i] = longs[records[i] * LONGS + VALUE]
        bounds[i + 1] = bounds[i] + text_length(pool, records[i])
    data = np.empty(bounds[-1], np.uint8)
    for i in range(len(records)):
        text = field(pool, records[i], TEXT)
        read(pool, text, LINK, data, bounds[i], bounds[i + 1] - bounds[i])
    return values, data, bounds


@kernel
def _awaited(pool: Pool, values: Ints, texts: Bytes, bounds: Ints) -> Flags:
    awaited = np.zeros(len(values), np.bool_)
    tags = np.empty(HASHED, np.int64)
    for i in range(len(values)):
        tag = hashed(pool, values, texts, bounds, i, tags)
        key = seek(pool, tag, values[i], texts, bounds[i], bounds[i + 1])
        awaited[i] = key != NONE and state_of(pool, key) == PENDING
    return awaited


@inner
def drop_rows(pool: Pool, key: int, start: int) -> None:
    """Free what a pending key has collected; it starts over at this page."""
    word = key * WORDS
    pool.state[COLLECTED_BLOCKS] -= give_chain(pool, field(pool, key, ROWS_FIRST))
    pool.words[word + ROWS_FIRST] = NONE
    pool.words[word + ROWS] = 0
    pool.words[word + ROWS_BYTES] = 0
    pool.longs[key * LONGS + START] = start


@inner
def _restart(pool: Pool, start: int) -> None:
    key = pool.state[OLDEST]
    while key != NONE:
        drop_rows(pool, key, start)
        key = field(pool, key, BEHIND)


@kernel
def _send_back(pool: Pool, records: Ints, start: int) -> None:
    for nth in range(len(records)):
        drop_rows(pool, records[nth], start)
        unlink(pool, OLDEST, NEWEST, records[nth])
        append(pool, OLDEST, NEWEST, records[nth])


@kernel
def _dismiss(pool: Pool, records: Ints) -> None:
    for nth in range(len(records)):
        drop_rows(pool, records[nth], 0)
        answer(pool, records[nth])


@kernel
def _clear(pool: Pool) -> None:
    slots, state = pool.slots, pool.state
    for at in range(len(slots)):
        # Who leaves is followed in its slot by another.
        while slots[at] != NONE and state_of(pool, slots[at] & _LOW) != CACHED:
            key = slots[at] & _LOW
            event = field(pool, key, FIRST_EVENT)
            while event != NONE:
                following = field(pool, event, _NEXT_EVENT)
                give_chain(pool, event)
                event = following
            give_chain(pool, field(pool, key, ROWS_FIRST))
            forget(pool, key)
    state[OLDEST] = state[NEWEST] = NONE
    state[KEYS] = state[EVENTS] = state[EVENT_BLOCKS] = state[COLLECTED_BLOCKS] = 0


@kernel
def _remove(
    pool: Pool, answered: Ints, gone: int, blocks: Ints, most: int
) -> tuple[int, Bytes, Ints, Ints, Ints]:
    """Return how many of the keys have left in all, and the slice of events."""
    waiting = 0
    for rank in range(gone, len(answered)):
        waiting += field(pool, answered[rank], COUNT)
        if waiting * _NOTES > most:
            break
    events = np.empty(waiting, np.int64)
    ranks = np.empty(waiting, np.int64)
    ids = np.empty(waiting, np.int64)
    bounds = np.empty(waiting + 1, np.int64)
    end, total = _unchain(pool, answered, gone, most, events, ranks, ids, bounds)
    data = np.empty(bounds[total], np.uint8)
    for nth in range(total):
        read(pool, events[nth], _EVENT_AT, data, bounds[nth], bounds[nth + 1] - bounds[nth])
        taken = give_chain(pool, events[nth])
        blocks[ranks[nth]] += taken
        pool.state[EVENT_BLOCKS] -= taken
    pool.state[EVENTS] -= total
    for rank in range(gone, end):
        if rank + _AHEAD < end:
            ahead = answered[rank + _AHEAD]
            fetch_slot(pool, tag_in(pool, ahead), pool.longs[ahead * LONGS + VALUE])
        blocks[rank] += blocks_of_key(text_length(pool, answered[rank]))
        forget(pool, answered[rank])
    pool.state[KEYS] -= end - gone
    return end, data, bounds[: total + 1], ids[:total], ranks[:total]


@inner
def _unchain(
    pool: Pool,
    answered: Ints,
    rank: int,
    most: int,
    events: Ints,
    ranks: Ints,
    ids: Ints,
    bounds: Ints,
) -> tuple[int, int]:
    """Part events from their keys, from this one on; return behind which, and how many events."""
    words = pool.words
    bounds[0] = 0
    total = 0
    while rank < len(answered):
        if rank + _AHEAD < len(answered):
            prefetch(pool.longs, field(pool, answered[rank + _AHEAD], FIRST_EVENT) * LONGS)
        word = answered[rank] * WORDS
        event = field(pool, answered[rank], FIRST_EVENT)
        while event != NONE:
            length = field(pool, event, _EVENT_LENGTH)
            if total and bounds[total] + length + (total + 1) * _NOTES > most:
                break
            events[total] = event
            ranks[total] = rank
            ids[total] = pool.longs[event * LONGS + _EVENT_ID]
            bounds[total + 1] = bounds[total] + length
            link = field(pool, event, NEXT)
            if link != NONE:
                prefetch(pool.longs, link * LONGS)
            event = field(pool, event, _NEXT_EVENT)
            words[word + COUNT] -= 1
            total += 1
        words[word + FIRST_EVENT] = event
        if event != NONE:
            return rank, total
        rank += 1
    return rank, total
