"""Pages in order, the next ones on their way while these are joined.

    asked      4…7          8…11         12…15
    buffer A   4…7 ▓joined  12…15 ░read  12…15 ▓joined
    buffer B   8…11 ░read   8…11 ▓joined 0…3 ░read

The two buffers share the bytes that one read may take: so a read covers half the pages, and
disk and processor work at the same time. Where that is worth less than longer reads, there is
one buffer of all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dovetail.join.exchange import Read
from dovetail.master.snapshot import place
from dovetail.master.snapshot.files import Buffer
from dovetail.master.snapshot.fill import sliced

if TYPE_CHECKING:
    from dovetail.join.exchange import Pages
    from dovetail.master.snapshot.files import Reader, Reading
    from dovetail.master.snapshot.fill import Fill, Layout

_NOWHERE = -1
_WORTHWHILE = 2 << 20
"""Bytes below which two halves, one read ahead, are slower than a whole: measured."""


@dataclass(frozen=True, slots=True)
class _Run:
    """Pages first … end - 1 in a buffer, or on their way there."""

    first: int
    end: int
    fill: Fill
    buffer: Buffer
    reading: Reading | None = None


class Scanner:
    def __init__(self, layout: Layout, reader: Reader, *, read_ahead: bool) -> None:
        self._layout = layout
        self._reader = reader
        self._largest = place.largest_page(layout.shape)[1]
        self._read_ahead = read_ahead
        self._buffers = [Buffer(), Buffer()]
        self._ahead: _Run | None = None

    def read(self, request: Pages, most: int) -> Read:
        """Read pages up to R's end, one at least; what comes behind it is asked for again."""
        doubled = self._read_ahead and most >= max(_WORTHWHILE, 2 * self._largest)
        room = most // 2 if doubled else most
        end = self._end(request.first, request.count, room)
        read = self._arrived(request.first) or self._read(request.first, end)
        end = min(end, read.end)
        if doubled:
            self._buffers.reverse()
            following = end % self._layout.pages
            self._ahead = self._start(following, self._end(following, request.count, room))
        return self._served(read, end)

    def forget(self) -> None:
        """Leave what is on its way, and the memory: another kind of read comes next."""
        self._arrived(_NOWHERE)
        self._buffers = [Buffer(), Buffer()]

    def _arrived(self, first: int) -> _Run | None:
        """What was read ahead, if it starts with this page; else it is dropped."""
        ahead, self._ahead = self._ahead, None
        if ahead is None or ahead.reading is None:
            return None
        if ahead.first != first:
            ahead.reading.abandon()
            return None
        ahead.reading.wait()
        return ahead

    def _read(self, first: int, end: int) -> _Run:
        fill = self._layout.run(first, end)
        self._reader.read(fill, self._buffers[0])
        return _Run(first, end, fill, self._buffers[0])

    def _start(self, first: int, end: int) -> _Run:
        fill = self._layout.run(first, end)
        reading = self._reader.start(fill, self._buffers[0])
        return _Run(first, end, fill, self._buffers[0], reading)

    def _end(self, first: int, count: int, room: int) -> int:
        return place.end_within(self._layout.shape, first, count, room)

    def _served(self, read: _Run, end: int) -> Read:
        shape = self._layout.shape
        ends = np.arange(read.first + 1, end + 1) * shape.rows_a_page
        ends = np.minimum(ends, shape.rows) - min(read.first * shape.rows_a_page, shape.rows)
        rows = self._layout.master_rows(read.fill, read.buffer)
        if end < read.end:
            rows = sliced(rows, 0, int(ends[-1]))
        return Read(rows, end - read.first, ends)
