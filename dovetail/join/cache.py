"""The master cache (H_R): entries in a ring, evicted by second chance, within a byte budget.

    arena   ┌────────┬───────┬──────────────┬────────────┬─────┐
            │ newer  │ free  │ oldest …     │ … newer    │  –  │    one entry a join key,
            └────────┴───────┴──────────────┴────────────┴─────┘    all its rows together
                     ▲head   ▲tail                       ▲lap

    table   join key → where its entry starts in the arena

1. Entries are written at the head. When there is no room, the entry at the tail goes:
   back to the head if it has answered an event since it was last there (a second
   chance), else out. That approximates LRU without a list to keep in order.
2. A key is replaced by writing it anew; the old entry is marked dead and its bytes are
   free when the tail comes to it.
3. An entry larger than an eighth of the arena is refused: one key with a huge number of
   rows can never push out a thousand useful ones.

The lap is where the head turned back to the start because the next entry did not fit
behind it; 0 while all entries lie in one piece, from the tail up to the head. An entry
never wraps around the arena's end, so that it can be spliced from where it lies.

Memory: arena + table, allocated once, so that the budget cannot be exceeded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numba import njit

from dovetail.errors import ConfigError
from dovetail.join.entry import HEADER, KEY, KEY_LENGTH, ROWS, SIZE, TOUCHED
from dovetail.join.memory import copy, load_int32, load_int64, move, prefetch, store_int32
from dovetail.join.table import BYTES_A_SLOT, EMPTY, home, put, remove_at, same

if TYPE_CHECKING:
    from dovetail.join.columns import Bytes, Ints, JoinKeys
    from dovetail.join.entry import Entries

MISS = -1
_LARGEST_SHARE = 8
"""An entry takes at most one part in so many of the arena."""
_BYTES_A_SLOT_SERVES = 64
"""One table slot for so many bytes of budget: half full when entries are 128 bytes. With
smaller ones the table, not the arena, decides what is evicted."""

_UNTOUCHED, _USED, _DEAD = 0, 1, -1
_SLOT_AHEAD, _ENTRY_AHEAD = 16, 8
_HEAD, _TAIL, _LAP, _COUNT = range(4)


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
        self._ring: Ints = np.zeros(4, np.int64)
        arena = (budget - capacity * BYTES_A_SLOT - self._ring.nbytes) // 8 * 8
        if arena < 1024:
            raise ConfigError(
                f"a cache of {budget} bytes is too small to hold anything: give the pipeline "
                f"more memory"
            )
        self._keys: Ints = np.empty(capacity, np.int64)
        self._positions: Ints = np.full(capacity, EMPTY, np.int64)
        self.arena: Bytes = np.zeros(arena, np.uint8)

    def __len__(self) -> int:
        return int(self._ring[_COUNT])

    @property
    def allocated(self) -> int:
        """Bytes taken from the budget, whether entries fill them or not."""
        return self.arena.nbytes + self._keys.nbytes + self._positions.nbytes + self._ring.nbytes

    @property
    def used(self) -> int:
        """Bytes of the arena that hold entries, dead ones included."""
        head, tail, lap, _ = self._ring.tolist()
        return int(head - tail if lap == 0 else lap - tail + head)

    def find(self, keys: JoinKeys) -> Ints:
        """Return where in the arena each key's entry starts, or MISS; hits count as use.

        The answer holds until the next insert, which may move every entry.
        """
        return _find_many(
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

    def evict_values(self, values: Ints) -> None:
        """Drop every entry with one of these join keys or hashes."""
        _evict_values(self._keys, self._positions, self.arena, self._ring, values)

    def keys(self) -> Ints:
        """Return the join keys or hashes held, in no order."""
        held: Ints = self._keys[self._positions != EMPTY]
        return held


@njit(cache=True, nogil=True)
def _slot_of(
    keys: Ints, positions: Ints, arena: Bytes, key: int, data: Bytes, start: int, end: int
) -> int:
    """Return the table slot of a key, or EMPTY."""
    at = home(len(keys), key)
    while positions[at] != EMPTY:
        if keys[at] == key:
            entry = positions[at]
            length = load_int32(arena, entry + KEY_LENGTH)
            text = entry + HEADER + 4 * load_int32(arena, entry + ROWS)
            if same(arena, text, text + length, data, start, end):
                return at
        at = (at + 1) & (len(keys) - 1)
    return EMPTY


@njit(cache=True, nogil=True)
def _slot_at(keys: Ints, positions: Ints, arena: Bytes, entry: int) -> int:
    """Return the table slot that stands for this very entry, which is alive."""
    at = home(len(keys), load_int64(arena, entry + KEY))
    while positions[at] != entry:
        at = (at + 1) & (len(keys) - 1)
    return at


@njit(cache=True, nogil=True)
def _find_many(
    keys: Ints, positions: Ints, arena: Bytes, values: Ints, data: Bytes, bounds: Ints
) -> Ints:
    found = np.empty(len(values), np.int64)
    for i in range(len(values)):
        if i + _SLOT_AHEAD < len(values):
            slot = home(len(keys), values[i + _SLOT_AHEAD])
            prefetch(keys, slot)
            prefetch(positions, slot)
            # Mostly the key's own entry; of an empty slot, an address that is never read.
            prefetch(arena, positions[home(len(keys), values[i + _ENTRY_AHEAD])])
        at = _slot_of(keys, positions, arena, values[i], data, bounds[i], bounds[i + 1])
        if at == EMPTY:
            found[i] = MISS
        else:
            found[i] = positions[at]
            store_int32(arena, positions[at] + TOUCHED, _USED)
    return found


@njit(cache=True, nogil=True)
def _room_for(arena: Bytes, ring: Ints, size: int) -> bool:
    """Whether the head has so many bytes in one piece; turns it back where that gives them."""
    if ring[_LAP] == 0:
        if len(arena) - ring[_HEAD] >= size:
            return True
        if ring[_HEAD] == ring[_TAIL]:  # there is no entry, so start afresh
            ring[_HEAD] = 0
            ring[_TAIL] = 0
            return len(arena) >= size
        if ring[_TAIL] == 0:
            return False
        ring[_LAP] = ring[_HEAD]
        ring[_HEAD] = 0
    return ring[_TAIL] - ring[_HEAD] >= size  # type: ignore[no-any-return]


@njit(cache=True, nogil=True)
def _enter(keys: Ints, positions: Ints, arena: Bytes, ring: Ints, size: int) -> None:
    """Make the bytes that stand at the head an entry."""
    entry = ring[_HEAD]
    store_int32(arena, entry + TOUCHED, _UNTOUCHED)
    put(keys, positions, load_int64(arena, entry + KEY), entry)
    ring[_HEAD] += size
    ring[_COUNT] += 1


@njit(cache=True, nogil=True)
def _pass_tail(keys: Ints, positions: Ints, arena: Bytes, ring: Ints) -> int:
    """Free the entry at the tail or give it its second chance; return how many left for good."""
    entry = ring[_TAIL]
    size = load_int32(arena, entry + SIZE)
    touched = load_int32(arena, entry + TOUCHED)
    if touched != _DEAD:
        remove_at(keys, positions, _slot_at(keys, positions, arena, entry))
        ring[_COUNT] -= 1
    ring[_TAIL] += size
    if ring[_LAP] != 0 and ring[_TAIL] == ring[_LAP]:
        ring[_TAIL] = 0
        ring[_LAP] = 0
    # It has room by the bytes that it just freed, and may overlap them. Moving clears its
    # mark, so that after one round at most an entry leaves.
    if touched == _USED and _room_for(arena, ring, size):
        move(arena, ring[_HEAD], arena, entry, size)
        _enter(keys, positions, arena, ring, size)
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
        text = start + HEADER + 4 * load_int32(data, start + ROWS)
        length = load_int32(data, start + KEY_LENGTH)
        at = _slot_of(keys, positions, arena, key, data, text, text + length)
        if at != EMPTY:
            _mark_dead(keys, positions, arena, ring, at)
        if size > len(arena) // _LARGEST_SHARE:
            refused += 1
            continue
        while 2 * (ring[_COUNT] + 1) > len(keys) or not _room_for(arena, ring, size):
            evicted += _pass_tail(keys, positions, arena, ring)
        copy(arena, ring[_HEAD], data, start, size)
        _enter(keys, positions, arena, ring, size)
    return refused, evicted


@njit(cache=True, nogil=True)
def _mark_dead(keys: Ints, positions: Ints, arena: Bytes, ring: Ints, at: int) -> None:
    store_int32(arena, positions[at] + TOUCHED, _DEAD)
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
def _evict_values(keys: Ints, positions: Ints, arena: Bytes, ring: Ints, values: Ints) -> None:
    for i in range(len(values)):
        at = home(len(keys), values[i])
        while positions[at] != EMPTY:
            if keys[at] == values[i]:
                _mark_dead(keys, positions, arena, ring, at)  # the next one moves up to here
            else:
                at = (at + 1) & (len(keys) - 1)
