"""Pages in order, the next ones on their way while these are joined (ahead.py).

A page that does not fit comes in parts (wide.py); `place` is the row of it at which to go on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dovetail.join.exchange import Read
from dovetail.master.snapshot import place
from dovetail.master.snapshot.ahead import Ahead
from dovetail.master.snapshot.fill import sliced
from dovetail.master.snapshot.wide import Wide

if TYPE_CHECKING:
    from dovetail.join.exchange import Pages
    from dovetail.master.snapshot.ahead import Run
    from dovetail.master.snapshot.files import Reader
    from dovetail.master.snapshot.fill import Layout


class Scanner:
    def __init__(self, layout: Layout, reader: Reader, *, read_ahead: bool, wraps: bool) -> None:
        self._wraps = wraps
        self._layout = layout
        self._largest = place.largest_page(layout.shape)[1]
        self._ahead = Ahead(layout, reader, read_ahead=read_ahead)
        self._wide = Wide(layout, reader)

    def read(self, request: Pages, most: int) -> Read:
        """Read pages up to R's end, one at least; what comes behind it is asked for again."""
        page = place.read_bytes(self._layout.shape, request.first, request.first + 1)
        if request.place or page > most:
            return self._part(request, most)
        doubled = self._ahead.doubles(most, self._largest)
        room = most // 2 if doubled else most
        end = self._end(request.first, request.count, room)
        read = self._ahead.read(request.first, end)
        end = min(end, read.end)
        if doubled and (self._wraps or end < self._layout.pages):
            following = end % self._layout.pages
            self._ahead.start(following, self._end(following, request.count, room))
        return self._served(read, end)

    def forget(self) -> None:
        self._ahead.forget()

    def _part(self, request: Pages, most: int) -> Read:
        """As many rows of a page, from its place on, as fit; one does."""
        heads = self._wide.heads(request.first, request.first + 1)
        count = max(1, int(np.searchsorted(heads.read_bytes(request.place), most, "right")))
        end = request.place + count
        done = end == len(heads)
        rows = self._wide.rows(heads, request.place, end)
        return Read(rows, int(done), np.array([count]), 0 if done else end)

    def _end(self, first: int, count: int, room: int) -> int:
        end = place.end_within(self._layout.shape, first, count, room)
        if end == self._layout.pages:
            return end
        start = first - first % self._layout.aligned
        return start + self._layout.whole(end - start)

    def _served(self, read: Run, end: int) -> Read:
        shape = self._layout.shape
        ends = np.arange(read.first + 1, end + 1) * shape.rows_a_page
        ends = np.minimum(ends, shape.rows) - min(read.first * shape.rows_a_page, shape.rows)
        rows = self._layout.master_rows(read.fill, read.buffer)
        if end < read.end:
            rows = sliced(rows, 0, int(ends[-1]))
        return Read(rows, end - read.first, ends)
