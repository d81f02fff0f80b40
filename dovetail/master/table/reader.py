"""A table's rows, read within the bytes that there is room for.

    pages       ctid >= '(p,0)' AND ctid < '(p+b,0)'     b heap blocks: MESHJOIN's b pages of R
    partition   key >= b AND key < c                     between two bounds (partitions.py)
    rows_of     key = ANY (…)                            all rows of each key

Every read is one statement. Reading is bounded ahead: the size of a row or a page is estimated
from what was read last, and what does not fit nevertheless is cut at the end of a page or a key.
A single page that does not fit, as its rows have values outside of it (TOAST), is cut at the end of
a row, and read on from there. Where rows may have such values, the database ends a read that would
not fit (`Queries.bound_by`): it is too long by then, and is cut, or repeated with fewer keys.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dovetail.join.exchange import Read
from dovetail.master.relation import BYTES_A_ROW, cut, first_rows, part
from dovetail.master.table.partitions import Partitions
from dovetail.master.table.queries import surely_over

if TYPE_CHECKING:
    from collections.abc import Callable

    from psycopg import sql

    from dovetail.join.columns import Ints, JoinKeys
    from dovetail.join.exchange import Pages
    from dovetail.master.session import Session
    from dovetail.master.table.queries import Queries
    from dovetail.master.table.records import Records

_SAMPLE = 8
"""Blocks that are read to learn how large a page is."""
_LEAST_PAGE = 1024
_FIRST_ROW = 256
"""Bytes of a row in a read, before any was read."""
_LARGEST_READ = 4 << 20
"""Bytes that are read at once, however large the disk buffer is: a longer value is slower to
build for the database than to begin anew."""
_MOST = 4 * _LARGEST_READ
"""Bytes beyond which a read counts as too long, whatever there is room for: PostgreSQL's values end
at 1 GB. A single row of a page, and a single key, may take more."""
_NUL = 0
"""PostgreSQL's texts have no such character, and it takes no statement that has one."""
_OLD = 0.75
"""Weight of what was known in the average of sizes."""
_FULL = 0.9
"""How much of the disk buffer a read is meant to fill, as rows differ in size."""


class TableReader:
    """Reads over a session; `decode` takes the records of a query apart."""

    def __init__(
        self, session: Session, queries: Queries, decode: Callable[[bytes], Records]
    ) -> None:
        self._session = session
        self._queries = queries
        self._decode = decode
        self._row_bytes = float(_FIRST_ROW)
        self._page_bytes = float(_LEAST_PAGE)
        self._rows_a_key = 1.0
        self._wide_row = float(_FIRST_ROW)
        self._partitions = Partitions(session, queries, lambda query: self._fetch(query).rows)

    @property
    def page_bytes(self) -> int:
        """What a page takes as a `Read`, by what is known: the largest of a sample, or an average.

        The average follows at once if pages grow, and slowly if they shrink.
        """
        return int(self._page_bytes)

    def sample(self, *starts: int) -> None:
        """Learn how large a page is from some blocks at each of these places."""
        self._page_bytes = float(_LEAST_PAGE)
        for start in starts:
            read, _ = self._blocks(start, start + _SAMPLE, _LARGEST_READ)
            spans = zip([0, *read.ends[:-1]], read.ends, strict=True)
            pages = [part(read.rows, *span) for span in spans]
            largest = max(Read.whole(page).nbytes + read.ends.itemsize for page in pages)
            self._page_bytes = max(self._page_bytes, float(largest))

    def pages(self, request: Pages, most: int, *, on: bool = False) -> Read:
        """Blocks as pages; with `on`, the last of them goes on to the end of the table."""
        most = min(most, _MOST)
        first, end = request.runs()[0]
        if request.place:
            open_ended = on and first + 1 == request.of
            return self._rest_of_page(request.place, None if open_ended else first + 1, most)
        on = on and end == request.of
        fitting = first + max(1, int(_target(most) / self._page_bytes))
        read, places = self._blocks(first, min(end, fitting), most, on=on and end <= fitting)
        found = shortened(read, read.covers, most)
        # A page that does not fit is no measure of the others, and those behind may be missing.
        self._page_bytes = max(
            _LEAST_PAGE, _learn(self._page_bytes, min(found.nbytes, most), found.covers)
        )
        if found.nbytes <= most:
            return found
        self._wide_row = _learn(self._wide_row, found.nbytes, len(found.rows))
        return _part_of_page(found, places, most)

    def _rest_of_page(self, place: int, end: int | None, most: int) -> Read:
        """What a page has from a place on, or as many rows of it as fit: one does."""
        limit = max(1, int(_target(most) / self._wide_row))
        records = self._fetch(self._queries.rest_of_block(place, end, limit, surely_over(most)))
        count = len(records.rows)
        read = Read(records.rows, int(count < limit), np.array([count], np.int64))
        self._wide_row = _learn(self._wide_row, read.nbytes, count)
        if read.covers and read.nbytes <= most:
            return read
        return _part_of_page(read, records.places, most)

    def partition(self, key: JoinKeys, most: int) -> Read:
        """Its partition, if all of that fits, else the key alone."""
        if not len(_storable(key)):
            return self._nothing()
        found = self._partitions.holding(key, int(_target(most)))
        return self.rows_of(key, most) if found is None else found

    def rows_of(self, keys: JoinKeys, most: int) -> Read:
        keys = _storable(keys)
        if not len(keys):
            return self._nothing()
        count = int(_target(most) / (self._row_bytes * self._rows_a_key))
        count = max(1, min(len(keys), count))
        too_many = most // BYTES_A_ROW + 1
        while True:
            fitting = most if count == 1 else min(most, _MOST)
            asked = self._queries.keys(keys.slice(0, count), too_many, surely_over(fitting))
            rows = self._fetch(asked).rows
            read = Read.whole(rows, count)
            self._row_bytes = _learn(self._row_bytes, read.nbytes, len(rows))
            self._rows_a_key = max(1.0, _learn(self._rows_a_key, len(rows), count))
            if read.nbytes <= fitting or count == 1:
                return read
            count = max(1, count // 2)

    def _blocks(self, first: int, end: int, most: int, *, on: bool = False) -> tuple[Read, Ints]:
        """The rows of some blocks, and where each row lies; the last are missing if it is over."""
        query = self._queries.blocks(first, None if on else end, surely_over(most))
        records = self._fetch(query)
        numbers = np.arange(first + 1, end + 1) << 16
        ends = np.searchsorted(records.places, numbers).astype(np.int64)
        if on:
            ends[-1] = len(records.rows)
        return Read(records.rows, end - first, ends), records.places

    def _nothing(self) -> Read:
        """What is found for a key that no row can have."""
        return Read.whole(self._decode(b"").rows)

    def _fetch(self, query: sql.Composed) -> Records:
        return self._decode(self._session.value(query) or b"")


def shortened(read: Read, pages: int, most: int) -> Read:
    """The first so many pages of a read, or as many of them as fit; one does."""
    if read.place:
        return read
    ends = read.ends[:pages]
    ends = ends[: cut(read.rows, ends, most)]
    if len(ends) == read.covers:
        return read
    return Read(part(read.rows, 0, int(ends[-1])), len(ends), ends)


def _storable(keys: JoinKeys) -> JoinKeys:
    """The keys before the first that no row can have, as there is a NUL in it."""
    bounds = keys.texts.bounds
    nuls = np.flatnonzero(keys.texts.data[bounds[0] : bounds[-1]] == _NUL)
    if not len(nuls):
        return keys
    return keys.slice(0, int(np.searchsorted(bounds, bounds[0] + nuls[0], side="right")) - 1)


def _part_of_page(page: Read, places: Ints, most: int) -> Read:
    """The first rows of a page. Whether more come behind them is asked for: some may be missing."""
    return first_rows(Read(page.rows, 0, page.ends), places + 1, most)


def _target(most: int) -> float:
    return _FULL * min(most, _LARGEST_READ)


def _learn(known: float, total: int, count: int) -> float:
    """The average size, at once if it is larger than known, and slowly if it is smaller."""
    if not count:
        return known
    latest = total / count
    return max(latest, _OLD * known + (1 - _OLD) * latest)
