"""An Arrow stream of one batch: its columns written into their message, or found there.

Arrow's own writer wants the columns ready, and copies them into a stream, which has then to be
copied into its envelope. But of a stream only numbers differ between two batches of the same
columns: how many rows there are, and where in the body each buffer lies. So Arrow writes the
metadata once, for a sample, and the numbers are put in their places:

    schema │ metadata: rows, nodes, buffers, size of the body │ body: the buffers │ end of stream

What comes out is the same, byte for byte, as what Arrow writes. And a stream that is as it would be
written here needs no Arrow to be read: its numbers say where everything is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dovetail.join.columns import Column, Spans
from dovetail.join.memory import copy, store_int32, store_int64
from dovetail.kernels import kernel
from dovetail.stream.arrow_stream import END_OF_STREAM, PREFIX, numbers_of
from dovetail.stream.envelope import before_stream
from dovetail.stream.rdkafka.parcel import Parcel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dovetail.contracts.batch_pb2 import Batch
    from dovetail.join.columns import Bytes, Ints, SmallInts

_ALIGNED = 8
_INT64 = 8
LONG, SHORT, BINARY = "int64", "int32", "large_binary"
"""What columns are of, as Arrow calls it."""
_WIDTHS = {LONG: 8, SHORT: 4}


@dataclass(frozen=True, slots=True)
class Picked:
    """Numbers that stand at these rows of a column."""

    numbers: Ints | SmallInts
    rows: Ints


if TYPE_CHECKING:
    Values = Column | Spans | Picked | Bytes | Ints | SmallInts


class Template:
    """For columns of whole numbers and of bytes, by name and type; none has nulls."""

    def __init__(self, columns: Sequence[tuple[str, str]], schema: bytes, sample: bytes) -> None:
        """Take what Arrow wrote for these columns: a schema, and the metadata of any batch."""
        places = numbers_of(memoryview(sample)[PREFIX:])
        assert not any(place % _ALIGNED for place in places)
        self._columns = columns
        self._numbers = (np.array(places) + PREFIX) // _ALIGNED
        self._words = np.frombuffer(sample, np.int64).copy()
        self._words[self._numbers] = 0
        self.schema = schema
        """How each of its streams begins."""

    def message(self, head: Batch, columns: Sequence[Values]) -> Parcel:
        """Write a batch of these columns, each of `head.events` values, in its envelope."""
        numbers = _numbers(head.events, [_sizes(column) for column in columns])
        metadata = self._words.copy()
        metadata[self._numbers] = numbers
        stream = len(self.schema) + metadata.nbytes + numbers[-1] + len(END_OF_STREAM)
        before = before_stream(head, stream)
        parcel = Parcel(len(before) + stream)
        message = parcel.data
        at = 0
        for part in (np.frombuffer(before + self.schema, np.uint8), metadata.view(np.uint8)):
            message[at : at + len(part)] = part
            at += len(part)
        for column in columns:
            at = _write(message, at, column)
        message[at:] = np.frombuffer(END_OF_STREAM, np.uint8)
        return parcel

    def read(self, stream: Bytes) -> dict[str, Column | Ints | SmallInts] | None:
        """The columns of a stream that begins with the schema; None if it is not as written here.

        Numbers are copied: they need not be aligned where they stand. Values of bytes stay there,
        and that their bounds rise is left to who reads them.
        """
        first = len(self.schema)
        at = first + self._words.nbytes
        if len(stream) < at:
            return None
        metadata = stream[first:at].copy().view(np.int64)
        numbers = metadata[self._numbers].tolist()
        metadata[self._numbers] = 0
        rows, sizes = numbers[0], self._sizes_in(numbers)
        # Sizes of bytes are all that is taken from the stream; with them it is as written here, or
        # is not: then no place in it lies outside.
        if rows < 0 or min(size for each in sizes for size in each) < 0:
            return None
        if numbers != _numbers(rows, sizes) or not np.array_equal(metadata, self._words):
            return None
        if len(stream) != at + numbers[-1] + len(END_OF_STREAM):
            return None
        found: dict[str, Column | Ints | SmallInts] = {}
        for (name, kind), each in zip(self._columns, sizes, strict=True):
            values = stream[at : at + each[0]].copy()
            at += _aligned(each[0])
            if kind == BINARY:
                found[name] = Column(stream[at : at + each[1]], values.view(np.int64))
                at += _aligned(each[1])
            else:
                found[name] = values.view(np.int64) if kind == LONG else values.view(np.int32)
        return found

    def _sizes_in(self, numbers: list[int]) -> list[tuple[int, ...]]:
        """Of each column's buffers, for as many rows and bytes as these numbers say."""
        rows = numbers[0]
        sizes: list[tuple[int, ...]] = []
        at = 1 + 2 * len(self._columns)  # behind the nodes
        for _, kind in self._columns:
            if kind == BINARY:
                sizes.append(((rows + 1) * 8, numbers[at + 5]))
            else:
                sizes.append((rows * _WIDTHS[kind],))
            at += 2 * (1 + len(sizes[-1]))
        return sizes


def _numbers(rows: int, sizes: Sequence[tuple[int, ...]]) -> list[int]:
    """All numbers of the metadata, for columns whose buffers have these sizes."""
    buffers: list[int] = []
    body = 0
    for column in sizes:
        buffers += (body, 0)  # no nulls
        for size in column:
            buffers += (body, size)
            body += _aligned(size)
    return [rows, *(rows, 0) * len(sizes), *buffers, body]


def _aligned(size: int) -> int:
    return -(-size // _ALIGNED) * _ALIGNED


def _sizes(column: Values) -> tuple[int, ...]:
    if isinstance(column, Column | Spans):
        return (len(column) + 1) * 8, column.size
    if isinstance(column, Picked):
        return (len(column.rows) * column.numbers.itemsize,)
    return (column.nbytes,)


def _write(message: Bytes, at: int, column: Values) -> int:
    """Write a column's buffers, each with zeros to the next multiple; return where they end."""
    if isinstance(column, Spans):
        bounds_end = at + (len(column) + 1) * 8
        end = _gather(message, at, column.data, column.starts, column.ends)
        return _padded(message, bounds_end, end)
    if isinstance(column, Column):
        first, last = column.bounds[0], column.bounds[-1]
        at = _write(message, at, column.bounds - first if first else column.bounds)
        return _write(message, at, column.data[first:last])
    if isinstance(column, Picked):
        return _padded(message, at, _pick(message, at, column.numbers, column.rows))
    end = at + column.nbytes
    message[at:end] = column.view(np.uint8)
    return _padded(message, at, end)


def _padded(message: Bytes, first: int, end: int) -> int:
    padded = end + (first - end) % _ALIGNED
    message[end:padded] = 0
    return padded


@kernel
def _gather(message: Bytes, at: int, data: Bytes, starts: Ints, ends: Ints) -> int:
    """Write bounds, and behind them the values; return where these end."""
    values = at + 8 * (len(starts) + 1)
    bound = 0
    store_int64(message, at, 0)
    for i in range(len(starts)):
        size = ends[i] - starts[i]
        copy(message, values + bound, data, starts[i], size)
        bound += size
        store_int64(message, at + 8 * (i + 1), bound)
    return values + bound


@kernel
def _pick(message: Bytes, at: int, numbers: Ints | SmallInts, rows: Ints) -> int:
    """Write the numbers that stand at these rows; return where they end."""
    size = numbers.itemsize
    for i in range(len(rows)):
        if size == _INT64:
            store_int64(message, at + size * i, numbers[rows[i]])
        else:
            store_int32(message, at + size * i, numbers[rows[i]])
    return at + size * len(rows)
