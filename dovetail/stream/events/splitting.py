r"""Events out of a text that holds many: a JSON array of objects, or one object a line.

    [{…}, {…}]        an array, or one object by itself
    {…}\n{…}\n        a line each; lines of whitespace alone are no events

What is looked at is the grammar, so that a text is taken as a whole or not at all: whether an
event is as the pipeline wants it is decided where all events are decided.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dovetail.join.columns import Column
from dovetail.kernels import kernel
from dovetail.stream.events.details import broken
from dovetail.stream.events.json_kernel import BROKEN, FITS, UNSURE, past_object, skip
from dovetail.stream.events.machine import load_byte
from dovetail.stream.events.schema import MOST_NESTING

if TYPE_CHECKING:
    from numpy.typing import NDArray

_LINE, _COMMA, _OPEN, _CLOSE = b"\n,[]"


class NotEventsError(ValueError):
    """The text cannot be split; the message says where and why."""

    def __init__(self, text: str, place: dict[str, int] | None = None) -> None:
        super().__init__(text)
        self.place = place or {}
        """The number of the event or the line, from 1 on, by what it is called."""


class TooManyError(ValueError):
    """The text has more events than allowed."""


class _Found(NamedTuple):
    """How far a text was split: to its end, or to a byte that is wrong."""

    status: int
    events: int
    number: int
    """The line, or the event, that is wrong."""
    first: int
    """Where that line or event begins."""
    at: int


def split(text: bytearray, *, lines: bool, most: int) -> Column:
    """Give the events of a text, each trimmed, at least one and no more than `most`."""
    size = len(text)
    if size < 8:  # the kernel loads eight bytes at once
        text = text + b" " * (8 - size)
    data = np.frombuffer(text, np.uint8)
    starts, ends = np.empty(most, np.int64), np.empty(most, np.int64)
    find = _find_lines if lines else _find_items
    found = _Found(*find(data.ctypes.data, size, data.size, starts, ends))
    if found.status != FITS:
        raise _not_events(text[:size], found, "line" if lines else "event")
    if found.events > most:
        raise TooManyError
    if not found.events:
        raise NotEventsError("there is no event in it")
    return Column.of_spans(data, starts[: found.events], ends[: found.events])


def _not_events(text: bytearray, found: _Found, unit: str) -> NotEventsError:
    """Count bytes from the line's first one, or from the text's."""
    if found.status == UNSURE:
        why = f"nests deeper than {MOST_NESTING} levels"
    elif unit == "line":
        stop = text.find(b"\n", found.first)
        line = bytes(text[found.first : len(text) if stop < 0 else stop])
        why = f"is {broken(line, found.at - found.first)}"
    else:
        why = f"is {broken(bytes(text), found.at)}"
    return NotEventsError(f"{unit} {found.number} {why}", {unit: found.number})


@kernel(error_model="numpy")
def _find_lines(
    base: int, size: int, room: int, starts: NDArray[np.int64], ends: NDArray[np.int64]
) -> tuple[int, int, int, int, int]:
    """Find the object of each line; `room` is what may be loaded."""
    at, end, limit = base, base + size, base + room
    events, line = 0, 0
    while at < end:
        line += 1
        stop = at
        while stop < end and load_byte(stop) != _LINE:
            stop += 1
        first = skip(at, stop)
        if first < stop:
            tail, status = past_object(first, stop, limit)
            if status == FITS and skip(tail, stop) != stop:
                tail, status = skip(tail, stop), BROKEN
            if status != FITS:
                return status, events, line, at - base, tail - base
            if events == starts.size:
                return FITS, events + 1, line, 0, 0
            starts[events], ends[events] = first - base, tail - base
            events += 1
        at = stop + 1
    return FITS, events, line, 0, 0


@kernel(error_model="numpy")
def _find_items(
    base: int, size: int, room: int, starts: NDArray[np.int64], ends: NDArray[np.int64]
) -> tuple[int, int, int, int, int]:
    """Find the objects of an array, or the one object; `room` is what may be loaded."""
    end, limit = base + size, base + room
    at = skip(base, end)
    events = 0
    array = at < end and load_byte(at) == _OPEN
    if array:
        at = skip(at + 1, end)
    empty = at >= end or (array and load_byte(at) == _CLOSE)
    while not empty:
        tail, status = past_object(at, end, limit)
        if status != FITS:
            return status, events, events + 1, 0, tail - base
        if events == starts.size:
            return FITS, events + 1, 0, 0, 0
        starts[events], ends[events] = at - base, tail - base
        events += 1
        at = skip(tail, end)
        if not array or at >= end or load_byte(at) != _COMMA:
            break
        at = skip(at + 1, end)
    if array:
        if at >= end or load_byte(at) != _CLOSE:
            return BROKEN, events, max(1, events), 0, at - base
        at = skip(at + 1, end)
    if at != end:
        return BROKEN, events, max(1, events), 0, at - base
    return FITS, events, 0, 0, 0
