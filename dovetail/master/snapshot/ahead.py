"""Two buffers: one is joined while the other is filled.

    asked      4…7          8…11         12…15
    buffer A   4…7 ▓joined  12…15 ░read  12…15 ▓joined
    buffer B   8…11 ░read   8…11 ▓joined 0…3 ░read

Both share the bytes that one read may take: so a read covers half of them, and disk and processor
work at the same time. Below some megabytes a whole read is faster than two halves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dovetail.master.snapshot.files import Buffer

if TYPE_CHECKING:
    from dovetail.master.snapshot.files import Reader, Reading
    from dovetail.master.snapshot.fill import Fill, Layout

_NOWHERE = -1
_WORTHWHILE = 4 << 20
"""Bytes below which two halves, one read ahead, are slower than a whole: measured."""


@dataclass(frozen=True, slots=True)
class Run:
    """Pages first … end - 1 in a buffer, or on their way there."""

    first: int
    end: int
    fill: Fill
    buffer: Buffer
    reading: Reading | None = None


class Ahead:
    def __init__(self, layout: Layout, reader: Reader, *, read_ahead: bool) -> None:
        self._layout = layout
        self._reader = reader
        self._read_ahead = read_ahead
        self._buffers = [Buffer(), Buffer()]
        self._ahead: Run | None = None

    def doubles(self, most: int, least: int) -> bool:
        """Whether a read of so many bytes is worth halving, of which each half is this at least."""
        return self._read_ahead and most >= max(_WORTHWHILE, 2 * least)

    def read(self, first: int, end: int) -> Run:
        """Read pages, or wait for them if they are on their way: as many as are."""
        arrived = self._arrived(first)
        if arrived is not None:
            return arrived
        fill = self._layout.run(first, end)
        self._reader.read(fill, self._buffers[0])
        return Run(first, end, fill, self._buffers[0])

    def start(self, first: int, end: int) -> None:
        """Begin to read into the buffer that is not being joined."""
        self._buffers.reverse()
        fill = self._layout.run(first, end)
        reading = self._reader.start(fill, self._buffers[0])
        self._ahead = Run(first, end, fill, self._buffers[0], reading)

    def forget(self) -> None:
        """Leave what is on its way, and the memory: another kind of read comes next."""
        self._arrived(_NOWHERE)
        self._buffers = [Buffer(), Buffer()]

    def _arrived(self, first: int) -> Run | None:
        """What was read ahead, if it starts with this page; else it is dropped."""
        ahead, self._ahead = self._ahead, None
        if ahead is None or ahead.reading is None:
            return None
        if ahead.first != first:
            ahead.reading.abandon()
            return None
        ahead.reading.wait()
        return ahead
