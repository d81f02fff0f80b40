"""Which bytes of which file a run of pages is, and where in memory they go: the arithmetic.

As kernels, because a read of one page costs less than a dozen NumPy calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dovetail.join.exchange import NOTES_A_ROW
from dovetail.kernels import kernel

if TYPE_CHECKING:
    from dovetail.join.columns import Flags, Ints

BLOCK = 4096
"""Direct I/O reads whole blocks, from a multiple of this to another."""
A_ROW = 8 + 8 + 8 + NOTES_A_ROW
"""Bytes that a row takes beside its own and its text: key, two bounds, the join's notes."""

FILES = ("keys", "rows", "bounds", "texts", "text_bounds")
KEYS, ROWS, BOUNDS, TEXTS, TEXT_BOUNDS = range(5)
COUNT, ROW_START, ROWS_SIZE, TEXT_START, TEXTS_SIZE = range(5, 10)
"""A run's columns: where in the buffer each file's part is (or ABSENT), its number of rows, and
in the files of rows and of texts its first byte and how many there are."""
ABSENT = -1


class Shape(NamedTuple):
    """What the kernels know of a snapshot."""

    first_keys: Ints
    continues: Flags
    row_starts: Ints
    text_starts: Ints
    rows: int
    rows_a_page: int
    has_bounds: bool
    is_text: bool


@kernel
def holding(shape: Shape, values: Ints) -> tuple[Ints, Ints]:
    """The pages first … end - 1 that hold all rows of each key, or would hold its only one.

    No page, if it is less than all keys of R.
    """
    firsts = np.empty(len(values), np.int64)
    ends = np.empty(len(values), np.int64)
    for i in range(len(values)):
        first = np.searchsorted(shape.first_keys, values[i], side="left")
        end = np.searchsorted(shape.first_keys, values[i], side="right")
        if end > first:
            # A key that a page starts with is on the page before only if it goes on from there.
            firsts[i] = first - shape.continues[first]
        else:
            firsts[i] = max(first - 1, 0)
        ends[i] = end
    return firsts, ends


@kernel
def _range(shape: Shape, file: int, first: int, end: int) -> tuple[int, int]:
    """The bytes low … high - 1 of a file that belong to pages first … end - 1."""
    if file == ROWS:
        return shape.row_starts[first], shape.row_starts[end]
    if file == TEXTS:
        return shape.text_starts[first], shape.text_starts[end]
    low = 8 * min(first * shape.rows_a_page, shape.rows)
    high = 8 * min(end * shape.rows_a_page, shape.rows)
    return low, high if file == KEYS else high + 8


@kernel
def _has(shape: Shape, file: int) -> bool:
    if file == BOUNDS:
        return shape.has_bounds
    return shape.is_text or file < BOUNDS


@kernel
def _blocks(low: int, high: int) -> tuple[int, int]:
    """Where the whole blocks around a range start, and their bytes."""
    start = low // BLOCK * BLOCK
    return start, -(-high // BLOCK) * BLOCK - start if high > low else 0


@kernel
def read_bytes(shape: Shape, first: int, end: int) -> int:
    """Bytes that pages first … end - 1 take as a `Read`."""
    low, high = _range(shape, KEYS, first, end)
    size = (high - low) // 8 * A_ROW + 16 + 8 * (end - first)
    for file in (ROWS, TEXTS):
        low, high = _range(shape, file, first, end)
        size += high - low
    return size


@kernel
def taken(shape: Shape, first: int, end: int) -> int:
    """Bytes that they take in memory: as a `Read`, and the rest of the blocks around it."""
    size = read_bytes(shape, first, end)
    for file in range(len(FILES)):
        if _has(shape, file):
            low, high = _range(shape, file, first, end)
            size += _blocks(low, high)[1] - (high - low)
    return size


@kernel
def taken_each(shape: Shape, firsts: Ints, ends: Ints) -> Ints:
    sizes = np.empty(len(firsts), np.int64)
    for i in range(len(firsts)):
        sizes[i] = taken(shape, firsts[i], ends[i])
    return sizes


@kernel
def largest_page(shape: Shape) -> tuple[int, int]:
    """The most bytes that one page takes: as a `Read`, and in memory."""
    read, held = 0, 0
    for page in range(len(shape.first_keys)):
        read = max(read, read_bytes(shape, page, page + 1))
        held = max(held, taken(shape, page, page + 1))
    return read, held


@kernel
def end_within(shape: Shape, first: int, count: int, room: int) -> int:
    """Behind which of `count` pages `room` bytes are full, or R ends; one page at least."""
    low, high = first + 1, min(first + count, len(shape.first_keys))
    while low < high:
        middle = (low + high + 1) // 2
        if taken(shape, first, middle) <= room:
            low = middle
        else:
            high = middle - 1
    return low


@kernel
def lay_out(shape: Shape, firsts: Ints, ends: Ints) -> tuple[Ints, Ints, int]:
    """Give runs of pages, first … end - 1 each, places in a buffer.

    Return a column for each run, a row (file, offset, place, size) for each piece to read, and
    the bytes of the buffer.
    """
    runs = np.zeros((10, len(firsts)), np.int64)
    pieces = np.empty((len(FILES) * len(firsts), 4), np.int64)
    at = count = 0
    for file in range(len(FILES)):
        for run in range(len(firsts)):
            runs[file, run] = ABSENT
            if not _has(shape, file):
                continue
            low, high = _range(shape, file, firsts[run], ends[run])
            start, size = _blocks(low, high)
            runs[file, run] = at + low - start
            if size:
                pieces[count, 0], pieces[count, 1] = file, start
                pieces[count, 2], pieces[count, 3] = at, size
                count += 1
            at += size
    for run in range(len(firsts)):
        low, high = _range(shape, KEYS, firsts[run], ends[run])
        runs[COUNT, run] = (high - low) // 8
        low, high = _range(shape, ROWS, firsts[run], ends[run])
        runs[ROW_START, run], runs[ROWS_SIZE, run] = low, high - low
        low, high = _range(shape, TEXTS, firsts[run], ends[run])
        runs[TEXT_START, run], runs[TEXTS_SIZE, run] = low, high - low
    return runs, pieces[:count], at
