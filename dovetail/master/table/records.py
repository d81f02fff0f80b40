"""PostgreSQL's binary records, taken apart by a kernel into rows for the join: no Python a row.

    a record: int32 number of fields; for each field int32 type, int32 length (-1 = NULL), bytes

All integers are big-endian. Here a record has the row's place in the heap (`ctid`, or NULL),
its join key, and then the columns. A row whose key is NULL equals nothing, and is left out.

1. The records are measured, so that every buffer is made once and of the right size.
2. Each row is written as `RowCodec` reads it: a spare byte, then for each column whether there
   is a value, and the value as it lies in Arrow (rows.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dovetail.errors import MasterDataError
from dovetail.join.columns import Column, JoinKeys
from dovetail.join.entry import MasterRows
from dovetail.join.keys import hash_text_many
from dovetail.join.memory import copy, load_int32, load_int64, store_int32, store_int64
from dovetail.join.splice import SPARE
from dovetail.kernels import kernel
from dovetail.master.table.types import DATE, DECIMAL, TEXT, TIME

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dovetail.join.columns import Bytes, Ints
    from dovetail.master.table.types import Sent

_DAYS = 10_957
"""From 1970, where Arrow counts from, to 2000, where PostgreSQL does."""
_MICROSECONDS = _DAYS * 86_400_000_000
_LAST_TIME = (1 << 63) - 1 - _MICROSECONDS
_NUMERIC_HEAD, _DIGITS = 8, 4
_NEGATIVE, _SPECIAL = 0x4000, 0x8000
_NO_COLUMN = -1


@dataclass(frozen=True, slots=True)
class Records:
    rows: MasterRows
    places: Ints
    """Where each row lies: its block and, in the lowest 16 bits, its number there.

    -1 where that was not asked for."""


class RecordReader:
    """Reads records with these columns behind place and key."""

    def __init__(self, columns: Sequence[tuple[str, Sent]], *, int_key: bool) -> None:
        self._names = [name for name, _ in columns]
        self._kinds = np.array(
            [(sent.code, sent.width, sent.scale) for _, sent in columns], np.int64
        ).reshape(-1, 3)
        self._int_key = int_key

    def read(self, records: bytes) -> Records:
        data = np.frombuffer(records, np.uint8)
        count, key_bytes, row_bytes = _measure(data, self._kinds)
        places = np.empty(count, np.int64)
        keys, key_bounds = np.empty(key_bytes, np.uint8), np.zeros(count + 1, np.int64)
        rows, row_bounds = np.empty(row_bytes, np.uint8), np.zeros(count + 1, np.int64)
        bad = _fill(data, self._kinds, places, keys, key_bounds, rows, row_bounds)
        if bad != _NO_COLUMN:
            raise MasterDataError(
                f"column {self._names[bad]!r} has a value that is infinite, not a number or after "
                f"the year 294,000, which Arrow's type cannot hold: join a view with it cast to "
                f"text, or leave it out"
            )
        return Records(MasterRows(self._keys(keys, key_bounds), Column(rows, row_bounds)), places)

    def _keys(self, keys: Bytes, bounds: Ints) -> JoinKeys:
        if self._int_key:
            return JoinKeys.of_ints(keys.view(">i8").astype(np.int64))
        return JoinKeys(hash_text_many(keys, bounds), Column(keys, bounds))


@kernel
def _int16(data: Bytes, at: int) -> int:
    value: int = data[at] << 8 | data[at + 1]
    return value - ((value & 0x8000) << 1)


@kernel
def int32_of(data: Bytes, at: int) -> int:
    value: int = data[at] << 24 | data[at + 1] << 16 | data[at + 2] << 8 | data[at + 3]
    return value - ((value & 0x80000000) << 1)


@kernel
def place_of(data: Bytes, at: int) -> int:
    """A ctid as one number, in whose order rows lie."""
    return (int32_of(data, at) & 0xFFFFFFFF) << 16 | _int16(data, at + 4) & 0xFFFF


@kernel
def _measure(data: Bytes, kinds: Ints) -> tuple[int, int, int]:
    """Return the number of rows that have a key, and the bytes of keys and rows."""
    count = 0
    key_bytes = 0
    row_bytes = 0
    at = 0
    while at < len(data):
        at += 12 + max(0, int32_of(data, at + 8))
        key = int32_of(data, at + 4)
        at += 8 + max(0, key)
        size = SPARE
        for column in range(len(kinds)):
            length = max(0, int32_of(data, at + 4))
            at += 8 + length
            size += 1 + (4 + length if kinds[column, 0] == TEXT else kinds[column, 1])
        if key >= 0:
            count += 1
            key_bytes += key
            row_bytes += size
    return count, key_bytes, row_bytes


@kernel
def _fill(
    data: Bytes,
    kinds: Ints,
    places: Ints,
    keys: Bytes,
    key_bounds: Ints,
    rows: Bytes,
    row_bounds: Ints,
) -> int:
    """Write everything; return the first column with a value that cannot be written."""
    at = 0
    row = 0
    while at < len(data):
        place = int32_of(data, at + 8)
        tid = place_of(data, at + 12) if place >= 0 else -1
        at += 12 + max(0, place)
        key = int32_of(data, at + 4)
        key_at = at + 8
        at = key_at + max(0, key)
        if key < 0:
            for _ in range(len(kinds)):
                at += 8 + max(0, int32_of(data, at + 4))
            continue
        places[row] = tid
        copy(keys, key_bounds[row], data, key_at, key)
        key_bounds[row + 1] = key_bounds[row] + key
        to = row_bounds[row]
        rows[to] = 0
        to += SPARE
        for column in range(len(kinds)):
            length = int32_of(data, at + 4)
            code, width, scale = kinds[column, 0], kinds[column, 1], kinds[column, 2]
            rows[to] = length >= 0
            to += 1
            if code == TEXT:
                store_int32(rows, to, max(0, length))
                copy(rows, to + 4, data, at + 8, max(0, length))
                width = 4 + max(0, length)
            elif length < 0:
                rows[to : to + width] = 0
            elif not _put(rows, to, data, at + 8, code, width, scale):
                return column
            to += width
            at += 8 + max(0, length)
        row += 1
        row_bounds[row] = to
    return _NO_COLUMN


@kernel
def _put(out: Bytes, to: int, data: Bytes, at: int, code: int, width: int, scale: int) -> bool:
    """Write one value as Arrow has it; False if it has no such value."""
    if code == DECIMAL:
        return _put_decimal(out, to, data, at, width, scale)
    for i in range(width):
        out[to + i] = data[at + width - 1 - i]
    if code == DATE:
        days = load_int32(out, to)
        store_int32(out, to, days + _DAYS)
        return abs(days) < 0x7FFFFFFF - _DAYS
    if code == TIME:
        time = load_int64(out, to)
        if time > _LAST_TIME or time == -(1 << 63):
            return False
        store_int64(out, to, time + _MICROSECONDS)
    return True


@kernel
def _put_decimal(out: Bytes, to: int, data: Bytes, at: int, width: int, scale: int) -> bool:
    """Write a numeric, digits to the base of 10,000, as a binary integer of 10^-scale.

    A column's values have no more digits than its scale says, so that none is cut off.
    """
    count, weight = _int16(data, at), _int16(data, at + 2)
    sign = _int16(data, at + 4) & 0xFFFF
    if sign & _SPECIAL:
        return False
    out[to : to + width] = 0
    whole, rest = scale // _DIGITS, scale % _DIGITS
    for place in range(weight, -whole - 1, -1):
        _scale_up(out, to, width, 10_000, _digit(data, at, count, weight - place))
    if rest:
        part = _digit(data, at, count, weight + whole + 1) // 10 ** (_DIGITS - rest)
        _scale_up(out, to, width, 10**rest, part)
    if sign == _NEGATIVE:
        for i in range(width):
            out[to + i] = ~out[to + i]
        _scale_up(out, to, width, 1, 1)
    return True


@kernel
def _digit(data: Bytes, at: int, count: int, nth: int) -> int:
    return _int16(data, at + _NUMERIC_HEAD + 2 * nth) if 0 <= nth < count else 0


@kernel
def _scale_up(out: Bytes, to: int, width: int, factor: int, more: int) -> None:
    """Multiply the little-endian integer by a small factor and add a small number."""
    for at in range(to, to + width, 4):
        more += (load_int32(out, at) & 0xFFFFFFFF) * factor
        store_int32(out, at, more & 0xFFFFFFFF)
        more >>= 32
