"""A table's rows, read within the bytes that there is room for.

    pages       ctid >= '(p,0)' AND ctid < '(p+b,0)'     b heap blocks: MESHJOIN's b pages of R
    partition   key >= k ORDER BY key LIMIT n            as many as fit, up to the end of a key
    rows_of     key = ANY (…)                            all rows of each key

Every read is one statement. Reading is bounded ahead: the size of a row or a page is estimated
from what was read last, and what does not fit nevertheless is cut at the end of a page or a key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dovetail.join.entry import distinct
from dovetail.join.exchange import Read
from dovetail.master.relation import BYTES_A_ROW, cut, part

if TYPE_CHECKING:
    from collections.abc import Callable

    from psycopg import sql

    from dovetail.join.columns import Ints, JoinKeys
    from dovetail.join.entry import MasterRows
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
            read = self._blocks(start, start + _SAMPLE)
            spans = zip([0, *read.ends[:-1]], read.ends, strict=True)
            pages = [part(read.rows, *span) for span in spans]
            largest = max(Read.whole(page).nbytes + read.ends.itemsize for page in pages)
            self._page_bytes = max(self._page_bytes, float(largest))

    def pages(self, first: int, end: int, most: int, *, on: bool = False) -> Read:
        """Blocks as pages; with `on`, the last of them goes on to the end of the table."""
        fitting = first + max(1, int(_target(most) / self._page_bytes))
        read = self._blocks(first, min(end, fitting), on=on and end <= fitting)
        self._page_bytes = max(_LEAST_PAGE, _learn(self._page_bytes, read.nbytes, read.covers))
        return shortened(read, read.covers, most)

    def partition(self, key: JoinKeys, most: int) -> Read:
        limit = max(1, int(_target(most) / self._row_bytes))
        rows = self._fetch(self._queries.range(key, limit + 1)).rows
        self._row_bytes = _learn(self._row_bytes, Read.whole(rows).nbytes, len(rows))
        ends = _key_ends(rows)
        if len(rows) > limit:
            ends = ends[:-1]  # the last key may go on
        if len(ends):
            found = part(rows, 0, int(ends[cut(rows, ends, most) - 1]))
            if Read.whole(found).nbytes <= most:
                return Read.whole(found)
        elif not len(rows):
            return Read.whole(rows)
        # The first key fills it by itself, and need not be the one that was asked for.
        return self.rows_of(key, most)

    def rows_of(self, keys: JoinKeys, most: int) -> Read:
        count = int(_target(most) / (self._row_bytes * self._rows_a_key))
        count = max(1, min(len(keys), count))
        too_many = most // BYTES_A_ROW + 1
        while True:
            rows = self._fetch(self._queries.keys(keys.slice(0, count), too_many)).rows
            read = Read.whole(rows, count)
            self._row_bytes = _learn(self._row_bytes, read.nbytes, len(rows))
            self._rows_a_key = max(1.0, _learn(self._rows_a_key, len(rows), count))
            if read.nbytes <= most or count == 1:
                return read
            count = max(1, count // 2)

    def _blocks(self, first: int, end: int, *, on: bool = False) -> Read:
        records = self._fetch(self._queries.blocks(first, None if on else end))
        ends = np.searchsorted(records.blocks, np.arange(first + 1, end + 1)).astype(np.int64)
        if on:
            ends[-1] = len(records.rows)
        return Read(records.rows, end - first, ends)

    def _fetch(self, query: sql.Composed) -> Records:
        return self._decode(self._session.value(query) or b"")


def shortened(read: Read, pages: int, most: int) -> Read:
    """The first so many pages of a read, or as many of them as fit; one does."""
    ends = read.ends[:pages]
    ends = ends[: cut(read.rows, ends, most)]
    if len(ends) == read.covers:
        return read
    return Read(part(read.rows, 0, int(ends[-1])), len(ends), ends)


def _target(most: int) -> float:
    return _FULL * min(most, _LARGEST_READ)


def _learn(known: float, total: int, count: int) -> float:
    """The average size, at once if it is larger than known, and slowly if it is smaller."""
    if not count:
        return known
    latest = total / count
    return max(latest, _OLD * known + (1 - _OLD) * latest)


def _key_ends(rows: MasterRows) -> Ints:
    """After which rows a key ends, where the rows of a key lie together."""
    firsts, _ = distinct(rows.keys)
    return np.append(firsts, len(rows))[1:]
