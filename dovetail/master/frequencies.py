"""f_R of a pipeline's master table, counted by PostgreSQL.

One aggregate reads the key columns of the whole table in a single process of the database and
gives the keys with the most rows, and how many keys and rows there are in all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from psycopg import sql

from dovetail.join.keys import SEPARATOR
from dovetail.master.session import Session
from dovetail.pipeline.relation import Catalogue
from dovetail.pipeline.spec import KeyType

if TYPE_CHECKING:
    from dovetail.join.columns import Ints
    from dovetail.pipeline.spec import Pipeline

_SETTINGS = ("SET max_parallel_workers_per_gather = 0",)
_CURE = "`dovetail check` tells what the pipeline needs of it"

# COPY's binary form: a header of 19 bytes, rows of four bigints, and a last word of two bytes.
_HEADER, _TRAILER = 19, 2
_ROW = np.dtype(
    [
        ("fields", ">i2"),
        *(
            part
            for name in ("key", "rows", "keys_in_all", "rows_in_all")
            for part in ((f"{name}_bytes", ">i4"), (name, ">i8"))
        ),
    ]
)


@dataclass(frozen=True, slots=True)
class Counted:
    """The keys with the most master rows first: an int, or the 64-bit hash of any other."""

    keys: Ints
    rows: Ints
    keys_in_all: int
    rows_in_all: int

    @property
    def unique(self) -> bool:
        """Whether no key has more than one row."""
        return not len(self.rows) or int(self.rows[0]) <= 1

    @property
    def rest(self) -> float:
        """Rows that a key which is not listed has on average; 0 if all keys are listed."""
        others = self.keys_in_all - len(self.keys)
        return (self.rows_in_all - int(self.rows.sum())) / others if others else 0.0


class MasterFrequencies:
    """Counts over a connection of its own, made anew when it is lost."""

    def __init__(self, database_url: str, pipeline: Pipeline) -> None:
        self._session = Session(database_url, pipeline.master.table, _SETTINGS, _CURE)
        self._table = sql.Identifier(*(part for part in pipeline.master.relation if part))
        self._columns = pipeline.master.key
        self._int_key = pipeline.key_type is KeyType.INT

    def unique(self) -> bool:
        """Whether an index says that no key has more than one row."""
        with self._session.connection() as connection:
            catalogue = Catalogue(connection)
            relation = catalogue.relation(self._table)
            indexes = catalogue.indexes(relation) if relation else []
            return any(index.singles_out(self._columns) for index in indexes)

    def count(self, most: int) -> Counted:
        """Count all keys, and list the `most` with the most rows."""
        statement = sql.SQL(
            "COPY (SELECT k, n, count(*) OVER (), (sum(n) OVER ())::bigint FROM"
            " (SELECT {} AS k, count(*) AS n FROM {} r GROUP BY 1) AS f WHERE k IS NOT NULL"
            " ORDER BY n DESC LIMIT {}) TO STDOUT (FORMAT BINARY)"
        ).format(self._key(), self._table, sql.Literal(most))
        with (
            self._session.connection() as connection,
            connection.cursor() as cursor,
            cursor.copy(statement) as parts,
        ):
            stream = b"".join(parts)
        rows = np.frombuffer(stream[_HEADER:-_TRAILER], _ROW)
        in_all = (int(rows["keys_in_all"][0]), int(rows["rows_in_all"][0])) if len(rows) else (0, 0)
        return Counted(rows["key"].astype(np.int64), rows["rows"].astype(np.int64), *in_all)

    def close(self) -> None:
        self._session.close()

    def _key(self) -> sql.Composable:
        """The 64 bits that an event's join key has (dovetail/join/keys.py)."""
        columns = [sql.Identifier("r", column) for column in self._columns]
        if self._int_key:
            return sql.SQL("{}::bigint").format(columns[0])
        parts = [sql.SQL("{}::text").format(column) for column in columns]
        text = sql.SQL(f" || chr({SEPARATOR}) || ").join(parts)
        return sql.SQL('hashtextextended(({}) COLLATE "C", 0)').format(text)
