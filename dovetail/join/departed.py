"""The keys that have left a cache by themselves, noted one after another until they are asked for.

    8 bytes  join key, or its hash
    4 bytes  length of the canonical key
    …        the canonical key

Who finds no room in the notes is not noted. So they take a fixed number of bytes, and whoever
reads them must be able to do without a part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dovetail.join.columns import Column, JoinKeys
from dovetail.join.memory import copy, load_int32, load_int64, store_int32, store_int64
from dovetail.join.pool import LINK, LONGS, NONE, field, inner, read
from dovetail.join.records import TEXT, VALUE, text_length
from dovetail.kernels import kernel

if TYPE_CHECKING:
    from dovetail.join.columns import Bytes, Ints
    from dovetail.join.pool import Pool

_HEADER = 12
_BYTES, _KEYS, _LOST = range(3)


class Departed(NamedTuple):
    """The notes, as the kernels take them."""

    data: Bytes
    state: Ints

    @property
    def nbytes(self) -> int:
        return self.data.nbytes + self.state.nbytes

    @property
    def lost(self) -> int:
        """Keys that found no room, since the notes were made."""
        return int(self.state[_LOST])

    def take_out(self) -> JoinKeys:
        """Read the notes and clear them."""
        values, texts, bounds = _keys(self.data, self.state[_KEYS])
        self.clear()
        return JoinKeys(values, Column(texts, bounds))

    def clear(self) -> None:
        self.state[_BYTES] = self.state[_KEYS] = 0


def new_departed(size: int) -> Departed:
    """Return notes with so many bytes for keys; with none, nobody is noted."""
    return Departed(np.empty(size, np.uint8), np.zeros(3, np.int64))


@inner
def _line(departed: Departed, text: int) -> int:
    """Where a key with a text of so many bytes can be noted, or NONE."""
    at: int = departed.state[_BYTES]
    if at + _HEADER + text > len(departed.data):
        departed.state[_LOST] += 1
        return NONE
    departed.state[_BYTES] = at + _HEADER + text
    departed.state[_KEYS] += 1
    return at


@inner
def note(departed: Departed, key: int, data: Bytes, start: int, length: int) -> None:
    """Note a key whose text stands in `data`."""
    at = _line(departed, length)
    if at != NONE:
        store_int64(departed.data, at, key)
        store_int32(departed.data, at + 8, length)
        copy(departed.data, at + _HEADER, data, start, length)


@inner
def note_record(departed: Departed, pool: Pool, record: int) -> None:
    """Note the key of a record."""
    length = text_length(pool, record)
    at = _line(departed, length)
    if at != NONE:
        store_int64(departed.data, at, pool.longs[record * LONGS + VALUE])
        store_int32(departed.data, at + 8, length)
        read(pool, field(pool, record, TEXT), LINK, departed.data, at + _HEADER, length)


@kernel
def _keys(data: Bytes, count: int) -> tuple[Ints, Bytes, Ints]:
    values = np.empty(count, np.int64)
    bounds = np.zeros(count + 1, np.int64)
    at = 0
    for i in range(count):
        values[i] = load_int64(data, at)
        length = load_int32(data, at + 8)
        bounds[i + 1] = bounds[i] + length
        at += _HEADER + length
    texts = np.empty(bounds[-1], np.uint8)
    at = 0
    for i in range(count):
        length = bounds[i + 1] - bounds[i]
        copy(texts, bounds[i], data, at + _HEADER, length)
        at += _HEADER + length
    return values, texts, bounds
