"""The sliding window of a range join: one buffer, in columns, as long as it lives.

    ┌ an event, in the order of arrival ┬ the index ────────────────┬ bytes ───────────┐
    │ ids starts ends texts matched …   │ keys lows highs slots …   │ text event text …│
    └───────────────────────────────────┴───────────────────────────┴──────────────────┘
      slot 0 is the oldest                sorted by key, then low     ends[slot] ▲

How much of the buffer is columns and how much bytes depends on how large events are. When
one side is full and the other is not, the window is split anew: what the columns hold
moves within the buffer, nothing is allocated. Who leaves keeps its slot until there is a
part to win by closing ranks, so that a step moves nothing but arrivals.

Memory: about 78 bytes an event beside its own, and its key's text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dovetail.errors import ConfigError
from dovetail.join.memory import move
from dovetail.join.seeds import SEEDS
from dovetail.kernels import kernel

if TYPE_CHECKING:
    from dovetail.join.columns import Bytes, Ints, SmallInts
    from dovetail.join.seeds import Seeds

FANOUT_BITS = 3
FANOUT = 1 << FANOUT_BITS
"""Intervals, or maxima of the level below, under one maximum."""
BYTES_A_SLOT = 78
NEW_SHARE = 8
"""One part in so many of the slots is for arrivals that are not sorted in yet."""
_SLACK = 256
"""Bytes for the columns' alignment and the last entries of directory and maxima."""

# The counters, in `Window.state`: slots taken; of them in the index and not yet; bytes used;
# whether directory and maxima lag behind the index; slots of events that have left, their bytes.
COUNT, SORTED, NEW, USED, STALE, LEFT, LEFT_BYTES, COUNTERS = range(8)
GONE = -(1 << 63)
"""The start of an event that has left: a cycle that ended before all pages."""


class Window(NamedTuple):
    """The columns, as the kernels take them: views of one buffer, but for the counters."""

    ids: Ints
    starts: Ints
    """The page, counted from the very first, that the event saw first."""
    ends: Ints
    """Where in `bytes` the event's key and bytes end."""
    texts: SmallInts
    """Length of the key's text, which stands before the event's bytes."""
    matched: Bytes
    """Whether a row has been met."""
    keys: Ints
    """The index: mixed join keys, intervals and slots, by key and then low."""
    lows: Ints
    highs: Ints
    slots: SmallInts
    rows: SmallInts
    """Notes of one read: how many rows it has for the event, and …"""
    places: Ints
    """… how many bytes they take, later where its entry stands."""
    new_keys: Ints
    """Arrivals that are not in the index yet."""
    new_lows: Ints
    new_highs: Ints
    new_slots: SmallInts
    maxima: Ints
    """Of every FANOUT intervals in index order the highest high; of every FANOUT of those …"""
    directory: SmallInts
    """Where in the index the keys start whose first bits are 0, 1, …"""
    bytes: Bytes
    state: Ints
    seeds: Seeds
    """Of the whole process (stir.py)."""

    @property
    def capacity(self) -> int:
        return len(self.ids)


_LIVE = ("ids", "starts", "ends", "texts", "matched", "keys", "lows", "highs", "slots")
"""What moves when the window is split anew; the rest is made again from these."""


def new_window(size: int, event_bytes: int) -> Window:
    """Return a window of so many bytes in all, split for events of about that length."""
    if size < 2 * _SLACK:
        raise ConfigError(
            f"{size} bytes are too few to hold pending events: give the join more memory"
        )
    buffer = np.empty(size // 8 - COUNTERS, np.int64).view(np.uint8)
    state = np.zeros(COUNTERS, np.int64)
    capacity = (len(buffer) - _SLACK) // (BYTES_A_SLOT + event_bytes)
    return _views(buffer, max(1, capacity), state)


def room_for(window: Window, event_bytes: float) -> int:
    """How many more events of that length there is room for, however the window is split."""
    taken = _SLACK + window.state[COUNT] * BYTES_A_SLOT + window.state[USED]
    free = len(buffer_of(window)) - int(taken)
    return max(0, int(free // (BYTES_A_SLOT + event_bytes)))


def buffer_of(window: Window) -> Bytes:
    buffer = window.ids
    while isinstance(buffer.base, np.ndarray):
        buffer = buffer.base
    return buffer.view(np.uint8)


def split_anew(window: Window, capacity: int) -> Window:
    """Give the window room for so many events; those that it holds must fit. Sort in first."""
    buffer = buffer_of(window)
    split = _views(buffer, capacity, window.state)
    count = int(window.state[COUNT])
    sizes = {name: count * getattr(window, name).itemsize for name in _LIVE}
    sizes["bytes"] = int(window.state[USED])
    # All move towards the end or all towards the start: in this order none overruns another.
    order = sizes if capacity < window.capacity else reversed(sizes)
    for name in order:
        _move(buffer, _place(buffer, split, name), _place(buffer, window, name), sizes[name])
    window.state[STALE] = 1
    return split


def _place(buffer: Bytes, window: Window, name: str) -> int:
    column: Any = getattr(window, name)
    return int(column.ctypes.data - buffer.ctypes.data)


def _views(buffer: Bytes, capacity: int, state: Ints) -> Window:
    longs, words, small = (np.dtype(kind) for kind in (np.int64, np.int32, np.uint8))
    new = max(1, capacity // NEW_SHARE)
    columns: list[tuple[np.dtype[Any], int]] = [
        *((longs, capacity),) * 3,
        (words, capacity),
        (small, capacity),
        *((longs, capacity),) * 3,
        (words, capacity),
        (words, capacity),
        (longs, capacity),
        *((longs, new),) * 3,
        (words, new),
        (longs, _maxima(capacity)),
        (words, _buckets(capacity) + 1),
    ]
    views: list[Any] = []
    at = 0
    for dtype, length in columns:
        views.append(buffer[at : at + length * dtype.itemsize].view(dtype))
        at += -(-length * dtype.itemsize // 8) * 8
    assert at <= len(buffer), "BYTES_A_SLOT and _SLACK cover all columns"
    views += [buffer[at:], state, SEEDS]
    return Window._make(views)


def _maxima(capacity: int) -> int:
    total = 0
    while True:
        capacity = -(-capacity // FANOUT)
        total += capacity
        if capacity == 1:
            return total


def _buckets(capacity: int) -> int:
    """The highest power of two that is not above, but at least two."""
    return max(2, 1 << (capacity.bit_length() - 1))


@kernel
def _move(buffer: Bytes, to: int, source: int, count: int) -> None:
    move(buffer, to, buffer, source, count)
