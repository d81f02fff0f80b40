"""Arrow batches as rows of bytes and back, so that the join can hold and splice them.

A row is its columns one after the other: a byte that says whether there is a value, then the
value: fixed width as it lies in Arrow, or a length of four bytes and the bytes themselves.
The join continues an event with a master row in place of the event's last byte, and that row
starts with a comma (splice.py): an event therefore ends with a byte to give away, and a master
row starts with one.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from dovetail.errors import ConfigError
from dovetail.join.columns import Column
from dovetail.join.memory import copy, load_int32, store_int32
from dovetail.join.splice import SPARE
from dovetail.kernels import kernel

if TYPE_CHECKING:
    from dovetail.join.columns import Bytes, Ints


class RowCodec:
    """Encodes and decodes rows of one schema."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = pa.schema([(field.name, _plain(field)) for field in schema])
        self._widths = [_width(field.type) for field in self.schema]

    def encode(self, batch: pa.RecordBatch, *, before: int = 0, after: int = 0) -> Column:
        """Encode a batch, with so many spare bytes before and after each row."""
        columns = [
            _parts(column, field.type, width)
            for column, field, width in zip(batch.columns, self.schema, self._widths, strict=True)
        ]
        sizes = np.full(batch.num_rows, before + after + len(columns), np.int64)
        for (_, _, bounds), width in zip(columns, self._widths, strict=True):
            sizes += width or 4 + np.diff(bounds)
        rows = np.zeros(batch.num_rows + 1, np.int64)
        np.cumsum(sizes, out=rows[1:])
        out = np.zeros(rows[-1], np.uint8)
        cursors = rows[:-1] + before
        for (valid, data, bounds), width in zip(columns, self._widths, strict=True):
            _put(out, cursors, valid, data, bounds, width == 0)
        return Column(out, rows)

    def decode(self, data: Bytes, cursors: Ints) -> list[pa.Array]:
        """Decode a row at each cursor, and move the cursors behind it."""
        arrays = []
        for field, width in zip(self.schema, self._widths, strict=True):
            valid, values, bounds = _get(data, cursors, width)
            arrays.append(_array(field.type, valid, values, bounds, width))
        return arrays

    @cached_property
    def null_row(self) -> Bytes:
        """A row of nulls as a left join continues an event with it."""
        row = pa.record_batch(
            [pa.nulls(1, field.type) for field in self.schema], schema=self.schema
        )
        encoded = self.encode(row, before=SPARE)
        return encoded.data


def _plain(field: pa.Field) -> pa.DataType:
    """The type in which a column is held: dictionaries and views are resolved."""
    kind = field.type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    elif pa.types.is_string_view(kind):  # within a dictionary Arrow cannot resolve them
        return pa.large_string()
    elif pa.types.is_binary_view(kind):
        return pa.large_binary()
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return pa.large_string()
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return pa.large_binary()
    if pa.types.is_boolean(kind) or _width(kind):
        return kind
    raise ConfigError(
        f"column {field.name!r} is of type {field.type}, which cannot be joined: leave it out, or "
        f"cast it to a number, a time, text or bytes"
    )


def _width(kind: pa.DataType) -> int:
    """Bytes of a value; 0 if values differ in size."""
    if pa.types.is_boolean(kind):
        return 1
    if pa.types.is_primitive(kind) or pa.types.is_decimal(kind):
        return int(kind.bit_width // 8)
    return 0


def _parts(column: pa.Array, kind: pa.DataType, width: int) -> tuple[Bytes, Bytes, Ints]:
    """The validity, the bytes and the bounds of a column's values."""
    column = column.cast(kind)
    valid = (
        np.array(column.is_valid()).astype(np.uint8)
        if column.null_count
        else np.ones(len(column), np.uint8)
    )
    if pa.types.is_boolean(kind):
        values = np.array(column.fill_null(False)).astype(np.uint8)
        return valid, values, np.arange(len(column) + 1, dtype=np.int64)
    buffer = column.buffers()[-1]
    data = np.frombuffer(buffer, np.uint8) if buffer else np.empty(0, np.uint8)
    if width:
        bounds = (np.arange(len(column) + 1, dtype=np.int64) + column.offset) * width
        if not len(data):
            data = np.zeros(bounds[-1], np.uint8)
    else:
        offsets = np.frombuffer(column.buffers()[1], np.int64)
        bounds = offsets[column.offset : column.offset + len(column) + 1].copy()
    # Arrow's buffers are read-only, for which Numba would compile every kernel once more.
    return valid, data[bounds[0] : bounds[-1]].copy(), bounds - bounds[0]


def _array(kind: pa.DataType, valid: Bytes, values: Bytes, bounds: Ints, width: int) -> pa.Array:
    count = len(valid)
    nulls = count - np.count_nonzero(valid)
    if pa.types.is_boolean(kind):
        return pa.array(values.astype(bool), mask=~valid.astype(bool))
    mask = pa.array(valid.astype(bool)).buffers()[1] if nulls else None
    buffers: list[Any] = [mask, pa.py_buffer(values)]
    if not width:
        buffers.insert(1, pa.py_buffer(bounds))
    return pa.Array.from_buffers(kind, count, buffers, nulls)


@kernel
def _put(out: Bytes, cursors: Ints, valid: Bytes, data: Bytes, bounds: Ints, varies: bool) -> None:
    for i in range(len(cursors)):
        at = cursors[i]
        out[at] = valid[i]
        at += 1
        size = bounds[i + 1] - bounds[i]
        if varies:
            store_int32(out, at, size)
            at += 4
        copy(out, at, data, bounds[i], size)
        cursors[i] = at + size


@kernel
def _get(data: Bytes, cursors: Ints, width: int) -> tuple[Bytes, Bytes, Ints]:
    valid = np.empty(len(cursors), np.uint8)
    bounds = np.zeros(len(cursors) + 1, np.int64)
    for i in range(len(cursors)):
        valid[i] = data[cursors[i]]
        size = width or load_int32(data, cursors[i] + 1)
        bounds[i + 1] = bounds[i] + size
    values = np.empty(bounds[-1], np.uint8)
    head = 1 if width else 5
    for i in range(len(cursors)):
        size = bounds[i + 1] - bounds[i]
        copy(values, bounds[i], data, cursors[i] + head, size)
        cursors[i] += head + size
    return valid, values, bounds
