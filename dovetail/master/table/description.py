"""What PostgreSQL's catalogue says about a table, as far as a join has to know it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from psycopg import sql
from psycopg.rows import scalar_row

from dovetail.errors import ConfigError, MasterDataError
from dovetail.pipeline.column_types import INTS, TEXTS, why_not_key
from dovetail.pipeline.hints import did_you_mean
from dovetail.pipeline.relation import KINDS, Catalogue
from dovetail.pipeline.shape import FieldType

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import psycopg

    from dovetail.pipeline.relation import Column, Index

_HEAPS = frozenset({"r", "m"})
_ORDERED = """
SELECT c.relname::text FROM pg_index i
JOIN pg_class c ON c.oid = i.indexrelid
JOIN pg_am m ON m.oid = c.relam AND m.amname = 'btree'
WHERE i.indrelid = %s
"""


@dataclass(frozen=True, slots=True)
class Key:
    """The columns that rows are joined by."""

    columns: tuple[str, ...]
    ints: tuple[bool, ...]
    """Whether each column is of ints; of text otherwise."""
    ordered: tuple[str, ...]
    """The columns as an ordered index has them; none if there is no such index."""
    findable: bool
    """Whether an index finds the rows of a key."""
    unique: bool

    @property
    def is_int(self) -> bool:
        """Whether it is one int; without columns, as a condition has it, 0 for all rows."""
        return self.ints in {(True,), ()}


@dataclass(frozen=True, slots=True)
class Description:
    table: str
    kind: str
    columns: Mapping[str, Column]
    indexes: Sequence[Index]
    ordered: frozenset[str]
    """Names of the indexes that are B-trees."""
    may_be_long: bool
    """Whether rows may be longer than a block, so that no count of them bounds a read."""

    @property
    def has_pages(self) -> bool:
        """Whether rows lie in one heap, whose blocks can be read by their number."""
        return self.kind in _HEAPS

    @property
    def what(self) -> str:
        return KINDS.get(self.kind, "no table")

    def texts_among(self, columns: Sequence[str]) -> list[str]:
        """Those that have no other bound than PostgreSQL's own."""
        return [n for n in columns if n in self.columns and self.columns[n].type in TEXTS]

    def key(self, columns: Sequence[str]) -> Key:
        parts = [self.columns[name] for name in columns]
        for part in parts:
            kind = FieldType.INT if part.type in INTS else FieldType.TEXT
            if reason := why_not_key(part, part.name, kind):
                raise ConfigError(reason)
        finding = [index for index in self.indexes if index.finds(columns)]
        ordered = next((i.columns for i in finding if i.name in self.ordered), [])
        return Key(
            tuple(columns),
            tuple(part.type not in TEXTS for part in parts),
            tuple(name for name in ordered[: len(columns)] if name is not None),
            findable=bool(finding),
            unique=any(index.singles_out(columns) for index in self.indexes),
        )


def table_identifier(table: str) -> sql.Identifier:
    return sql.Identifier(*table.split(".", 1))


def describe(connection: psycopg.Connection[Any], table: str) -> Description:
    catalogue = Catalogue(connection)
    relation = catalogue.relation(table_identifier(table))
    if relation is None:
        near = did_you_mean(table, catalogue.relation_names())
        raise MasterDataError(f"there is no table {table!r} in the database{near}")
    with connection.cursor(row_factory=scalar_row) as cursor:
        ordered = frozenset(cursor.execute(_ORDERED, (relation.oid,)))
    return Description(
        table,
        relation.kind,
        catalogue.columns(relation),
        catalogue.indexes(relation),
        ordered,
        relation.may_be_long,
    )
