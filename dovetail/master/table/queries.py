"""The SQL of the three requests, and that of the snapshot a scan is read in.

Every request gives a single value: the binary records of all its rows, end to end. So a read is
one message, whatever it holds, and neither libpq nor Python handles a row. A record is the row's
place, its join key, and whatever the caller takes of a row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, LiteralString

from psycopg import sql

from dovetail.join.keys import SEPARATOR, hash_sql, slot_sql
from dovetail.master.table.description import table_identifier

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from dovetail.join.columns import JoinKeys
    from dovetail.master.table.description import Key
    from dovetail.master.table.types import Sent

_TRUE = sql.SQL("true")
# In recovery the text leaves out what is in progress, so it says nothing about equality.
_SNAPSHOT: LiteralString = """
SELECT CASE WHEN NOT pg_is_in_recovery() THEN pg_current_snapshot()::text END,
       coalesce(pg_relation_size(c.oid) / current_setting('block_size')::int8, 0),
       concat(c.oid, ' ', (SELECT string_agg(concat(i.indexrelid, i.indisvalid), ' ' ORDER BY 1)
                           FROM pg_index i WHERE i.indrelid = c.oid))
FROM pg_class c
WHERE c.oid = {}::regclass AND c.relname = {}
      AND c.relfilenode = coalesce(pg_relation_filenode(c.oid), 0)
"""


def columns_of(columns: Sequence[tuple[str, Sent]]) -> list[sql.Composable]:
    """A row as its columns."""
    return [
        sql.SQL("r.{}::text" if sent.as_text else "r.{}").format(sql.Identifier(name))
        for name, sent in columns
    ]


class Queries:
    """`row` is what is taken of each row `r`; with `once`, a key that was looked up gives one."""

    def __init__(
        self,
        table: str,
        key: Key,
        row: Sequence[sql.Composable],
        *,
        where: str | None = None,
        once: bool = False,
    ) -> None:
        self._table = table_identifier(table)
        self._name = table.split(".", 1)[-1]
        self._key = key
        self._row = row
        self._where: sql.Composable = sql.SQL("({})").format(sql.SQL(where)) if where else _TRUE
        self._kept: sql.Composable = _TRUE
        self._once = once

    def keep(self, slots: Collection[int] | None, of: int) -> None:
        """Let `blocks` give the rows of these slots alone; None = of all."""
        if slots is None:
            self._kept = _TRUE
            return
        self._kept = sql.SQL("{} = ANY ({}::int4[])").format(self._slot(of), sql.Literal([*slots]))

    def blocks(self, first: int, end: int | None) -> sql.Composed:
        """The rows of heap blocks `first` up to `end`, or up to the last there is by then."""
        place = sql.SQL("r.ctid >= {}::tid").format(sql.Literal(f"({first},0)"))
        if end is not None:
            place += sql.SQL(" AND r.ctid < {}::tid").format(sql.Literal(f"({end},0)"))
        rows = sql.SQL("{} r WHERE {} AND {} AND {}").format(
            self._table, place, self._where, self._kept
        )
        return self._records(sql.SQL("r.ctid"), rows)

    def range(self, key: JoinKeys, rows: int) -> sql.Composed:
        """The first so many rows from this key on, in the order of the index."""
        columns = sql.SQL(", ").join(sql.Identifier("r", name) for name in self._key.ordered)
        parts = dict(zip(self._key.columns, self._literals(key), strict=True))
        start = sql.SQL(", ").join(parts[name] for name in self._key.ordered)
        # A later part may be NULL in a row behind the first key; such a row has no key.
        known = sql.SQL(" AND ").join(
            sql.SQL("{} IS NOT NULL").format(sql.Identifier("r", name))
            for name in self._key.columns
        )
        within = sql.SQL(
            "(SELECT * FROM {} r WHERE ({}) >= ({}) AND {} AND {} ORDER BY {} LIMIT {}) r"
        ).format(self._table, columns, start, known, self._where, columns, sql.Literal(rows))
        return self._records(sql.SQL("NULL::tid"), within)

    def keys(self, keys: JoinKeys, rows: int | None) -> sql.Composed:
        """All rows of these keys, or so many of them."""
        arrays = list(self._arrays(keys))
        columns = [sql.Identifier("r", name) for name in self._key.columns]
        if len(arrays) == 1:
            # By ANY and not by a join: an index scan, however many keys there are.
            found = sql.SQL("{} r WHERE {} = ANY ({}) AND {}").format(
                self._table, columns[0], arrays[0], self._where
            )
        else:
            names = [sql.Identifier(f"k{i}") for i in range(len(arrays))]
            equal = sql.SQL(" AND ").join(
                sql.SQL("{} = k.{}").format(column, name)
                for column, name in zip(columns, names, strict=True)
            )
            found = sql.SQL("{} r JOIN unnest({}) AS k ({}) ON {} WHERE {}").format(
                self._table,
                sql.SQL(", ").join(arrays),
                sql.SQL(", ").join(names),
                equal,
                self._where,
            )
        taken: sql.Composable = sql.SQL("r.*")
        if self._once:
            taken = sql.SQL("DISTINCT {}").format(sql.SQL(", ").join(columns))
        within = sql.SQL("(SELECT {} FROM {} LIMIT {}) r").format(taken, found, sql.Literal(rows))
        return self._records(sql.SQL("NULL::tid"), within)

    def split(self, slots: int, *, by_place: bool) -> sql.Composed:
        """Every row that has a key, as columns: its place, slot, the key's value and text, the row.

        For whoever reads rows apart from the engine: `place` can be compared with a tid, and is
        NULL unless there are heap blocks to read by.
        """
        key = self._canonical()
        value: sql.Composable = key
        text: sql.Composable = sql.SQL("''::text")
        if not self._key.is_int:
            value, text = sql.SQL(hash_sql(key.as_string(None), "text")), key
        return sql.SQL(
            "SELECT {} AS place, {} AS slot, {} AS value, {} AS text, {} AS row"
            " FROM {} r WHERE ({}) IS NOT NULL AND {}"
        ).format(
            sql.SQL("r.ctid" if by_place else "NULL::tid"),
            self._slot(slots),
            value,
            text,
            self._row[0],
            self._table,
            key,
            self._where,
        )

    def block_count(self) -> sql.Composed:
        """The number of heap blocks, as the bytes of an int8."""
        return sql.SQL(
            "SELECT int8send(pg_relation_size({}::regclass) / current_setting('block_size')::int8)"
        ).format(sql.Literal(self._table.as_string(None)))

    def lock(self) -> sql.Composed:
        """Nothing; but whoever would replace the table waits for the transaction's end."""
        return sql.SQL("SELECT FROM {} LIMIT 0").format(self._table)

    def snapshot(self) -> sql.Composed:
        """The transaction's snapshot, the heap blocks, and the indexes; for cycle.py.

        No row if the table was replaced or rewritten after the snapshot and before the lock: the
        snapshot sees the catalogue as it was, the functions see it as it is.
        """
        return sql.SQL(_SNAPSHOT).format(
            sql.Literal(self._table.as_string(None)), sql.Literal(self._name)
        )

    def _records(self, place: sql.Composable, rows: sql.Composable) -> sql.Composed:
        fields = sql.SQL(", ").join([place, self._canonical(), *self._row])
        return sql.SQL("SELECT string_agg(record_send(ROW({})), ''::bytea) FROM {}").format(
            fields, rows
        )

    def _slot(self, of: int) -> sql.Composable:
        key = self._canonical().as_string(None)
        return sql.SQL(slot_sql(key, "int" if self._key.is_int else "text", of))

    def _canonical(self) -> sql.Composable:
        """The join key as every other side of the join writes it (keys.py); NULL if a part is."""
        columns = [sql.Identifier("r", name) for name in self._key.columns]
        if not columns:
            return sql.SQL("0::bigint")
        if self._key.is_int:
            return sql.SQL("{}::bigint").format(columns[0])
        parts = [sql.SQL("{}::text").format(column) for column in columns]
        return sql.SQL(f" || chr({SEPARATOR}) || ").join(parts)

    def _literals(self, key: JoinKeys) -> Iterator[sql.Composed]:
        for values, is_int in self._parts(key):
            kind = sql.SQL("bigint" if is_int else "text")
            yield sql.SQL("{}::{}").format(sql.Literal(values[0]), kind)

    def _arrays(self, keys: JoinKeys) -> Iterator[sql.Composed]:
        """An array for each part of the key, as long as there are keys."""
        for values, is_int in self._parts(keys):
            if is_int:
                # Written here, because psycopg would adapt every number by itself.
                listed = ",".join(values)
                yield sql.SQL("{}::bigint[]").format(sql.Literal(f"{{{listed}}}"))
            else:
                yield sql.SQL("{}::text[]").format(sql.Literal(values))

    def _parts(self, keys: JoinKeys) -> Iterator[tuple[list[str], bool]]:
        if self._key.is_int:
            yield [str(value) for value in keys.values.tolist()], True
            return
        cuts = len(self._key.columns) - 1
        texts = [text.decode().split(chr(SEPARATOR), cuts) for text in keys.texts]
        for part, is_int in enumerate(self._key.ints):
            yield [text[part] for text in texts], is_int
