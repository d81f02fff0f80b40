"""Partitions of a table in the order of an index, with the same bounds whatever key asks.

    keys       3   8   12*  15   21   22   30*  31   40   57*  …        * the hash ends in zeros
    partitions ─────┤├────────────────────┤├────────────────┤

A partition begins with a key whose hash has enough zeros at its end: one key in `grain`, a power of
two. So its bounds follow from its rows alone. They need no list of bounds that would have to be
read first, held in memory and renewed, and they move only where rows come and go. HYBRIDJOIN needs
them: a key that waits is answered with all others of its partition, and causes no read of rows that
were read while it waited (Theorem 1).

1. The bounds around a key are looked for in the index, to either side (`Queries.bound`).
2. What lies between them is read. Partitions differ in size: about one in ten does not fit.
3. If it does not, or if no bound is near, the same is done with half the grain. Its bounds are
   those from before and some between, so that smaller partitions lie within the larger one.

The grain is chosen from the size of the first rows, so that a partition takes about a third of what
fits, and again if that proves wrong by far.

Memory: none but the read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.join.entry import distinct
from dovetail.join.exchange import Read
from dovetail.master.table.queries import surely_over

if TYPE_CHECKING:
    from collections.abc import Callable

    from psycopg import sql

    from dovetail.join.columns import JoinKeys
    from dovetail.join.entry import MasterRows
    from dovetail.master.session import Session
    from dovetail.master.table.queries import Queries

_MEASURED = 256
"""Rows that are read to choose the grain."""
_SPREAD = 4
"""A partition of more times the average is taken for too large."""
_JUDGED = 32
"""Partitions after which the grain is judged."""


class Partitions:
    """`fetch` reads the rows of a query."""

    def __init__(
        self, session: Session, queries: Queries, fetch: Callable[[sql.Composed], MasterRows]
    ) -> None:
        self._session = session
        self._queries = queries
        self._fetch = fetch
        self._room, self._share = 0, 1.0
        self._grain = 1
        self._index_rows = self._rows = 1
        """On average in a partition: in the index, and of those that are wanted."""
        self._read = self._filled = self._too_large = 0

    def holding(self, key: JoinKeys, room: int) -> Read | None:
        """The partition that holds a key, or would; None if the key alone has to be read."""
        if (room, self._queries.share) != (self._room, self._share):
            self._room, self._share = room, self._queries.share
            self._measure()
        grain = self._grain
        while grain > 1:
            read = self._between(key, grain)
            if read is not None and read.nbytes <= room:
                self._judge(read.nbytes, too_large=grain < self._grain)
                return read
            grain //= 2
        self._judge(0, too_large=True)
        return None

    def _between(self, key: JoinKeys, grain: int) -> Read | None:
        share = self._grain // grain
        far = _SPREAD * max(1, self._index_rows // share)
        first = self._bound(self._queries.bound(key, grain, far, behind=False))
        end = self._bound(self._queries.bound(key, grain, far, behind=True))
        if first is _FAR or end is _FAR:
            return None
        most = _SPREAD * max(1, self._rows // share)
        rows = self._fetch(self._queries.range(first, end, most + 1, surely_over(self._room)))
        return Read.whole(rows) if len(rows) <= most else None

    def _bound(self, query: sql.Composed) -> str | int | None:
        """The bound that a query finds; None if the index ends before, _FAR if it is too far."""
        with self._session.connection() as connection:
            found = connection.execute(query).fetchone()
        if found is None:
            return None
        value, is_bound = found
        return value if is_bound else _FAR

    def _measure(self) -> None:
        rows = self._fetch(self._queries.range(None, None, _MEASURED, surely_over(self._room)))
        count = max(1, len(rows))
        fitting = self._room * count / max(1, Read.whole(rows).nbytes)
        rows_a_key = count / max(1, len(distinct(rows.keys)[0]))
        self._choose(fitting / 2 / (rows_a_key * self._share), rows_a_key)

    def _choose(self, keys: float, rows_a_key: float) -> None:
        """Let a partition have about so many keys: the power of two at or below."""
        self._grain = 1 << max(0, int(keys).bit_length() - 1)
        self._index_rows = max(1, round(self._grain * rows_a_key))
        self._rows = max(1, round(self._index_rows * self._share))
        self._read = self._filled = self._too_large = 0

    def _judge(self, size: int, *, too_large: bool) -> None:
        self._read += 1
        self._filled += size
        self._too_large += too_large
        if self._read < _JUDGED:
            return
        rows_a_key = self._index_rows / self._grain
        if 2 * self._too_large > self._read:
            self._choose(self._grain / 2, rows_a_key)
        elif 16 * self._filled < self._read * self._room:
            self._choose(self._grain * 4, rows_a_key)
        else:
            self._read = self._filled = self._too_large = 0


_FAR = "\0"
"""No key: PostgreSQL's texts have no such character."""
