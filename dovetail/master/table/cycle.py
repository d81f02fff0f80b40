"""One snapshot of a table for a whole cycle: a transaction on the session that reads it.

A row that is updated moves. If every read saw what is committed by then, a scan could meet such a
row twice, or never. So all pages of a cycle are read in one REPEATABLE READ transaction.

1. The first statement takes the snapshot, and then a lock with which rows may change, but the table
   may not be truncated, rewritten or dropped: those wait for the transaction's end.
2. Was the table replaced between snapshot and lock, it would look empty: then begin again.
3. The blocks are counted under the lock: no row that the snapshot sees lies behind them, and VACUUM
   removes none of those before the transaction has ended.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dovetail.errors import Unavailable

if TYPE_CHECKING:
    from dovetail.master.session import Session
    from dovetail.master.table.queries import Queries

_TRIES = 20


@dataclass(frozen=True, slots=True)
class Snapshot:
    name: str | None
    """Two of one server that have the same see the same rows; None is like no other."""
    blocks: int
    indexes: str
    """The table and what its rows are read by, by which one can tell that it is not as it was."""

    def sees_the_same_as(self, other: Snapshot) -> bool:
        known = self.name is not None
        return known and (self.name, self.indexes) == (other.name, other.indexes)


class Cycle:
    def __init__(self, session: Session, queries: Queries) -> None:
        self._session = session
        self._queries = queries

    def begin(self) -> Snapshot:
        for _ in range(_TRIES):
            with self._session.connection() as connection, connection.cursor(binary=True) as cursor:
                cursor.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
                cursor.execute(self._queries.lock())
                seen = cursor.execute(self._queries.snapshot()).fetchone()
                if seen is not None:
                    return Snapshot(*seen)
                cursor.execute("ROLLBACK")
        raise Unavailable("the master table is replaced again and again: wait until it is loaded")

    def end(self) -> None:
        with self._session.connection() as connection:
            connection.execute("COMMIT")
