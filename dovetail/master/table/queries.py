"""The SQL of the three requests, and that of the snapshot a scan is read in.

Every request gives a single value: the binary records of all its rows, end to end. So a read is
one message, whatever it holds, and neither libpq nor Python handles a row. A record is the row's
place, its join key, and whatever the caller takes of a row.

A table whose rows may be long is read up to as many bytes as its texts take together (`bound_by`):
the database looks how long they are, which it need not read them for, and builds no more. That
costs about a third of the time of encoding short rows, so others are read without.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, LiteralString

from psycopg import sql

from dovetail.join.keys import SEPARATOR, hash_sql, slot_sql
from dovetail.master.table.description import table_identifier

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from dovetail.join.columns import JoinKeys
    from dovetail.join.keys import KeyType
    from dovetail.master.table.description import Key
    from dovetail.master.table.types import Sent

_TRUE = sql.SQL("true")
# In recovery the text leaves out what is in progress, so it says nothing about equality.
_SNAPSHOT: LiteralString = """
SELECT CASE WHEN NOT pg_is_in_recovery() THEN pg_current_snapshot()::text END,
       coalesce(pg_relation_size(c.oid) / current_setting('block_size')::int8, 0),
       concat(c.oid, EXISTS (SELECT FROM pg_inherits h WHERE h.inhparent = c.oid),
              pg_relation_size(c.reltoastrelid) > 0, ' ',
              (SELECT string_agg(concat(i.indexrelid, i.indisvalid), ' ' ORDER BY 1)
               FROM pg_index i WHERE i.indrelid = c.oid))
FROM pg_class c
WHERE c.oid = {}::regclass AND c.relname = {}
      AND c.relfilenode = coalesce(pg_relation_filenode(c.oid), 0)
"""


def surely_over(most: int) -> int:
    """Bytes of texts in the database that are more than `most` as UTF-8, however it is encoded.

    A character of EUC_TW has four bytes, and three in UTF-8.
    """
    return most + most // 2


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
        # Tables that inherit from it have blocks of their own, with the same numbers.
        self._heap = sql.SQL("ONLY {}").format(self._table)
        self._name = table.split(".", 1)[-1]
        self._key = key
        self._row = row
        self._where: sql.Composable = sql.SQL("({})").format(sql.SQL(where)) if where else _TRUE
        self._kept: sql.Composable = _TRUE
        self.share = 1.0
        """How many of the slots are kept, of one."""
        self._once = once
        self._texts: Sequence[str] = ()

    def keep(self, slots: Collection[int] | None, of: int) -> None:
        """Let reads give the rows of these slots alone; None = of all."""
        if slots is None:
            self._kept, self.share = _TRUE, 1.0
            return
        self.share = max(1, len(slots)) / of
        self._kept = sql.SQL("{} = ANY ({}::int4[])").format(self._slot(of), sql.Literal([*slots]))

    def bound_by(self, texts: Sequence[str]) -> None:
        """Let a read end at the row with which these columns take more bytes than are asked for.

        All of them go into a read, so that what was ended looks longer than was asked for.
        """
        self._texts = texts

    def blocks(self, first: int, end: int | None, most: int) -> sql.Composed:
        """The rows of heap blocks `first` up to `end`, or up to the last there is by then."""
        placed = self._placed(first << 16, end)
        if self._texts:  # rows without a key are not in the read, whatever they take
            placed += sql.SQL(" AND {}").format(self._has_key())
        rows = sql.SQL("(SELECT r.ctid, r.* FROM {} r WHERE {}) r").format(self._heap, placed)
        return self._records(sql.SQL("r.ctid"), rows, most)

    def rest_of_block(self, place: int, end: int | None, rows: int, most: int) -> sql.Composed:
        """The first so many rows with a key, from a place on (records.py) up to block `end`."""
        within = sql.SQL(
            "(SELECT r.ctid, r.* FROM {} r WHERE {} AND {} ORDER BY r.ctid LIMIT {}) r"
        ).format(self._heap, self._placed(place, end), self._has_key(), sql.Literal(rows))
        return self._records(sql.SQL("r.ctid"), within, most)

    def bound(self, key: JoinKeys, grain: int, far: int, *, behind: bool) -> sql.Composed:
        """The nearest key that begins a partition, from this one back or `behind` it.

        With whether it does: if none of the next `far` rows has such a key, it is the last one's.
        """
        order = sql.SQL(", ").join(
            sql.SQL("{} {}").format(column, sql.SQL("ASC" if behind else "DESC"))
            for column in self._ordered()
        )
        start = sql.SQL("({}) {} ({})").format(
            self._in_order(), sql.SQL(">" if behind else "<="), self._at(self._values(key))
        )
        begins = sql.SQL("{} & {} = 0").format(self._hash(), sql.Literal(grain - 1))
        return sql.SQL(
            "SELECT {key}, {begins} FROM (SELECT {columns}, row_number() OVER (ORDER BY {order})"
            " AS nth FROM {table} r WHERE {start} AND {known} ORDER BY {order} LIMIT {far}) r"
            " WHERE {begins} OR nth = {far} LIMIT 1"
        ).format(
            key=self._canonical(),
            begins=begins,
            columns=self._in_order(),
            order=order,
            table=self._table,
            start=start,
            known=self._has_key(),
            far=sql.Literal(far),
        )

    def range(
        self, first: str | int | None, end: str | int | None, rows: int, most: int
    ) -> sql.Composed:
        """The first so many rows from one key on and before another, in the order of the index."""
        # A later part may be NULL in a row behind the first key; such a row has no key.
        wanted = [self._has_key(), self._where, self._kept]
        for bound, compared in ((first, ">="), (end, "<")):
            if bound is not None:
                at = self._at(self._split([bound]))
                parts = self._in_order(), sql.SQL(compared), at
                wanted.append(sql.SQL("({}) {} ({})").format(*parts))
        within = sql.SQL("(SELECT * FROM {} r WHERE {} ORDER BY {} LIMIT {}) r").format(
            self._table, sql.SQL(" AND ").join(wanted), self._in_order(), sql.Literal(rows)
        )
        return self._records(sql.SQL("NULL::tid"), within, most)

    def keys(self, keys: JoinKeys, rows: int, most: int) -> sql.Composed:
        """All rows of these keys, or so many of them."""
        arrays = list(self._arrays(keys))
        columns = [sql.Identifier("r", name) for name in self._key.columns]
        if len(arrays) == 1:
            # By ANY and not by a join: an index scan, however many keys there are.
            found = sql.SQL("{} r WHERE {} = ANY ({}) AND {} AND {}").format(
                self._table, columns[0], arrays[0], self._where, self._kept
            )
        else:
            names = [sql.Identifier(f"k{i}") for i in range(len(arrays))]
            equal = sql.SQL(" AND ").join(
                sql.SQL("{} = k.{}").format(column, name)
                for column, name in zip(columns, names, strict=True)
            )
            found = sql.SQL("{} r JOIN unnest({}) AS k ({}) ON {} WHERE {} AND {}").format(
                self._table,
                sql.SQL(", ").join(arrays),
                sql.SQL(", ").join(names),
                equal,
                self._where,
                self._kept,
            )
        taken: sql.Composable = sql.SQL("r.*")
        if self._once:
            taken = sql.SQL("DISTINCT {}").format(sql.SQL(", ").join(columns))
        within = sql.SQL("(SELECT {} FROM {} LIMIT {}) r").format(taken, found, sql.Literal(rows))
        return self._records(sql.SQL("NULL::tid"), within, most)

    def split(self, slots: int, *, by_place: bool) -> sql.Composed:
        """Every row that has a key, as columns: its place, slot, the key's value and text, the row.

        For whoever reads rows apart from the engine: `place` can be compared with a tid, and is
        NULL unless there are heap blocks to read by.
        """
        key = self._canonical()
        value: sql.Composable = key
        text: sql.Composable = sql.SQL("''::text")
        if not self._key.is_int:
            value, text = self._hash(), key
        return sql.SQL(
            "SELECT {} AS place, {} AS slot, {} AS value, {} AS text, {} AS row"
            " FROM {} r WHERE ({}) IS NOT NULL AND {}"
        ).format(
            sql.SQL("r.ctid" if by_place else "NULL::tid"),
            self._slot(slots),
            value,
            text,
            self._row[0],
            self._heap if by_place else self._table,
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

    def _records(self, place: sql.Composable, rows: sql.Composable, most: int) -> sql.Composed:
        fields = sql.SQL(", ").join([place, self._canonical(), *self._row])
        if self._texts:
            rows = self._bounded(rows, most)
        return sql.SQL("SELECT string_agg(record_send(ROW({})), ''::bytea) FROM {}").format(
            fields, rows
        )

    def _bounded(self, rows: sql.Composable, most: int) -> sql.Composed:
        """The first of these rows, up to the one with which their texts take more than `most`."""
        lengths = sql.SQL(" + ").join(
            sql.SQL("coalesce(octet_length({}), 0)").format(sql.Identifier("r", name))
            for name in self._texts
        )
        before = sql.Identifier("bytes before")
        return sql.SQL(
            "(SELECT r.*, sum({}) OVER (ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS {}"
            " FROM {}) r WHERE coalesce(r.{}, 0) <= {}"
        ).format(lengths, before, rows, before, sql.Literal(most))

    def _placed(self, place: int, end: int | None) -> sql.Composed:
        """Whether a row lies between a place and a block, and is wanted."""
        first = sql.Literal(f"({place >> 16},{place & 0xFFFF})")
        within = sql.SQL("r.ctid >= {}::tid").format(first)
        if end is not None:
            within += sql.SQL(" AND r.ctid < {}::tid").format(sql.Literal(f"({end},0)"))
        return sql.SQL("{} AND {} AND {}").format(within, self._where, self._kept)

    def _has_key(self) -> sql.Composable:
        columns = [sql.Identifier("r", name) for name in self._key.columns]
        if not columns:
            return _TRUE
        return sql.SQL(" AND ").join(sql.SQL("{} IS NOT NULL").format(name) for name in columns)

    def _slot(self, of: int) -> sql.Composable:
        return sql.SQL(slot_sql(self._canonical().as_string(None), self._key_type, of))

    def _hash(self) -> sql.Composable:
        return sql.SQL(hash_sql(self._canonical().as_string(None), self._key_type))

    @property
    def _key_type(self) -> KeyType:
        return "int" if self._key.is_int else "text"

    def _canonical(self) -> sql.Composable:
        """The join key as every other side of the join writes it (keys.py); NULL if a part is."""
        columns = [sql.Identifier("r", name) for name in self._key.columns]
        if not columns:
            return sql.SQL("0::bigint")
        if self._key.is_int:
            return sql.SQL("{}::bigint").format(columns[0])
        parts = [sql.SQL("{}::text").format(column) for column in columns]
        return sql.SQL(f" || chr({SEPARATOR}) || ").join(parts)

    def _ordered(self) -> list[sql.Identifier]:
        """The key's columns as the index has them."""
        return [sql.Identifier("r", name) for name in self._key.ordered]

    def _in_order(self) -> sql.Composed:
        return sql.SQL(", ").join(self._ordered())

    def _at(self, parts: Iterable[tuple[list[str], bool]]) -> sql.Composed:
        """One key's parts, in the order of the index."""
        literals = {
            name: sql.SQL("{}::{}").format(
                sql.Literal(values[0]), sql.SQL("bigint" if is_int else "text")
            )
            for name, (values, is_int) in zip(self._key.columns, parts, strict=True)
        }
        return sql.SQL(", ").join(literals[name] for name in self._key.ordered)

    def _arrays(self, keys: JoinKeys) -> Iterator[sql.Composed]:
        """An array for each part of the key, as long as there are keys."""
        for values, is_int in self._values(keys):
            if is_int:
                # Written here, because psycopg would adapt every number by itself.
                listed = ",".join(values)
                yield sql.SQL("{}::bigint[]").format(sql.Literal(f"{{{listed}}}"))
            else:
                yield sql.SQL("{}::text[]").format(sql.Literal(values))

    def _values(self, keys: JoinKeys) -> Iterator[tuple[list[str], bool]]:
        """For each part of the key what it is in all of these, and whether that is an int."""
        if self._key.is_int:
            return self._split(keys.values.tolist())
        return self._split([text.decode() for text in keys.texts])

    def _split(self, keys: Sequence[str | int]) -> Iterator[tuple[list[str], bool]]:
        cuts = len(self._key.columns) - 1
        texts = [str(key).split(chr(SEPARATOR), cuts) for key in keys]
        for part, is_int in enumerate(self._key.ints):
            yield [text[part] for text in texts], is_int
