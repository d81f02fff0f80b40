"""f_R: with how many master rows a join key matches, learnt from answers or counted beforehand.

    key ──hash──► │ set │ set │ set │ …        a set has 8 places, a place a key and its rows

The disk phase comes by every key's rows anyway: the entry that answers an event says how many
there are. A full set gives up a key that nobody has asked for lately. A key that is not held
counts as the average answered event, so a stranger neither pushes out a frequent key nor is
shed before one that is known to have no row.

Keys are told apart by their 64 bits: two texts that share a hash share a count as well.

Memory: 13 bytes a place, allocated once.

Whoever has counted R (`KnownFrequencies`) holds the keys with the most rows in a table that is at
most half full: 12 bytes a place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from dovetail.errors import ConfigError
from dovetail.join.entry import KEY, ROWS
from dovetail.join.memory import load_int32, load_int64
from dovetail.join.seeds import SEEDS
from dovetail.join.table import home
from dovetail.kernels import kernel

if TYPE_CHECKING:
    from dovetail.join.columns import Bytes, Flags, Ints, JoinKeys, SmallInts
    from dovetail.join.seeds import Seeds

Floats = NDArray[np.float64]
SmallFloats = NDArray[np.float32]

_PLACES = 8
_BYTES_A_SET = _PLACES * (8 + 4 + 1)
_BYTES_A_PLACE = 8 + 4
_FREE = -1


class Frequencies(Protocol):
    def frequency(self, keys: JoinKeys) -> Floats:
        """f_R of each key, known or expected."""
        ...


class LearntFrequencies:
    """Holds f_R of as many keys as fit into `budget` bytes."""

    def __init__(self, budget: int) -> None:
        if budget < _BYTES_A_SET:
            raise ConfigError(
                f"{budget} bytes are too few to learn how many master rows a key has: "
                f"give it {_BYTES_A_SET} or more"
            )
        sets = 1
        while 2 * sets * _BYTES_A_SET <= budget:
            sets *= 2
        self._keys: Ints = np.zeros(sets * _PLACES, np.int64)
        self._rows: SmallInts = np.full(sets * _PLACES, _FREE, np.int32)
        self._asked: Flags = np.zeros(sets * _PLACES, np.bool_)
        self._answers = 0
        self._rows_answered = 0

    @property
    def allocated(self) -> int:
        return self._keys.nbytes + self._rows.nbytes + self._asked.nbytes

    @property
    def expected(self) -> float:
        """Master rows of the average answered event; 1 before there is any."""
        return self._rows_answered / self._answers if self._answers else 1.0

    def learn(self, entries: Bytes, starts: Ints) -> None:
        """Learn from answers: `Answers.entries` and `.starts`, or an `Entries`' data and bounds."""
        self._rows_answered += _learn(SEEDS, self._keys, self._rows, self._asked, entries, starts)
        self._answers += len(starts)

    def frequency(self, keys: JoinKeys) -> Floats:
        return _look_up(SEEDS, self._keys, self._rows, self._asked, keys.values, self.expected)


def most_keys(budget: int) -> int:
    """How many keys a `KnownFrequencies` of so many bytes holds; at least one."""
    keys = 1
    while 2 * 2 * keys * _BYTES_A_PLACE <= budget:
        keys *= 2
    return keys


class KnownFrequencies:
    """Holds f_R of these keys, as many of the first as fit; `expected` of any other.

    The table is at most half full, so that a miss ends after a step or two.
    """

    def __init__(self, budget: int, keys: Ints, rows: Floats, expected: float = 1.0) -> None:
        held = most_keys(budget)
        self._keys: Ints = np.zeros(2 * held, np.int64)
        self._rows: SmallFloats = np.full(2 * held, _FREE, np.float32)
        self._expected = expected
        _fill(SEEDS, self._keys, self._rows, keys[:held], rows[:held])

    @property
    def allocated(self) -> int:
        return self._keys.nbytes + self._rows.nbytes

    def frequency(self, keys: JoinKeys) -> Floats:
        return _find(SEEDS, self._keys, self._rows, keys.values, self._expected)


@kernel
def _fill(seeds: Seeds, table: Ints, counts: SmallFloats, keys: Ints, rows: Floats) -> None:
    for i in range(len(keys)):
        at = home(seeds, len(table), keys[i])
        while counts[at] != _FREE and table[at] != keys[i]:
            at = (at + 1) % len(table)
        table[at] = keys[i]
        counts[at] = rows[i]


@kernel
def _find(seeds: Seeds, table: Ints, counts: SmallFloats, keys: Ints, unknown: float) -> Floats:
    found = np.empty(len(keys), np.float64)
    for i in range(len(keys)):
        at = home(seeds, len(table), keys[i])
        while counts[at] != _FREE and table[at] != keys[i]:
            at = (at + 1) % len(table)
        found[i] = unknown if counts[at] == _FREE else counts[at]
    return found


@kernel
def _place_of(seeds: Seeds, keys: Ints, rows: SmallInts, key: int) -> int:
    first = home(seeds, len(keys) // _PLACES, key) * _PLACES
    for at in range(first, first + _PLACES):
        if rows[at] != _FREE and keys[at] == key:
            return at
    return -1


@kernel
def _room_for(seeds: Seeds, rows: SmallInts, asked: Flags, key: int) -> int:
    """Return a place of the key's set that is free, or whose key nobody has asked for lately."""
    first = home(seeds, len(rows) // _PLACES, key) * _PLACES
    for at in range(first, first + _PLACES):
        if rows[at] == _FREE:
            return at
    for at in range(first, first + _PLACES):
        if not asked[at]:
            return at
    asked[first : first + _PLACES] = False
    return first


@kernel
def _learn(
    seeds: Seeds, keys: Ints, rows: SmallInts, asked: Flags, entries: Bytes, starts: Ints
) -> int:
    """Return how many rows the entries have in all."""
    total = 0
    for start in starts:
        key = load_int64(entries, start + KEY)
        at = _place_of(seeds, keys, rows, key)
        if at < 0:
            at = _room_for(seeds, rows, asked, key)
            keys[at] = key
            asked[at] = False
        rows[at] = load_int32(entries, start + ROWS)
        total += rows[at]
    return total


@kernel
def _look_up(
    seeds: Seeds, keys: Ints, rows: SmallInts, asked: Flags, values: Ints, unknown: float
) -> Floats:
    found = np.empty(len(values), np.float64)
    for i in range(len(values)):
        at = _place_of(seeds, keys, rows, values[i])
        if at < 0:
            found[i] = unknown
        else:
            found[i] = rows[at]
            asked[at] = True
    return found
