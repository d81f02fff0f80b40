"""An Arrow stream of one batch, written column by column into the message that carries it.

Arrow's own writer wants the columns ready, and copies them into a stream, which has then to be
copied into its envelope. But of a stream only numbers differ between two batches of the same
columns: how many rows there are, and where in the body each buffer lies. So Arrow writes the
metadata once, for a sample, and the numbers are put in their places:

    schema │ metadata: rows, nodes, buffers, size of the body │ body: the buffers │ end of stream

What comes out is the same, byte for byte, as what Arrow writes.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numba import njit

from dovetail.join.columns import Column, Spans
from dovetail.join.memory import copy, store_int64
from dovetail.stream.arrow_stream import END_OF_STREAM, numbers_of
from dovetail.stream.envelope import before_stream

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dovetail.contracts.batch_pb2 import Batch
    from dovetail.join.columns import Bytes, Ints, SmallInts

    Values = Column | Spans | Bytes | Ints | SmallInts

_PREFIX = 8
"""Of a message: a mark that it follows, and the size of its metadata."""
_ALIGNED = 8


class Template:
    """For columns of whole numbers and of bytes, by name and type; none has nulls."""

    def __init__(self, columns: Sequence[tuple[str, pa.DataType]]) -> None:
        schema = pa.schema(columns)
        values = [pa.array([b"_" if kind == pa.large_binary() else 1], kind) for _, kind in columns]
        sample = bytes(pa.record_batch(values, schema=schema).serialize())
        end = _PREFIX + struct.unpack_from("<i", sample, 4)[0]
        places = numbers_of(memoryview(sample)[_PREFIX:end])
        assert not any(place % _ALIGNED for place in places)
        self._words = np.frombuffer(sample, np.int64, end // _ALIGNED)
        self._numbers = (np.array(places) + _PREFIX) // _ALIGNED
        self._schema = np.frombuffer(bytes(schema.serialize()), np.uint8)

    def message(self, head: Batch, columns: Sequence[Values]) -> Bytes:
        """Write a batch of these columns, each of `head.events` values, in its envelope."""
        nodes: list[int] = []
        buffers: list[int] = []
        body = 0
        for column in columns:
            nodes += (head.events, 0)
            buffers += (body, 0)  # no nulls
            for size in _sizes(column):
                buffers += (body, size)
                body += -(-size // _ALIGNED) * _ALIGNED
        metadata = self._words.copy()
        metadata[self._numbers] = (head.events, *nodes, *buffers, body)
        stream = len(self._schema) + metadata.nbytes + body + len(END_OF_STREAM)
        before = before_stream(head, stream)
        message = np.empty(len(before) + stream, np.uint8)
        at = 0
        for part in (np.frombuffer(before, np.uint8), self._schema, metadata.view(np.uint8)):
            message[at : at + len(part)] = part
            at += len(part)
        for column in columns:
            at = _write(message, at, column)
        message[at:] = np.frombuffer(END_OF_STREAM, np.uint8)
        return message


def _sizes(column: Values) -> tuple[int, ...]:
    if isinstance(column, Column | Spans):
        return (len(column) + 1) * 8, column.size
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
    end = at + column.nbytes
    message[at:end] = column.view(np.uint8)
    return _padded(message, at, end)


def _padded(message: Bytes, first: int, end: int) -> int:
    padded = end + (first - end) % _ALIGNED
    message[end:padded] = 0
    return padded


@njit(cache=True, nogil=True)
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
