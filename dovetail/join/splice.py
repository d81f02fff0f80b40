"""Joining as concatenation: an event's own bytes continued by a master row's.

    events × rows ──► slice ──► slice ──► …        each of at most so many bytes

Two passes over a slice: the first counts outputs and their bytes up to the bound, the second fills
one buffer of exactly that size. Nothing is parsed and nothing is encoded.

n events of a key with m rows are n · m outputs, which have no bound but these slices: they may part
an event's rows. Whoever makes outputs takes them slice by slice, and forgets one before the next.
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
    from collections.abc import Iterator

    from dovetail.join.columns import Bytes, Ints

_INNER, _LEFT, _SEMI, _ANTI = (kind.code for kind in JoinKind)
_AHEAD = 8
_NOTES = 64
"""Bytes that an output, or an event without one, takes beside its own: bounds, headers …"""
_SHARE, _LEAST_SLICE, _MOST_SLICE = 16, 1 << 20, 4 << 20
_WHOLE = 1 << 62
_NONE = np.zeros(0, np.int64)
SPARE = 1
"""Bytes that an event ends with, and a master row starts with, for the splice."""


def slice_bytes(memory: int) -> int:
    """How large a slice of the answers may be, for a join that has so much memory."""
    return min(max(memory // _SHARE, _LEAST_SLICE), _MOST_SLICE)


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
    """Join event i with the entry that starts at `entries[starts[i]]`, all of them at once.

    An event is a JSON object with at least one member, its join key, and ends with its
    brace: that is what a row continues.
    """
    measured = _measure(kind.code, events.bounds, entries, starts, len(no_row), 0, 0, _WHOLE)
    return _filled(kind, events, entries, starts, no_row, 0, 0, measured)


def slices(
    kind: JoinKind, events: Column, entries: Bytes, starts: Ints, no_row: Bytes, most: int
) -> Iterator[Spliced]:
    """Join as `splice` does, in slices of at most `most` bytes, or of one output."""
    at = row = 0
    while at < len(starts):
        measured = _measure(kind.code, events.bounds, entries, starts, len(no_row), at, row, most)
        yield _filled(kind, events, entries, starts, no_row, at, row, measured)
        at, row = measured[:2]


def oversized(
    kind: JoinKind, events: Column, entries: Bytes, starts: Ints, no_row: Bytes, most: int
) -> tuple[Ints, Ints]:
    """The positions of events that have an output of more than `most` bytes, and its bytes."""
    in_all = int(events.bounds[-1] - events.bounds[0]) + len(entries) + len(no_row)
    if in_all <= most:
        return _NONE, _NONE
    sizes = _largest(kind.code, events.bounds, entries, starts, len(no_row), most)
    positions = np.flatnonzero(sizes > most)
    return positions, sizes[positions]


def _filled(
    kind: JoinKind,
    events: Column,
    entries: Bytes,
    starts: Ints,
    no_row: Bytes,
    at: int,
    row: int,
    measured: tuple[int, int, int, int, int],
) -> Spliced:
    data, bounds, positions, unmatched = _fill(
        kind.code, events.data, events.bounds, entries, starts, no_row, at, row, measured
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
def _largest(kind: int, bounds: Ints, entries: Bytes, starts: Ints, no_row: int, most: int) -> Ints:
    """Of each event its largest output's bytes, or what its outputs cannot exceed and fits."""
    sizes = np.zeros(len(starts), np.int64)
    for i in range(len(starts)):
        if i + _AHEAD < len(starts):
            prefetch(entries, starts[i + _AHEAD])
        entry = starts[i]
        rows = load_int32(entries, entry + ROWS)
        event = bounds[i + 1] - bounds[i]
        if _outputs(kind, rows) == 0:
            continue
        if kind == _SEMI or kind == _ANTI:
            sizes[i] = event
        elif rows == 0:
            sizes[i] = event - 1 + no_row
        else:
            largest = load_int32(entries, entry + HEADER + 4 * (rows - 1))
            if event - 1 + largest > most:
                largest = 0
                before = 0
                for nth in range(rows):
                    after = load_int32(entries, entry + HEADER + 4 * nth)
                    largest = max(largest, after - before)
                    before = after
            sizes[i] = event - 1 + largest
    return sizes


@kernel
def _fitting(entries: Bytes, entry: int, row: int, rows: int, each: int, room: int) -> int:
    """Which row, from this one on, finds no room; `each` of them takes so much beside its own."""
    end = row
    taken = 0
    before = load_int32(entries, entry + HEADER + 4 * (row - 1)) if row else 0
    while end < rows:
        after = load_int32(entries, entry + HEADER + 4 * end)
        taken += each + after - before
        if taken > room:
            break
        before = after
        end += 1
    return end


@kernel
def _measure(
    kind: int,
    bounds: Ints,
    entries: Bytes,
    starts: Ints,
    no_row: int,
    at: int,
    row: int,
    most: int,
) -> tuple[int, int, int, int, int]:
    """Return which event and which of its rows come behind the slice that starts at this one.

    And the number of its outputs, their bytes, and the number of its events without one.
    """
    first, first_row = at, row
    outputs = 0
    size = 0
    unmatched = 0
    room = most
    while at < len(starts):
        if at + _AHEAD < len(starts):
            prefetch(entries, starts[at + _AHEAD])
        entry = starts[at]
        rows = load_int32(entries, entry + ROWS)
        event = bounds[at + 1] - bounds[at]
        count = _outputs(kind, rows)
        continued = rows > 0 and (kind == _INNER or kind == _LEFT)
        taken = 0
        if continued:
            before = load_int32(entries, entry + HEADER + 4 * (row - 1)) if row else 0
            count -= row
            taken = count * (event - 1) + load_int32(entries, entry + HEADER + 4 * (rows - 1))
            taken -= before
        elif count:
            taken = event if rows or kind != _LEFT else event - 1 + no_row
        alone = at == first and row == first_row
        if room < taken + max(count, 1) * _NOTES and not (alone and count <= 1):
            if continued:
                end = _fitting(entries, entry, row, rows, event - 1 + _NOTES, room)
                end = max(end, row + 1) if alone else end
                if end > row:
                    before = load_int32(entries, entry + HEADER + 4 * (row - 1)) if row else 0
                    after = load_int32(entries, entry + HEADER + 4 * (end - 1))
                    outputs += end - row
                    size += (end - row) * (event - 1) + after - before
                    row = end
            if row == rows and continued:
                at += 1
                row = 0
            break
        outputs += count
        size += taken
        unmatched += count == 0
        room -= taken + max(count, 1) * _NOTES
        at += 1
        row = 0
    return at, row, outputs, size, unmatched


@kernel
def _fill(
    kind: int,
    data: Bytes,
    bounds: Ints,
    entries: Bytes,
    starts: Ints,
    no_row: Bytes,
    at: int,
    row: int,
    measured: tuple[int, int, int, int, int],
) -> tuple[Bytes, Ints, Ints, Ints]:
    _, _, outputs, size, unmatched = measured
    out = np.empty(size, np.uint8)
    out_bounds = np.zeros(outputs + 1, np.int64)
    positions = np.empty(outputs, np.int64)
    without = np.empty(unmatched, np.int64)
    to = 0
    output = 0
    missing = 0
    i = at
    nth = row
    while output < outputs or missing < unmatched:
        entry = starts[i]
        event = bounds[i]
        length = bounds[i + 1] - event
        rows = load_int32(entries, entry + ROWS)
        count = _outputs(kind, rows)
        if count == 0:
            without[missing] = i
            missing += 1
        # What an output continues its event with: the next row, the row of NULLs, or nothing.
        first = entry + HEADER + 4 * rows + load_int32(entries, entry + KEY_LENGTH)
        row_start = load_int32(entries, entry + HEADER + 4 * (nth - 1)) if nth else 0
        while nth < count and output < outputs:
            if kind == _SEMI or kind == _ANTI:
                copy(out, to, data, event, length)
                to += length
            elif rows == 0:
                copy(out, to, data, event, length - 1)
                copy(out, to + length - 1, no_row, 0, len(no_row))
                to += length - 1 + len(no_row)
            else:
                row_end = load_int32(entries, entry + HEADER + 4 * nth)
                copy(out, to, data, event, length - 1)
                copy(out, to + length - 1, entries, first + row_start, row_end - row_start)
                to += length - 1 + row_end - row_start
                row_start = row_end
            positions[output] = i
            output += 1
            out_bounds[output] = to
            nth += 1
        i += 1
        nth = 0
    return out, out_bounds, positions, without
