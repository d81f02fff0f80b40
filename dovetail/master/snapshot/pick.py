"""Keeping the rows of asked keys out of the pages that were read for them.

    runs of pages in the buffer   3 3 5 8 9 9 9 9   20 21 24 24   …
    asked                           5                     24         ──► rows of 5, 24, 24

The rows of a key are consecutive: it is found by bisection, and they leave by one copy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dovetail.join.columns import Column, JoinKeys
from dovetail.join.entry import MasterRows
from dovetail.join.memory import copy, load_int64
from dovetail.kernels import kernel
from dovetail.master.snapshot import place

if TYPE_CHECKING:
    from dovetail.join.columns import Bytes, Ints
    from dovetail.master.snapshot.files import Buffer
    from dovetail.master.snapshot.fill import Fill, Layout

NO_RUN = -1
"""The run of a key that no page can hold."""
# Columns of what `find` returns, a row for each key: its number of master rows; where in the
# buffer its keys, and of its rows and texts the bytes and the bounds, start; sizes in bytes.
_COUNT, _KEYS, _ROWS, _ROWS_SIZE, _BOUNDS, _TEXTS, _TEXTS_SIZE, _TEXT_BOUNDS = range(8)


def find(layout: Layout, fill: Fill, buffer: Buffer, values: Ints, runs: Ints) -> Ints:
    """Find all rows of each key in its run; a key of no run has none."""
    return _find(buffer.bytes, fill.runs, values, runs, layout.width or 0)


def read_bytes(found: Ints) -> Ints:
    """Bytes that each key's rows take as a `Read`."""
    taken: Ints = found[:, _COUNT] * place.A_ROW + found[:, _ROWS_SIZE] + found[:, _TEXTS_SIZE]
    return taken


def pick(layout: Layout, buffer: Buffer, found: Ints) -> MasterRows:
    """Copy the rows that were found."""
    values, bounds, rows, text_bounds, texts = _pick(buffer.bytes, found, layout.width or 0)
    return MasterRows(JoinKeys(values, Column(texts, text_bounds)), Column(rows, bounds))


@kernel
def _place(data: Bytes, at: int, rows: int, value: int) -> int:
    """How many of the sorted keys that stand there are less than the value."""
    low, high = 0, rows
    while low < high:
        middle = (low + high) // 2
        if load_int64(data, at + 8 * middle) < value:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def _span(data: Bytes, bounds: int, count: int) -> tuple[int, int]:
    """Where in their file values start whose bounds stand there, and their bytes."""
    start = load_int64(data, bounds)
    return start, load_int64(data, bounds + 8 * count) - start


@kernel
def _find(data: Bytes, runs: Ints, values: Ints, run_of: Ints, width: int) -> Ints:
    found = np.zeros((len(values), 8), np.int64)
    for i in range(len(values)):
        if run_of[i] == NO_RUN:
            continue
        run, row = runs[:, run_of[i]], found[i]
        keys, count = run[place.KEYS], run[place.COUNT]
        first = _place(data, keys, count, values[i])
        end = first
        while end < count and load_int64(data, keys + 8 * end) == values[i]:
            end += 1
        row[_COUNT] = end - first
        row[_KEYS] = keys + 8 * first
        row[_BOUNDS] = row[_TEXT_BOUNDS] = place.ABSENT
        if run[place.BOUNDS] == place.ABSENT:
            row[_ROWS] = run[place.ROWS] + width * first
            row[_ROWS_SIZE] = width * (end - first)
        else:
            row[_BOUNDS] = run[place.BOUNDS] + 8 * first
            start, row[_ROWS_SIZE] = _span(data, row[_BOUNDS], end - first)
            row[_ROWS] = run[place.ROWS] + start - run[place.ROW_START]
        if run[place.TEXTS] != place.ABSENT:
            row[_TEXT_BOUNDS] = run[place.TEXT_BOUNDS] + 8 * first
            start, row[_TEXTS_SIZE] = _span(data, row[_TEXT_BOUNDS], end - first)
            row[_TEXTS] = run[place.TEXTS] + start - run[place.TEXT_START]
    return found


@kernel
def _put(
    data: Bytes, out: Bytes, bounds: Ints, at: int, count: int, source: tuple[int, int, int, int]
) -> None:
    """Append `count` values behind the first `at`: (their bytes, size, bounds, width)."""
    start, size, bounds_at, width = source
    copy(out, bounds[at], data, start, size)
    for nth in range(count):
        step = width
        if bounds_at != place.ABSENT:
            entry = bounds_at + 8 * nth
            step = load_int64(data, entry + 8) - load_int64(data, entry)
        bounds[at + nth + 1] = bounds[at + nth] + step


@kernel
def _pick(data: Bytes, found: Ints, width: int) -> tuple[Ints, Ints, Bytes, Ints, Bytes]:
    count = found[:, _COUNT].sum()
    values = np.empty(count, np.int64)
    bounds = np.zeros(count + 1, np.int64)
    text_bounds = np.zeros(count + 1, np.int64)
    rows = np.empty(found[:, _ROWS_SIZE].sum(), np.uint8)
    texts = np.empty(found[:, _TEXTS_SIZE].sum(), np.uint8)
    at = 0
    for i in range(len(found)):
        key = found[i]
        many = key[_COUNT]
        for nth in range(many):
            values[at + nth] = load_int64(data, key[_KEYS] + 8 * nth)
        _put(data, rows, bounds, at, many, (key[_ROWS], key[_ROWS_SIZE], key[_BOUNDS], width))
        text = (key[_TEXTS], key[_TEXTS_SIZE], key[_TEXT_BOUNDS], 0)
        _put(data, texts, text_bounds, at, many, text)
        at += many
    return values, bounds, rows, text_bounds, texts
