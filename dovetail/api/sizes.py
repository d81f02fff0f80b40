"""How large Arrow's rows are when they are encoded, before they are: to cut them by bytes.

`nbytes` says what Arrow holds, and that is little where many rows have one value of a dictionary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from dovetail.join.columns import Ints

ROWS_AT_ONCE = 1 << 16
"""Rows that are measured, and read or encoded, together at most."""
_BOUNDS = {
    pa.string(): np.int32,
    pa.binary(): np.int32,
    pa.large_string(): np.int64,
    pa.large_binary(): np.int64,
}
"""How the bounds of values are written that differ in size."""
_VIEWS = (pa.string_view(), pa.binary_view())
_INTS_A_VIEW = 4


def row_sizes(rows: pa.RecordBatch | pa.Table) -> Ints:
    """What each row takes, about: dictionaries and views count as their values."""
    sizes = np.zeros(rows.num_rows, np.int64)
    for column in rows.columns:
        chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
        for chunk, start in zip(chunks, _starts(chunks), strict=True):
            sizes[start : start + len(chunk)] += _sizes(chunk)
    return sizes


def cuts(sizes: Ints, most: int) -> list[int]:
    """Behind which rows to cut, so that a part takes at most so many bytes, or is one row."""
    total = np.cumsum(sizes)
    ends, end, taken = [], 0, 0
    while end < len(sizes):
        end = max(end + 1, int(np.searchsorted(total, taken + most, side="right")))
        taken = int(total[end - 1])
        ends.append(end)
    return ends


def _starts(chunks: list[pa.Array]) -> list[int]:
    ends = np.cumsum([0, *(len(chunk) for chunk in chunks)])
    return [int(end) for end in ends[:-1]]


def _sizes(column: pa.Array) -> Ints | int:
    if not pa.types.is_dictionary(column.type):
        return _lengths(column, np.arange(len(column)))
    if not len(column.dictionary):
        return 0
    # Only those that rows have: a dictionary may be larger than a batch.
    return _lengths(column.dictionary, np.array(column.indices.fill_null(0), np.int64))


def _lengths(values: pa.Array, at: Ints) -> Ints | int:
    """Bytes of the values at these places; 0 for such as no row is encoded with."""
    kind, places = values.type, at + values.offset
    if pa.types.is_primitive(kind) or pa.types.is_decimal(kind):
        return -(-int(kind.bit_width) // 8)
    known = kind in _BOUNDS or kind in _VIEWS
    buffer = values.buffers()[1] if known else None
    if buffer is None:
        return 0
    lengths: Ints
    if kind in _VIEWS:  # each starts with its length
        lengths = np.frombuffer(buffer, np.int32)[_INTS_A_VIEW * places]
    else:
        bounds = np.frombuffer(buffer, _BOUNDS[kind])
        lengths = bounds[places + 1] - bounds[places]
    return lengths
