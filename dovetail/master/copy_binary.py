"""PostgreSQL's binary COPY stream, taken apart by a kernel: no Python object a row.

    11-byte signature, 4 flag bytes, 4 + n bytes of header extension
    a tuple: int16 number of fields; for each field int32 length (-1 = NULL), then its bytes
    int16 -1 at the end

All integers are big-endian. Here every tuple has two fields: the join key and the row.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from dovetail.join.columns import Bytes, Column, Ints, JoinKeys
from dovetail.join.entry import MasterRows
from dovetail.join.keys import hash_text_many
from dovetail.join.memory import copy

_HEADER = 11 + 4 + 4


def decode(stream: bytes, *, int_key: bool) -> MasterRows:
    """Read (key, row) tuples; an int key is a bigint, any other the canonical key's text."""
    data = np.frombuffer(stream, np.uint8)
    count, key_bytes, row_bytes = _measure(data, _HEADER)
    keys, key_bounds, rows, row_bounds = _read(data, _HEADER, count, key_bytes, row_bytes)
    values = Column(rows, row_bounds)
    if int_key:
        return MasterRows(JoinKeys.of_ints(keys.view(">i8").astype(np.int64)), values)
    return MasterRows(JoinKeys(hash_text_many(keys, key_bounds), Column(keys, key_bounds)), values)


@njit(cache=True, nogil=True)
def _int32(data: Bytes, at: int) -> int:
    value = np.uint32(0)
    for i in range(4):
        value = (value << np.uint32(8)) | np.uint32(data[at + i])
    return np.int64(np.int32(value))  # type: ignore[return-value]


@njit(cache=True, nogil=True)
def _measure(data: Bytes, at: int) -> tuple[int, int, int]:
    count = 0
    key_bytes = 0
    row_bytes = 0
    while data[at] != 0xFF:  # the end's -1; a tuple starts with its two fields, 0x0002
        key = _int32(data, at + 2)
        row = _int32(data, at + 6 + key)
        count += 1
        key_bytes += key
        row_bytes += max(row, 0)
        at += 10 + key + max(row, 0)
    return count, key_bytes, row_bytes


@njit(cache=True, nogil=True)
def _read(
    data: Bytes, at: int, count: int, key_bytes: int, row_bytes: int
) -> tuple[Bytes, Ints, Bytes, Ints]:
    keys = np.empty(key_bytes, np.uint8)
    rows = np.empty(row_bytes, np.uint8)
    key_bounds = np.zeros(count + 1, np.int64)
    row_bounds = np.zeros(count + 1, np.int64)
    for i in range(count):
        key = _int32(data, at + 2)
        row = _int32(data, at + 6 + key)
        copy(keys, key_bounds[i], data, at + 6, key)
        copy(rows, row_bounds[i], data, at + 10 + key, max(row, 0))
        key_bounds[i + 1] = key_bounds[i] + key
        row_bounds[i + 1] = row_bounds[i] + max(row, 0)
        at += 10 + key + max(row, 0)
    return keys, key_bounds, rows, row_bounds
