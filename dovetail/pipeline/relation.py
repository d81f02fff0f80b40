"""A master table as PostgreSQL's catalogue describes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from psycopg import sql
from psycopg.rows import class_row, scalar_row

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    import psycopg

_COLUMNS = """
WITH RECURSIVE typed AS (
    SELECT a.attnum, a.attname, a.atttypid AS type, a.attcollation, a.atttypid, a.atttypmod
    FROM pg_attribute a
    WHERE a.attrelid = %(oid)s AND a.attnum > 0 AND NOT a.attisdropped
  UNION ALL
    SELECT typed.attnum, attname, t.typbasetype, attcollation, atttypid, atttypmod
    FROM typed JOIN pg_type t ON t.oid = typed.type
    WHERE t.typtype = 'd'
)
SELECT attname::text AS name, t.typname::text AS type, format_type(atttypid, atttypmod) AS written,
       coalesce(c.collisdeterministic, true) AS deterministic
FROM typed
JOIN pg_type t ON t.oid = typed.type AND t.typtype <> 'd'
LEFT JOIN pg_collation c ON c.oid = attcollation
ORDER BY attnum
"""

_INDEXES = """
SELECT c.relname::text AS name, i.indisunique AS is_unique,
       array_agg(a.attname::text ORDER BY k.place) AS columns
FROM pg_index i
JOIN pg_class c ON c.oid = i.indexrelid
JOIN pg_am m ON m.oid = c.relam AND m.amname IN ('btree', 'hash')
CROSS JOIN LATERAL unnest(i.indkey::int2[], i.indcollation::oid[]) WITH ORDINALITY
     AS k (attnum, collated, place)
LEFT JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
     AND a.attcollation = k.collated
WHERE i.indrelid = %(oid)s AND i.indisvalid AND i.indpred IS NULL
      AND k.place <= i.indnkeyatts
GROUP BY c.relname, i.indisunique
"""

_RELATION = """
SELECT c.oid::int8 AS oid,
       CASE WHEN c.relkind = 'r' AND EXISTS (SELECT FROM pg_inherits i WHERE i.inhparent = c.oid)
            THEN 'i' ELSE c.relkind END::text AS kind, c.relispopulated AS populated,
       c.relrowsecurity AS row_security, c.reltuples::float8 AS about_rows,
       (WITH RECURSIVE read AS (
            SELECT c.oid, c.relkind, c.reltoastrelid
          UNION ALL
            SELECT p.oid, p.relkind, p.reltoastrelid FROM read
            JOIN pg_inherits h ON h.inhparent = read.oid JOIN pg_class p ON p.oid = h.inhrelid
        ) SELECT bool_or(relkind IN ('v', 'f') OR coalesce(pg_relation_size(reltoastrelid), 0) > 0)
        FROM read) AS may_be_long
FROM pg_class c WHERE c.oid = to_regclass(%(name)s)
"""

_NAMES = """
SELECT CASE WHEN pg_table_is_visible(c.oid) THEN c.relname
            ELSE n.nspname || '.' || c.relname END::text
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'm', 'v', 'f')
  AND n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname NOT LIKE 'pg\\_%%'
"""

KINDS = {
    "r": "a table",
    # Not relkind's: SELECT reads its own rows and those of the tables that inherit from it.
    "i": "a table that others inherit from",
    "p": "a partitioned table",
    "m": "a materialised view",
    "v": "a view",
    "f": "a foreign table",
}


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    type: str
    """The type's own name in the catalogue; of a domain, that of what it is built on."""
    written: str
    """The type as one writes it in SQL."""
    deterministic: bool


@dataclass(frozen=True, slots=True)
class Index:
    name: str
    is_unique: bool
    columns: list[str | None]
    """None stands for an expression, or for a column under a collation that is not its own."""

    def finds(self, key: Collection[str]) -> bool:
        """Tell whether a lookup by all of the key's columns reads only the rows it wants."""
        return set(self.columns[: len(key)]) == set(key)

    def singles_out(self, key: Collection[str]) -> bool:
        return self.is_unique and set(self.columns) <= set(key)


@dataclass(frozen=True, slots=True)
class Relation:
    oid: int
    kind: str
    populated: bool
    row_security: bool
    about_rows: float
    """An estimate; negative before the table was first analysed."""
    may_be_long: bool
    """Whether rows have values outside of their block (TOAST), or nobody can tell."""


class Catalogue:
    """Looks things up over a connection that the caller owns."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection

    def relation(self, table: sql.Identifier) -> Relation | None:
        name = table.as_string(self._connection)
        with self._connection.cursor(row_factory=class_row(Relation)) as cursor:
            return cursor.execute(_RELATION, {"name": name}).fetchone()

    def relation_names(self) -> list[str]:
        with self._connection.cursor(row_factory=scalar_row) as cursor:
            return list(cursor.execute(_NAMES))

    def columns(self, relation: Relation) -> Mapping[str, Column]:
        with self._connection.cursor(row_factory=class_row(Column)) as cursor:
            columns = cursor.execute(_COLUMNS, {"oid": relation.oid})
            return {column.name: column for column in columns}

    def indexes(self, relation: Relation) -> list[Index]:
        """Those that hold for all that is read: a parent's say nothing of its children's rows."""
        if relation.kind == "i":
            return []
        with self._connection.cursor(row_factory=class_row(Index)) as cursor:
            return cursor.execute(_INDEXES, {"oid": relation.oid}).fetchall()

    def encoding(self) -> str:
        with self._connection.cursor(row_factory=scalar_row) as cursor:
            return str(cursor.execute("SHOW server_encoding").fetchone())

    def has_rows(self, table: sql.Identifier) -> bool:
        query = sql.SQL("SELECT EXISTS (SELECT FROM {})").format(table)
        with self._connection.cursor(row_factory=scalar_row) as cursor:
            return bool(cursor.execute(query).fetchone())

    def scans(self, table: sql.Identifier, key: Mapping[str, str]) -> bool:
        """Tell whether a lookup reads all of a table even where the planner is told to avoid it.

        `key` has each column and the SQL type of what it is compared with.
        """
        wanted = sql.SQL(" AND ").join(
            sql.SQL("{} = '0'::{}").format(sql.Identifier(column), sql.Identifier(of))
            for column, of in key.items()
        )
        query = sql.SQL("EXPLAIN (FORMAT JSON) SELECT FROM {} WHERE {}").format(table, wanted)
        with (
            self._connection.transaction(),
            self._connection.cursor(row_factory=scalar_row) as cursor,
        ):
            cursor.execute("SET LOCAL enable_seqscan = off")
            (explained,) = cursor.execute(query).fetchall()[0]
        return _reads_all(explained["Plan"])


def _reads_all(plan: Mapping[str, Any]) -> bool:
    """Tell a whole scan, be it of the heap or of an index from end to end."""
    kind = plan["Node Type"]
    whole = kind == "Seq Scan" or ("Index" in kind and "Index Cond" not in plan)
    return whole or any(_reads_all(part) for part in plan.get("Plans", ()))
