"""R in PostgreSQL, read as the join engine asks for it.

    Pages       ctid >= '(p,0)' AND ctid < '(p+b,0)'     b heap blocks: MESHJOIN's b pages of R
    Partition   key >= k ORDER BY key LIMIT n            as many as fit, up to the end of a key
    Keys        key = ANY (…)                            all rows of each key

An engine's page is a heap block. They are counted once, when the relation is asked for its facts,
because a key has to see as many pages as there were when it came. So the table may grow: an eighth
more pages than blocks are counted, which have no rows yet, and the last of them has no end. What
is appended is thus read in every cycle; if the table shrinks, pages are left without rows. Once
more has been appended than that and the disk buffer hold, the engine says that a read is too large:
the join has to be started anew then.

Every read is a statement of its own, and sees what is committed by then. Reading is bounded
ahead: the size of a row or a page is estimated from what was read last, and what does not fit
nevertheless is cut at the end of a page or a key.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from dovetail.join.entry import distinct
from dovetail.join.exchange import Pages, Partition, Read
from dovetail.join.phase import Relation
from dovetail.master.relation import BYTES_A_ROW, cut, part
from dovetail.master.session import Session
from dovetail.master.table.queries import Queries
from dovetail.master.table.records import RecordReader
from dovetail.master.table.types import sent
from dovetail.rows import RowCodec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from psycopg import sql

    from dovetail.join.columns import Ints, JoinKeys
    from dovetail.join.entry import MasterRows
    from dovetail.join.exchange import Request
    from dovetail.master.table.description import Description
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
_ROOM_TO_GROW = 8
"""One page in so many is there for blocks to come."""


_SETTINGS = (
    "SET default_transaction_read_only = on",
    # Pages have to come in their order: no helpers that race, no scan that joins another halfway.
    "SET max_parallel_workers_per_gather = 0",
    "SET synchronize_seqscans = off",
    "SET jit = off",
)
_CURE = "check the table, and what the database's user may read"


def session_for(url: str, table: str) -> Session:
    """A session as the relation needs it."""
    return Session(url, table, _SETTINGS, _CURE)


class PostgresRelation:
    """Reads one table over a session, which it owns; `columns` are read beside the key."""

    def __init__(
        self,
        session: Session,
        description: Description,
        key: Sequence[str],
        columns: Sequence[str],
        *,
        where: str | None = None,
        unique: bool | None = None,
    ) -> None:
        self._session = session
        self._description = description
        self._key = description.key(key)
        fields = [(name, sent(description.columns[name])) for name in columns]
        self.codec = RowCodec(pa.schema([(name, field.arrow) for name, field in fields]))
        self.key = pa.schema([(name, sent(description.columns[name]).arrow) for name in key])
        self._queries = Queries(description.table, self._key, fields, where)
        self._records = RecordReader(fields, int_key=self._key.is_int)
        self._unique = self._key.unique if unique is None else unique
        self._row_bytes = float(_FIRST_ROW)
        self._page_bytes = float(_LEAST_PAGE)
        self._rows_a_key = 1.0

    @cached_property
    def facts(self) -> Relation:
        if not self._description.has_pages:
            return Relation(unique=self._unique)
        size = self._session.value(self._queries.block_count()) or b""
        blocks = int.from_bytes(size, "big")
        sample = self._blocks(0, _SAMPLE)
        starts = [0, *sample.ends[:-1]]
        pages = [part(sample.rows, *span) for span in zip(starts, sample.ends, strict=True)]
        largest = max(Read.whole(page).nbytes + sample.ends.itemsize for page in pages)
        self._page_bytes = float(max(_LEAST_PAGE, largest))
        room = blocks // _ROOM_TO_GROW + 1
        return Relation(blocks + room, int(self._page_bytes), unique=self._unique)

    def read(self, request: Request, most: int) -> Read:
        if isinstance(request, Pages):
            return self._pages(request, most)
        if isinstance(request, Partition):
            return self._partition(request.key, most)
        return self._rows_of(request.keys, most)

    def close(self) -> None:
        self._session.close()

    def _pages(self, request: Pages, most: int) -> Read:
        first, end = request.runs()[0]
        end = min(end, first + max(1, int(_target(most) / self._page_bytes)))
        read = self._blocks(first, end, last=end == request.of)
        self._page_bytes = _learn(self._page_bytes, read.nbytes, end - first)
        ends = read.ends[: cut(read.rows, read.ends, most)]
        return Read(part(read.rows, 0, int(ends[-1])), len(ends), ends)

    def _blocks(self, first: int, end: int, *, last: bool = False) -> Read:
        """Blocks as pages; the last page of the relation goes on to the end of the table."""
        records = self._fetch(self._queries.blocks(first, None if last else end))
        ends = np.searchsorted(records.blocks, np.arange(first + 1, end + 1)).astype(np.int64)
        if last:
            ends[-1] = len(records.rows)
        return Read(records.rows, end - first, ends)

    def _partition(self, key: JoinKeys, most: int) -> Read:
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
        return self._rows_of(key, most)

    def _rows_of(self, keys: JoinKeys, most: int) -> Read:
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

    def _fetch(self, query: sql.Composed) -> Records:
        return self._records.read(self._session.value(query) or b"")


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
