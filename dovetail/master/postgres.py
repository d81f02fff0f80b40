"""Master rows from a PostgreSQL table, by batches of keys.

The database itself encodes a row for the output (`row_to_json`, so that every type looks
as SQL's users know it) and its join key canonically, and sends both as one binary COPY
stream: what arrives is cut into columns and never touched again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from psycopg import sql

from dovetail.join.keys import SEPARATOR
from dovetail.master.copy_binary import decode
from dovetail.master.session import Session
from dovetail.pipeline.spec import FieldType, KeyType

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dovetail.join.columns import JoinKeys
    from dovetail.join.entry import MasterRows
    from dovetail.pipeline.spec import Pipeline

_SETTINGS = (
    # A row looks the same to every node, whatever the database's user has set.
    "SET TimeZone = 'UTC'",
    "SET extra_float_digits = 1",
)
_CURE = "`dovetail check` tells what the pipeline needs of it"


class PostgresMaster:
    """Reads the pipeline's master table over one connection, made anew when it is lost."""

    def __init__(self, database_url: str, pipeline: Pipeline) -> None:
        self._session = Session(database_url, pipeline.master.table, _SETTINGS, _CURE)
        self._int_key = pipeline.key_type is KeyType.INT
        self._lookup = _Lookup(pipeline)

    def rows_of(self, keys: JoinKeys) -> MasterRows:
        query = self._lookup.by_keys(keys)
        statement = sql.SQL("COPY ({}) TO STDOUT (FORMAT BINARY)").format(query)
        with (
            self._session.connection() as connection,
            connection.cursor() as cursor,
            cursor.copy(statement) as rows,
        ):
            stream = b"".join(rows)
        return decode(stream, int_key=self._int_key)

    def close(self) -> None:
        self._session.close()


class _Lookup:
    """The SELECT of (join key, row) behind a lookup, for the pipeline's kind of key."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._key_type = pipeline.key_type
        self._part_types = [pipeline.source.fields[name].type for name in pipeline.key]
        self._columns = [sql.Identifier("r", column) for column in pipeline.master.key]
        table = sql.Identifier(*(part for part in pipeline.master.relation if part))
        if pipeline.join.takes_columns:
            members = sql.SQL(", ").join(
                sql.SQL("r.{} AS {}").format(sql.Identifier(column), sql.Identifier(name))
                for column, name in pipeline.master.columns.items()
            )
            row = sql.SQL("(SELECT row_to_json(x)::text FROM (SELECT {}) x)").format(members)
            self._select = sql.SQL("SELECT {}, {} FROM {} r").format(self._key(), row, table)
        else:
            # Semi and anti joins ask only whether there is a row.
            self._select = sql.SQL("SELECT DISTINCT {}, ''::text FROM {} r").format(
                self._key(), table
            )

    def _key(self) -> sql.Composable:
        if self._key_type is KeyType.INT:
            return sql.SQL("{}::bigint").format(self._columns[0])
        parts = [sql.SQL("{}::text").format(column) for column in self._columns]
        return sql.SQL(f" || chr({SEPARATOR}) || ").join(parts)

    def by_keys(self, keys: JoinKeys) -> sql.Composed:
        arrays = list(self._arrays(keys))
        if len(arrays) == 1:
            # By ANY and not by a join: an index scan, however many keys there are.
            return sql.SQL("{} WHERE {} = ANY ({})").format(
                self._select, self._columns[0], arrays[0]
            )
        names = [sql.Identifier("k", f"k{i}") for i in range(len(arrays))]
        equal = sql.SQL(" AND ").join(
            sql.SQL("{} = {}").format(column, name)
            for column, name in zip(self._columns, names, strict=True)
        )
        return sql.SQL("{} JOIN unnest({}) AS k ({}) ON {}").format(
            self._select,
            sql.SQL(", ").join(arrays),
            sql.SQL(", ").join(sql.Identifier(f"k{i}") for i in range(len(arrays))),
            equal,
        )

    def _arrays(self, keys: JoinKeys) -> Iterator[sql.Composed]:
        """An array for each part of the key, as long as there are keys."""
        if self._key_type is KeyType.INT:
            yield _array(FieldType.INT, keys.values.tolist())
            return
        cuts = len(self._part_types) - 1
        texts = [keys.texts[i].decode().split(chr(SEPARATOR), cuts) for i in range(len(keys))]
        for part, kind in enumerate(self._part_types):
            yield _array(kind, [text[part] for text in texts])


def _array(kind: FieldType, values: list[int] | list[str]) -> sql.Composed:
    if kind is FieldType.INT:
        # Written here, because psycopg would adapt every number by itself.
        listed = ",".join(map(str, values))
        return sql.SQL("{}::bigint[]").format(sql.Literal(f"{{{listed}}}"))
    return sql.SQL("{}::text[]").format(sql.Literal(values))
