"""Master rows from a PostgreSQL table, by batches of keys.

The database itself encodes a row for the output (`row_to_json`, so that every type looks
as SQL's users know it) and its join key canonically, and sends both as one binary COPY
stream: what arrives is cut into columns and never touched again.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import psycopg
from psycopg import sql

from dovetail.errors import Unavailable
from dovetail.join.keys import SEPARATOR
from dovetail.master.copy_binary import decode
from dovetail.pipeline.spec import KeyType

if TYPE_CHECKING:
    from dovetail.join.columns import JoinKeys
    from dovetail.join.entry import MasterRows
    from dovetail.pipeline.spec import Pipeline

log = logging.getLogger(__name__)


class PostgresMaster:
    """Reads the pipeline's master table over one connection, made anew when it is lost."""

    def __init__(self, database_url: str, pipeline: Pipeline) -> None:
        self._url = database_url
        self._pipeline = pipeline
        self._int_key = pipeline.key_type is KeyType.INT
        self._connection: psycopg.Connection | None = None
        self._text = _Query(pipeline)

    def rows_of(self, keys: JoinKeys) -> MasterRows:
        query = self._text.by_keys(keys)
        try:
            stream = self._copy(query)
        except psycopg.OperationalError as error:
            self.close()
            raise Unavailable(f"PostgreSQL cannot be read: {str(error).strip()}") from error
        return decode(stream, int_key=self._int_key)

    def _copy(self, query: sql.Composed) -> bytes:
        if self._connection is None:
            self._connection = psycopg.connect(self._url, autocommit=True, connect_timeout=10)
            self._connection.execute("SET TimeZone = 'UTC'")
            self._connection.execute("SET extra_float_digits = 1")
        statement = sql.SQL("COPY ({}) TO STDOUT (FORMAT BINARY)").format(query)
        with self._connection.cursor() as cursor, cursor.copy(statement) as stream:
            return b"".join(stream)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class _Query:
    """The SELECT behind a lookup, for the pipeline's kind of key."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._key_type = pipeline.key_type
        self._event_types = [pipeline.source.fields[name].type for name in pipeline.key]
        self._columns = [sql.Identifier("r", column) for column in pipeline.master.key]
        self._table = sql.Identifier(*pipeline.master.table.split("."))
        if pipeline.join.takes_columns:
            members = sql.SQL(", ").join(
                sql.SQL("r.{} AS {}").format(sql.Identifier(column), sql.Identifier(name))
                for column, name in pipeline.master.columns.items()
            )
            row = sql.SQL("(SELECT row_to_json(x)::text FROM (SELECT {}) x)").format(members)
            self._head = sql.SQL("SELECT {}, {} FROM {} r").format(self._key(), row, self._table)
        else:
            # Semi and anti joins ask only whether there is a row.
            self._head = sql.SQL("SELECT DISTINCT {}, ''::text FROM {} r").format(
                self._key(), self._table
            )

    def _key(self) -> sql.Composable:
        if self._key_type is KeyType.INT:
            return sql.SQL("{}::bigint").format(self._columns[0])
        parts = [sql.SQL("{}::text").format(column) for column in self._columns]
        return sql.SQL(f" || chr({SEPARATOR}) || ").join(parts)

    def by_keys(self, keys: JoinKeys) -> sql.Composed:
        if self._key_type is KeyType.INT:
            wanted = sql.Literal("{%s}" % ",".join(map(str, keys.values.tolist())))
            return sql.SQL("{} WHERE {} = ANY ({}::bigint[])").format(
                self._head, self._columns[0], wanted
            )
        texts = [keys.texts[i].decode() for i in range(len(keys))]
        if self._key_type is KeyType.TEXT:
            return sql.SQL("{} WHERE {} = ANY ({}::text[])").format(
                self._head, self._columns[0], sql.Literal(texts)
            )
        parts = list(zip(*(text.split(chr(SEPARATOR)) for text in texts), strict=True))
        arrays = [
            sql.SQL("{}::bigint[]" if kind == "int" else "{}::text[]").format(
                sql.Literal(list(map(int, part)) if kind == "int" else list(part))
            )
            for kind, part in zip(self._event_types, parts, strict=True)
        ]
        names = [sql.Identifier(f"k{i}") for i in range(len(parts))]
        equal = sql.SQL(" AND ").join(
            sql.SQL("{} = k.{}").format(column, name)
            for column, name in zip(self._columns, names, strict=True)
        )
        return sql.SQL("{} JOIN unnest({}) AS k ({}) ON {}").format(
            self._head, sql.SQL(", ").join(arrays), sql.SQL(", ").join(names), equal
        )

