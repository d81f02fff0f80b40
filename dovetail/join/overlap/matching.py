"""One read of R against all pending intervals, slice by slice and without a list of pairs.

1. `count`: how many rows, of how many bytes, each event meets, until that is enough for a slice;
   each row notes where its run of candidates is, so that a row nobody wants is not looked at again.
2. `lay_out`: who is answered by this slice, and where each one's entry stands.
3. `fill`: the rows into the entries.

The next slice goes on with the row and the candidate at which the last one stopped, so an event may
be answered in several slices of a read, as in several reads.

A list of pairs would have no bound; this takes what the window and the disk buffer have set
aside already (16 bytes a row), and a slice of answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dovetail.join.columns import Column
from dovetail.join.entry import HEADER, KEY, ROWS, SIZE
from dovetail.join.memory import copy, load_int32, store_int32, store_int64
from dovetail.join.overlap.index import (
    bucket_bits,
    first_of,
    look_ahead,
    mixed,
    next_reaching,
    refresh,
    run_end,
)
from dovetail.join.overlap.window import COUNT, GONE
from dovetail.join.pool import inner
from dovetail.kernels import kernel

if TYPE_CHECKING:
    from dovetail.join.columns import Bytes, Ints
    from dovetail.join.overlap.exchange import IntervalRead
    from dovetail.join.overlap.window import Window

_AHEAD = 16
_COMMA = 44
_NOTES = HEADER + 40
"""Bytes that an answered event takes beside its rows and its own."""


class Rows(NamedTuple):
    """A read, as the kernels take it, and the notes on each row: its run of candidates."""

    values: Ints
    texts: Bytes
    text_bounds: Ints
    data: Bytes
    bounds: Ints
    ends: Ints
    lows: Ints
    highs: Ints
    firsts: Ints
    run_ends: Ints


class Step(NamedTuple):
    """Where in R the read stands, and who is answered how."""

    seen: int
    """Pages read before this one, ever."""
    pages: int
    """N_R."""
    covers: int
    at_match: bool
    """Whether the first row settles an event (semi, anti): it is then answered with that one."""


class Place(NamedTuple):
    """Which row and which of its candidates comes next; -1 for the row's first one."""

    row: int
    candidate: int


START = Place(0, -1)


class Answered(NamedTuple):
    events: Column
    ids: Ints
    entries: Bytes
    starts: Ints


def meet(
    window: Window, rows: Rows, step: Step, place: Place, most: int
) -> tuple[Answered, Place | None]:
    """Answer who meets rows from this place on, in at most so many bytes; return the next place.

    With the last slice also who has met none in its whole cycle; there is no place then.
    """
    refresh(window)
    end = Place(*_count(window, rows, step, place, most))
    last = end.row == len(rows.values)
    slots, starts, begins, size = _lay_out(window, step, last)
    entries = np.zeros(size, np.uint8)
    _begin(entries, starts)
    _fill(window, rows, step, entries, place, end)
    events = Column.of_spans(window.bytes, begins, window.ends[slots])
    answered = Answered(events, window.ids[slots], entries, starts)
    return answered, None if last else end


def nobody_met(count: int) -> tuple[Bytes, Ints]:
    """One entry without rows, and where each of so many events finds it."""
    entry = np.zeros(HEADER, np.uint8)
    entry[SIZE] = HEADER
    return entry, np.zeros(count, np.int64)


def rows_of(read: IntervalRead) -> Rows:
    master = read.read.rows
    count = len(master)
    return Rows(
        master.keys.values,
        master.keys.texts.data,
        master.keys.texts.bounds,
        master.rows.data,
        master.rows.bounds,
        read.read.ends,
        read.intervals.lows,
        read.intervals.highs,
        np.empty(count, np.int64),
        np.empty(count, np.int64),
    )


@inner
def _page_of(rows: Rows, row: int, page: int) -> int:
    """The page that a row is of, from this one on."""
    while rows.ends[page] <= row:
        page += 1
    return page


@kernel
def _count(window: Window, rows: Rows, step: Step, place: Place, most: int) -> tuple[int, int]:
    """Return where there is no more room in the slice that starts at this place."""
    for slot in range(window.state[COUNT]):
        window.rows[slot] = 0
        window.places[slot] = 0
    bits = bucket_bits(window)
    last = len(rows.values) - 1
    row, at = place
    page = 0
    size = 0
    while row <= last:
        page = _page_of(rows, row, page)
        oldest = step.seen + page - step.pages
        if at < 0:
            far, near = min(row + _AHEAD, last), min(row + _AHEAD // 2, last)
            look_ahead(window, bits, _mixed(window, rows, far), _mixed(window, rows, near))
            _note_run(window, rows, row, bits)
            at = _next_met(window, rows, row, rows.firsts[row], oldest)
            rows.firsts[row] = at
        length = rows.bounds[row + 1] - rows.bounds[row]
        while at < rows.run_ends[row]:
            slot = window.slots[at]
            if not (step.at_match and (window.rows[slot] or window.matched[slot])):
                taken = length + 4 + (0 if window.rows[slot] else _NOTES)
                if size and size + taken > most:
                    return row, at
                size += taken
                window.rows[slot] += 1
                window.places[slot] += length
            at = _next_met(window, rows, row, at + 1, oldest)
        row += 1
        at = -1
    return row, at


@inner
def _mixed(window: Window, rows: Rows, row: int) -> int:
    bounds = rows.text_bounds
    return mixed(window, rows.values[row], rows.texts, bounds[row], bounds[row + 1])


@inner
def _note_run(window: Window, rows: Rows, row: int, bits: int) -> None:
    key, low, high = _mixed(window, rows, row), rows.lows[row], rows.highs[row]
    first = first_of(window, bits, key) if low <= high else -1
    rows.firsts[row] = first
    rows.run_ends[row] = run_end(window, bits, first, key, high) if first >= 0 else -1


@inner
def _next_met(window: Window, rows: Rows, row: int, at: int, oldest: int) -> int:
    """The next candidate from `at` on that overlaps, is still in its cycle and has that key."""
    end, low = rows.run_ends[row], rows.lows[row]
    at = next_reaching(window, at, end, low)
    while at < end:
        slot = window.slots[at]
        if window.starts[slot] > oldest and _same_text(window, slot, rows, row):
            return at
        at = next_reaching(window, at + 1, end, low)
    return at


@inner
def _begin_of(window: Window, slot: int) -> int:
    return window.ends[slot - 1] if slot else 0


@inner
def _same_text(window: Window, slot: int, rows: Rows, row: int) -> bool:
    start, end = rows.text_bounds[row], rows.text_bounds[row + 1]
    if window.texts[slot] != end - start:
        return False
    begin = _begin_of(window, slot)
    for i in range(end - start):  # noqa: SIM110 - a kernel
        if window.bytes[begin + i] != rows.texts[start + i]:
            return False
    return True


@kernel
def _lay_out(window: Window, step: Step, last: bool) -> tuple[Ints, Ints, Ints, int]:
    """Return who is answered, where each one's entry and bytes start, and the entries' size."""
    count = window.state[COUNT]
    # Only the last slice knows who has met none.
    oldest = step.seen + step.covers - step.pages if last else GONE
    answered = 0
    for slot in range(count):
        answered += window.rows[slot] > 0 or _without(window, slot, oldest)
    slots = np.empty(answered, np.int64)
    starts = np.zeros(answered, np.int64)
    begins = np.empty(answered, np.int64)
    # The entry at 0 is for all who have met nobody.
    size = HEADER
    nth = 0
    for slot in range(count):
        rows = window.rows[slot]
        if rows > 0:
            starts[nth] = size
            used = HEADER + 4 * rows + window.places[slot]
            window.places[slot] = size
            window.matched[slot] = 1
            size += (used + 7) // 8 * 8
        elif not _without(window, slot, oldest):
            continue
        slots[nth] = slot
        begins[nth] = _begin_of(window, slot) + window.texts[slot]
        nth += 1
    return slots, starts, begins, size


@inner
def _without(window: Window, slot: int, oldest: int) -> bool:
    """Whether an event's cycle ends with this read, and no row was ever met."""
    start = window.starts[slot]
    return window.matched[slot] == 0 and start != GONE and start <= oldest  # type: ignore[no-any-return]


@kernel
def _begin(entries: Bytes, starts: Ints) -> None:
    """Write what an entry says before its rows are known: its size."""
    store_int32(entries, SIZE, HEADER)
    end = len(entries)
    for nth in range(len(starts) - 1, -1, -1):
        if starts[nth]:
            store_int32(entries, starts[nth] + SIZE, end - starts[nth])
            end = starts[nth]


@kernel
def _fill(window: Window, rows: Rows, step: Step, entries: Bytes, place: Place, end: Place) -> None:
    row, at = place
    end_row, end_at = end
    page = 0
    while row < end_row or (row == end_row and end_at >= 0):
        page = _page_of(rows, row, page)
        oldest = step.seen + page - step.pages
        at = rows.firsts[row] if at < 0 else at
        run_end = end_at if row == end_row else rows.run_ends[row]
        while at < run_end:
            slot = window.slots[at]
            entry = window.places[slot]
            if not step.at_match or (window.rows[slot] and not load_int32(entries, entry + ROWS)):
                _add_row(entries, entry, window.rows[slot], rows, row)
            at = _next_met(window, rows, row, at + 1, oldest)
        row += 1
        at = -1


@inner
def _add_row(entries: Bytes, entry: int, count: int, rows: Rows, row: int) -> None:
    """Add one of so many rows to an entry, as entry.py lays it out but without the key's text."""
    placed = load_int32(entries, entry + ROWS)
    filled = load_int32(entries, entry + HEADER + 4 * (placed - 1)) if placed else 0
    size = rows.bounds[row + 1] - rows.bounds[row]
    start = entry + HEADER + 4 * count + filled
    copy(entries, start, rows.data, rows.bounds[row], size)
    if size > 0:
        entries[start] = _COMMA  # in place of the row's own opening brace
    store_int64(entries, entry + KEY, rows.values[row])
    store_int32(entries, entry + HEADER + 4 * placed, filled + size)
    store_int32(entries, entry + ROWS, placed + 1)
