"""The master cache (H_R): entries in a ring, evicted by second chance, within a byte budget.

    arena   ┌────────┬───────┬──────────────┬────────────┐
            │ newer  │ free  │ oldest …     │ … newer    │      one entry a join key,
            └────────┴───────┴──────────────┴────────────┘      all its rows together
                     ▲head   ▲tail                       ▲lap

    table   join key → where its entry starts in the arena

1. Entries are written at the head. When there is no room, the entry at the tail goes:
   back to the head if it has answered an event since it was last there (a second
   chance), else out. That approximates LRU without a list to keep in order.
2. A key is replaced by writing it anew; the old entry is marked and freed when the tail
   comes to it.
3. An entry larger than an eighth of the arena is refused: one key with a huge number of
   rows can never push out a thousand useful ones.

Memory: arena + table, allocated once, so that the budget cannot be exceeded.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from dovetail.join.columns import Bytes, Flags, Ints, JoinKeys
from dovetail.join.entry import HEADER, KEY, KEY_LENGTH, ROWS, SIZE, TOUCHED, Entries
from dovetail.join.memory import (
    copy,
    load_int32,
    load_int64,
    prefetch,
    store_int32,
)
from dovetail.join.table import BYTES_A_SLOT, EMPTY, home, put, remove_at, same

MISS = -1
_DEAD = -1
_AHEAD = 16
_BYTES_A_SLOT_SERVES = 64
"""One table slot for so many bytes of budget: half full when entries are 128 bytes. With
smaller ones the table, not the arena, decides what is evicted."""

_HEAD, _TAIL, _LAP, _COUNT = 0, 1, 2, 3


@dataclass(frozen=True, slots=True)
class Inserted:
    entries: int
    refused: int
    evicted: int


class MasterCache:
    """Holds entries by join key and never more than `budget` bytes."""

    def __init__(self, budget: int) -> None:
        capacity = 16
        while 2 * capacity * _BYTES_A_SLOT_SERVES <= budget:
            capacity *= 2
        self._keys = np.empty(capacity, np.int64)
        self._positions = np.full(capacity, EMPTY, np.int64)
        arena = (budget - capacity * BYTES_A_SLOT - 32) // 8 * 8
        if arena < 1024:
            raise ValueError(f"a cache of {budget} bytes is too small to hold anything")
        self.arena: Bytes = np.zeros(arena, np.uint8)
        self._ring: Ints = np.zeros(4, np.int64)

    def __len__(self) -> int:
        return int(self._ring[_COUNT])

    @property
    def allocated(self) -> int:
        """Bytes taken from the budget, whether entries fill them or not."""
        return self.arena.nbytes + self._keys.nbytes + self._positions.nbytes + self._ring.nbytes

    @property
    def used(self) -> int:
        """Bytes of the arena that hold entries."""
        head, tail, lap, _ = (int(value) for value in self._ring)
        return head - tail if lap == 0 else lap - tail + head

    def find(self, keys: JoinKeys) -> Ints:
        """Return where in the arena each key's entry starts, or MISS; hits count as use."""
        return _find_many(  # type: ignore[no-any-return]
            self._keys, self._positions, self.arena, keys.values, keys.texts.data, keys.texts.bounds
        )

    def insert(self, entries: Entries) -> Inserted:
        """Add entries, each in place of the one its key has, evicting what has to go."""
        refused, evicted = _insert_many(
            self._keys, self._positions, self.arena, self._ring, entries.data, entries.bounds
        )
        return Inserted(len(entries) - refused, refused, evicted)

    def evict(self, keys: JoinKeys) -> None:
        """Drop these keys, where they are held."""
        _evict_many(
            self._keys,
            self._positions,
            self.arena,
            self._ring,
            keys.values,
            keys.texts.data,
            keys.texts.bounds,
        )

    def keys(self) -> Ints:
        """The join keys held, in no order."""
        return self._keys[self._positions != EMPTY]

    def evict_values(self, values: Ints) -> None:
        """Drop every entry with one of these join keys or hashes."""
        gone = np.isin(self._keys, values) & (self._positions != EMPTY)
        _evict_marked(self._keys, self._positions, self.arena, self._ring, gone)


@njit(cache=True, nogil=True)
def _slot_of(
    keys: Ints, positions: Ints, arena: Bytes, key: int, data: Bytes, start: int, end: int
) -> int:
    """The table slot of a key, or EMPTY."""
    at = home(keys, key)
    while positions[at] != EMPTY:
        if keys[at] == key:
            entry = positions[at]
            length = np.int64(load_int32(arena, entry + KEY_LENGTH))
            text = entry + HEADER + 4 * np.int64(load_int32(arena, entry + ROWS))
            if same(arena, text, text + length, data, start, end):
                return at
        at = (at + 1) & (len(keys) - 1)
    return EMPTY


@njit(cache=True, nogil=True)
def _find_many(
    keys: Ints, positions: Ints, arena: Bytes, values: Ints, data: Bytes, bounds: Ints
) -> Ints:
    found = np.empty(len(values), np.int64)
    for i in range(len(values)):
        if i + _AHEAD < len(values):
            ahead = home(keys, values[i + _AHEAD])
            prefetch(keys, ahead)
            prefetch(positions, ahead)
        at = _slot_of(keys, positions, arena, values[i], data, bounds[i], bounds[i + 1])
        if at == EMPTY:
            found[i] = MISS
        else:
            found[i] = positions[at]
            store_int32(arena, positions[at] + TOUCHED, np.int32(1))
    return found


@njit(cache=True, nogil=True)
def _room_for(arena: Bytes, ring: Ints, size: int) -> bool:
    """Whether the head has so many bytes in one piece; wraps it round where that gives them."""
    if ring[_LAP] == 0:
        if len(arena) - ring[_HEAD] >= size:
            return True
        if ring[_COUNT] == 0 and ring[_HEAD] == ring[_TAIL]:
            ring[_HEAD] = 0
            ring[_TAIL] = 0
            return len(arena) >= size
        if ring[_TAIL] == 0:
            return False
        ring[_LAP] = ring[_HEAD]
        ring[_HEAD] = 0
    return ring[_TAIL] - ring[_HEAD] >= size  # type: ignore[no-any-return]


@njit(cache=True, nogil=True)
def _write(
    keys: Ints, positions: Ints, arena: Bytes, ring: Ints, data: Bytes, start: int, size: int
) -> None:
    entry = ring[_HEAD]
    copy(arena, entry, data, start, size)
    store_int32(arena, entry + TOUCHED, np.int32(0))
    put(keys, positions, load_int64(arena, entry + KEY), entry)
    ring[_HEAD] += size
    ring[_COUNT] += 1


@njit(cache=True, nogil=True)
def _slot_at(keys: Ints, positions: Ints, arena: Bytes, entry: int) -> int:
    """The table slot that stands for this very entry."""
    at = home(keys, load_int64(arena, entry + KEY))
    while positions[at] != entry:
        at = (at + 1) & (len(keys) - 1)
    return at


@njit(cache=True, nogil=True)
def _pass_tail(keys: Ints, positions: Ints, arena: Bytes, ring: Ints) -> int:
    """Free the entry at the tail or give it its second chance; returns how many left for good."""
    entry = ring[_TAIL]
    size = np.int64(load_int32(arena, entry + SIZE))
    touched = load_int32(arena, entry + TOUCHED)
    saved = arena[entry : entry + size].copy() if touched == 1 else arena[:0]
    if touched != _DEAD:
        remove_at(keys, positions, _slot_at(keys, positions, arena, entry))
        ring[_COUNT] -= 1
    ring[_TAIL] += size
    if ring[_LAP] != 0 and ring[_TAIL] == ring[_LAP]:
        ring[_TAIL] = 0
        ring[_LAP] = 0
    if touched == 1 and _room_for(arena, ring, size):
        _write(keys, positions, arena, ring, saved, 0, size)
        return 0
    return 0 if touched == _DEAD else 1


@njit(cache=True, nogil=True)
def _insert_many(
    keys: Ints, positions: Ints, arena: Bytes, ring: Ints, data: Bytes, bounds: Ints
) -> tuple[int, int]:
    refused = 0
    evicted = 0
    for i in range(len(bounds) - 1):
        start = bounds[i]
        size = bounds[i + 1] - start
        key = load_int64(data, start + KEY)
        text = start + HEADER + 4 * np.int64(load_int32(data, start + ROWS))
        length = np.int64(load_int32(data, start + KEY_LENGTH))
        at = _slot_of(keys, positions, arena, key, data, text, text + length)
        if at != EMPTY:
            _mark_dead(keys, positions, arena, ring, at)
        if size > len(arena) // 8:
            refused += 1
            continue
        while 2 * (ring[_COUNT] + 1) > len(keys) or not _room_for(arena, ring, size):
            evicted += _pass_tail(keys, positions, arena, ring)
        _write(keys, positions, arena, ring, data, start, size)
    return refused, evicted


@njit(cache=True, nogil=True)
def _mark_dead(keys: Ints, positions: Ints, arena: Bytes, ring: Ints, at: int) -> None:
    store_int32(arena, positions[at] + TOUCHED, np.int32(_DEAD))
    remove_at(keys, positions, at)
    ring[_COUNT] -= 1


@njit(cache=True, nogil=True)
def _evict_many(
    keys: Ints, positions: Ints, arena: Bytes, ring: Ints, values: Ints, data: Bytes, bounds: Ints
) -> None:
    for i in range(len(values)):
        at = _slot_of(keys, positions, arena, values[i], data, bounds[i], bounds[i + 1])
        if at != EMPTY:
            _mark_dead(keys, positions, arena, ring, at)


@njit(cache=True, nogil=True)
def _evict_marked(
    keys: Ints, positions: Ints, arena: Bytes, ring: Ints, gone: Flags
) -> None:
    entries = positions[gone]
    for i in range(len(entries)):
        _mark_dead(keys, positions, arena, ring, _slot_at(keys, positions, arena, entries[i]))
