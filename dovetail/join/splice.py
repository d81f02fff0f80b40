"""Joining as concatenation: an event's own bytes continued by a master row's.

Two passes over a batch: the first counts outputs and their bytes, the second fills one
buffer of exactly that size. Nothing is parsed and nothing is encoded.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from dovetail.join.columns import Bytes, Column, Ints
from dovetail.join.entry import HEADER, KEY_LENGTH, ROWS
from dovetail.join.kinds import JoinKind
from dovetail.join.memory import copy, load_int32, prefetch

_LEFT, _SEMI, _ANTI = JoinKind.LEFT.code, JoinKind.SEMI.code, JoinKind.ANTI.code
_AHEAD = 8


@dataclass(frozen=True, slots=True)
class Spliced:
    outputs: Column
    events: Ints
    """For each output the position of its event in the batch."""
    unmatched: Ints
    """Positions of the events without an output."""


def null_row(names: list[bytes]) -> Bytes:
    """The row that a left join continues an event with where it has none."""
    members = b",".join(b"%s:null" % name for name in names)
    return np.frombuffer(bytearray(b"," + members + b"}"), np.uint8)


def splice(
    kind: JoinKind, events: Column, entries: Bytes, starts: Ints, no_row: Bytes
) -> Spliced:
    """Join event i with the entry that starts at `entries[starts[i]]`."""
    outputs, size, unmatched = _measure(
        kind.code, events.bounds, entries, starts, len(no_row)
    )
    data, bounds, positions, without = _fill(
        kind.code, events.data, events.bounds, entries, starts, no_row, outputs, size, unmatched
    )
    return Spliced(Column(data, bounds), positions, without)


@njit(cache=True, nogil=True)
def _measure(
    kind: int, bounds: Ints, entries: Bytes, starts: Ints, no_row: int
) -> tuple[int, int, int]:
    outputs = 0
    size = 0
    unmatched = 0
    for i in range(len(starts)):
        if i + _AHEAD < len(starts):
            prefetch(entries, starts[i + _AHEAD])
        entry = starts[i]
        rows = np.int64(load_int32(entries, entry + ROWS))
        event = bounds[i + 1] - bounds[i]
        if kind == _SEMI or kind == _ANTI:  # noqa: PLR1714 - Numba has no tuple membership
            if (rows > 0) == (kind == _SEMI):
                outputs += 1
                size += event
            else:
                unmatched += 1
        elif rows > 0:
            outputs += rows
            size += rows * (event - 1)
            size += np.int64(load_int32(entries, entry + HEADER + 4 * (rows - 1)))
        elif kind == _LEFT:
            outputs += 1
            size += event - 1 + no_row
        else:
            unmatched += 1
    return outputs, size, unmatched


@njit(cache=True, nogil=True)
def _fill(
    kind: int,
    data: Bytes,
    bounds: Ints,
    entries: Bytes,
    starts: Ints,
    no_row: Bytes,
    outputs: int,
    size: int,
    unmatched: int,
) -> tuple[Bytes, Ints, Ints, Ints]:
    out = np.empty(size, np.uint8)
    out_bounds = np.empty(outputs + 1, np.int64)
    out_bounds[0] = 0
    positions = np.empty(outputs, np.int64)
    without = np.empty(unmatched, np.int64)
    at = 0
    output = 0
    missing = 0
    for i in range(len(starts)):
        entry = starts[i]
        rows = np.int64(load_int32(entries, entry + ROWS))
        event = bounds[i]
        length = bounds[i + 1] - event
        if kind == _SEMI or kind == _ANTI:  # noqa: PLR1714
            if (rows > 0) == (kind == _SEMI):
                copy(out, at, data, event, length)
                at += length
                positions[output] = i
                output += 1
                out_bounds[output] = at
            else:
                without[missing] = i
                missing += 1
        elif rows > 0:
            first = entry + HEADER + 4 * rows + np.int64(load_int32(entries, entry + KEY_LENGTH))
            start = 0
            for row in range(rows):
                end = np.int64(load_int32(entries, entry + HEADER + 4 * row))
                copy(out, at, data, event, length - 1)
                copy(out, at + length - 1, entries, first + start, end - start)
                at += length - 1 + end - start
                start = end
                positions[output] = i
                output += 1
                out_bounds[output] = at
        elif kind == _LEFT:
            copy(out, at, data, event, length - 1)
            copy(out, at + length - 1, no_row, 0, len(no_row))
            at += length - 1 + len(no_row)
            positions[output] = i
            output += 1
            out_bounds[output] = at
        else:
            without[missing] = i
            missing += 1
    return out, out_bounds, positions, without
