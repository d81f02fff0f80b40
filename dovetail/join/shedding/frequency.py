"""f_R: with how many master rows a join key matches, learnt from what was answered.

    key ──hash──► │ set │ set │ set │ …        a set has 8 places, a place a key and its rows

The disk phase comes by every key's rows anyway: the entry that answers an event says how many
there are. A full set gives up a key that nobody has asked for lately. A key that is not held
counts as the average answered event, so a stranger neither pushes out a frequent key nor is
shed before one that is known to have no row.

Keys are told apart by their 64 bits: two texts that share a hash share a count as well.

Memory: 13 bytes a place, allocated once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np
from numba import njit
from numpy.typing import NDArray

from dovetail.errors import ConfigError
from dovetail.join.entry import KEY, ROWS
from dovetail.join.memory import load_int32, load_int64
from dovetail.join.table import home

if TYPE_CHECKING:
    from dovetail.join.columns import Bytes, Flags, Ints, JoinKeys, SmallInts

Floats = NDArray[np.float64]

_PLACES = 8
_BYTES_A_SET = _PLACES * (8 + 4 + 1)
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
        self._rows_answered += _learn(self._keys, self._rows, self._asked, entries, starts)
        self._answers += len(starts)

    def frequency(self, keys: JoinKeys) -> Floats:
        return _look_up(self._keys, self._rows, self._asked, keys.values, self.expected)


@njit(cache=True, nogil=True)
def _place_of(keys: Ints, rows: SmallInts, key: int) -> int:
    first = home(len(keys) // _PLACES, key) * _PLACES
    for at in range(first, first + _PLACES):
        if rows[at] != _FREE and keys[at] == key:
            return at
    return -1


@njit(cache=True, nogil=True)
def _room_for(rows: SmallInts, asked: Flags, key: int) -> int:
    """Return a place of the key's set that is free, or whose key nobody has asked for lately."""
    first = home(len(rows) // _PLACES, key) * _PLACES
    for at in range(first, first + _PLACES):
        if rows[at] == _FREE:
            return at
    for at in range(first, first + _PLACES):
        if not asked[at]:
            return at
    asked[first : first + _PLACES] = False
    return first


@njit(cache=True, nogil=True)
def _learn(keys: Ints, rows: SmallInts, asked: Flags, entries: Bytes, starts: Ints) -> int:
    """Return how many rows the entries have in all."""
    total = 0
    for start in starts:
        key = load_int64(entries, start + KEY)
        at = _place_of(keys, rows, key)
        if at < 0:
            at = _room_for(rows, asked, key)
            keys[at] = key
            asked[at] = False
        rows[at] = load_int32(entries, start + ROWS)
        total += rows[at]
    return total


@njit(cache=True, nogil=True)
def _look_up(keys: Ints, rows: SmallInts, asked: Flags, values: Ints, unknown: float) -> Floats:
    found = np.empty(len(values), np.float64)
    for i in range(len(values)):
        at = _place_of(keys, rows, values[i])
        if at < 0:
            found[i] = unknown
        else:
            found[i] = rows[at]
            asked[at] = True
    return found
