"""Joining as concatenation: an event's own bytes continued by a master row's.

Two passes over a batch: the first counts outputs and their bytes, the second fills one
buffer of exactly that size. Nothing is parsed and nothing is encoded.
"""
# Comparisons are spelt out to leave Numba no tuple to compile.
# ruff: noqa: PLR1714, SIM109

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dovetail.join.columns import Column
from dovetail.join.entry import HEADER, KEY_LENGTH, ROWS
from dovetail.join.kinds import JoinKind
from dovetail.join.memory import copy, load_int32, prefetch
from dovetail.kernels import kernel

if TYPE_CHECKING:
    from dovetail.join.columns import Bytes, Ints

_INNER, _LEFT, _SEMI, _ANTI = (kind.code for kind in JoinKind)
_AHEAD = 8


@dataclass(frozen=True, slots=True)
class Spliced:
    outputs: Column
    events: Ints
    """For each output the position of its event in the batch."""
    unmatched: Ints
    """Positions of the events without an output."""


def null_row(names: list[bytes]) -> Bytes:
    """Return the row that a left join continues an event with where it has none.

    The names are JSON strings, quotes included.
    """
    members = b"".join(b",%s:null" % name for name in names)
    return np.frombuffer(bytearray(members + b"}"), np.uint8)


def splice(kind: JoinKind, events: Column, entries: Bytes, starts: Ints, no_row: Bytes) -> Spliced:
    """Join event i with the entry that starts at `entries[starts[i]]`.

    An event is a JSON object with at least one member, its join key, and ends with its
    brace: that is what a row continues.
    """
    measured = _measure(kind.code, events.bounds, entries, starts, len(no_row))
    data, bounds, positions, unmatched = _fill(
        kind.code, events.data, events.bounds, entries, starts, no_row, measured
    )
    return Spliced(Column(data, bounds), positions, unmatched)


@kernel
def rowless(entries: Bytes, starts: Ints) -> int:
    """How many of these entries have no row."""
    count = 0
    for start in starts:
        count += load_int32(entries, start + ROWS) == 0
    return count


@kernel
def _outputs(kind: int, rows: int) -> int:
    """Return how many outputs an event with so many rows has: the table in kinds.py."""
    if kind == _INNER:
        return rows
    if kind == _LEFT:
        return max(rows, 1)
    return int((rows > 0) == (kind == _SEMI))


@kernel
def _measure(
    kind: int, bounds: Ints, entries: Bytes, starts: Ints, no_row: int
) -> tuple[int, int, int]:
    """Return the number of outputs, their bytes, and the number of events without one."""
    outputs = 0
    size = 0
    unmatched = 0
    for i in range(len(starts)):
        if i + _AHEAD < len(starts):
            prefetch(entries, starts[i + _AHEAD])
        entry = starts[i]
        rows = load_int32(entries, entry + ROWS)
        event = bounds[i + 1] - bounds[i]
        count = _outputs(kind, rows)
        outputs += count
        if count == 0:
            unmatched += 1
        elif kind == _SEMI or kind == _ANTI:
            size += event
        elif rows == 0:
            size += event - 1 + no_row
        else:
            size += rows * (event - 1) + load_int32(entries, entry + HEADER + 4 * (rows - 1))
    return outputs, size, unmatched


@kernel
def _fill(
    kind: int,
    data: Bytes,
    bounds: Ints,
    entries: Bytes,
    starts: Ints,
    no_row: Bytes,
    measured: tuple[int, int, int],
) -> tuple[Bytes, Ints, Ints, Ints]:
    outputs, size, unmatched = measured
    out = np.empty(size, np.uint8)
    out_bounds = np.zeros(outputs + 1, np.int64)
    positions = np.empty(outputs, np.int64)
    without = np.empty(unmatched, np.int64)
    at = 0
    output = 0
    missing = 0
    for i in range(len(starts)):
        entry = starts[i]
        event = bounds[i]
        length = bounds[i + 1] - event
        rows = load_int32(entries, entry + ROWS)
        count = _outputs(kind, rows)
        if count == 0:
            without[missing] = i
            missing += 1
            continue
        # What an output continues its event with: the next row, the row of NULLs, or nothing.
        row = entry + HEADER + 4 * rows + load_int32(entries, entry + KEY_LENGTH)
        row_start = 0
        for nth in range(count):
            if kind == _SEMI or kind == _ANTI:
                copy(out, at, data, event, length)
                at += length
            elif rows == 0:
                copy(out, at, data, event, length - 1)
                copy(out, at + length - 1, no_row, 0, len(no_row))
                at += length - 1 + len(no_row)
            else:
                row_end = load_int32(entries, entry + HEADER + 4 * nth)
                copy(out, at, data, event, length - 1)
                copy(out, at + length - 1, entries, row + row_start, row_end - row_start)
                at += length - 1 + row_end - row_start
                row_start = row_end
            positions[output] = i
            output += 1
            out_bounds[output] = at
    return out, out_bounds, positions, without
