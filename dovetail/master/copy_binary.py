"""PostgreSQL's binary COPY stream, taken apart by a kernel: no Python object a row.

    11-byte signature, 4 flag bytes, int32 n, n bytes of header extension
    a tuple: int16 number of fields; for each field int32 length (-1 = NULL), then its bytes
    int16 -1 at the end

All integers are big-endian. Here every tuple has two fields, never NULL: the join key and
the row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numba import njit

from dovetail.join.columns import Column, JoinKeys
from dovetail.join.entry import MasterRows
from dovetail.join.keys import hash_text_many
from dovetail.join.memory import copy

if TYPE_CHECKING:
    from dovetail.join.columns import Bytes, Ints

_EXTENSION = 11 + 4
_END = 0xFF  # the first byte of the end's -1; a tuple starts with its two fields, 0x0002


def decode(stream: bytes, *, int_key: bool) -> MasterRows:
    """Read (key, row) tuples; an int key is a bigint, any other the canonical key's text."""
    data = np.frombuffer(stream, np.uint8)
    start = _EXTENSION + 4 + _int32(data, _EXTENSION)
    measured = _measure(data, start)
    keys, key_bounds, rows, row_bounds = _read(data, start, measured)
    values = Column(rows, row_bounds)
    if int_key:
        return MasterRows(JoinKeys.of_ints(keys.view(">i8").astype(np.int64)), values)
    return MasterRows(JoinKeys(hash_text_many(keys, key_bounds), Column(keys, key_bounds)), values)


@njit(cache=True, nogil=True)
def _int32(data: Bytes, at: int) -> int:
    value = 0
    for i in range(4):
        value = value << 8 | data[at + i]
    return value - ((value & 0x80000000) << 1)


@njit(cache=True, nogil=True)
def _measure(data: Bytes, at: int) -> tuple[int, int, int]:
    """Return the number of tuples, the bytes of their keys and those of their rows."""
    count = 0
    key_bytes = 0
    row_bytes = 0
    while data[at] != _END:
        key = _int32(data, at + 2)
        row = _int32(data, at + 6 + key)
        count += 1
        key_bytes += key
        row_bytes += row
        at += 10 + key + row
    return count, key_bytes, row_bytes


@njit(cache=True, nogil=True)
def _read(data: Bytes, at: int, measured: tuple[int, int, int]) -> tuple[Bytes, Ints, Bytes, Ints]:
    count, key_bytes, row_bytes = measured
    keys = np.empty(key_bytes, np.uint8)
    rows = np.empty(row_bytes, np.uint8)
    key_bounds = np.zeros(count + 1, np.int64)
    row_bounds = np.zeros(count + 1, np.int64)
    for i in range(count):
        key = _int32(data, at + 2)
        row = _int32(data, at + 6 + key)
        copy(keys, key_bounds[i], data, at + 6, key)
        copy(rows, row_bounds[i], data, at + 10 + key, row)
        key_bounds[i + 1] = key_bounds[i] + key
        row_bounds[i + 1] = row_bounds[i] + row
        at += 10 + key + row
    return keys, key_bounds, rows, row_bounds
