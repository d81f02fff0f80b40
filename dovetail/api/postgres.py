"""A PostgreSQL table to join with."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from dovetail.errors import ConfigError
from dovetail.join.exchange import Keys, Pages
from dovetail.master.table.description import Description, describe, table_identifier
from dovetail.master.table.relation import PostgresRelation, arrow_schema, session_for
from dovetail.pipeline.relation import Catalogue

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from dovetail.api.source import Relation
    from dovetail.join.exchange import Request

_LOOKED_UP = "srj"
_SCANNED = "ssbj, meshjoin, cmeshjoin"


class Postgres:
    """A table, a materialised view or a view, by its name: `products` or `shop.products`.

    `where` selects rows by a condition in SQL; it is run as it is written. Nothing is connected
    before a join is made, and then only for as long as its batches are taken.
    """

    def __init__(self, url: str, table: str, *, where: str | None = None) -> None:
        self._url = url
        self._table = table
        self._where = where

    @property
    def names(self) -> list[str]:
        return list(self._description.columns)

    def fields(self, names: Sequence[str]) -> pa.Schema:
        return arrow_schema(self._description, names)

    def require(self, on: Sequence[str], request: type[Request]) -> None:
        key = self._description.key(on)
        written = ", ".join(on)
        if request is Pages:
            if not self._description.has_pages:
                raise ConfigError(
                    f"{self._table!r} is {self._description.what}, which has no pages to scan: "
                    f"choose {_LOOKED_UP}, or name a table or a materialised view"
                )
        elif request is Keys:
            if not key.findable and self._scans(on):
                raise ConfigError(
                    f"{self._table!r} has no index that finds {written}: {self._instead}"
                )
        elif not key.ordered:
            raise ConfigError(
                f"{self._table!r} has no B-tree index on {written}, in whose order partitions "
                f"could be read: {self._instead}"
            )

    def open(self, on: Sequence[str], columns: Sequence[str], unique: bool | None) -> Relation:
        session = session_for(self._url, self._table)
        return PostgresRelation(
            session, self._description, on, columns, where=self._where, unique=unique
        )

    @cached_property
    def _description(self) -> Description:
        session = session_for(self._url, self._table)
        try:
            with session.connection() as connection:
                return describe(connection, self._table)
        finally:
            session.close()

    @property
    def _instead(self) -> str:
        """What helps whoever lacks an index."""
        if self._description.has_pages:
            return f"create one, or choose {_SCANNED}"
        return f"it is {self._description.what}; choose {_LOOKED_UP}, over indexes in what it reads"

    def _scans(self, on: Sequence[str]) -> bool:
        """Whether a lookup reads everything: of a view only the planner can tell."""
        types = {name: self._description.columns[name].type for name in on}
        session = session_for(self._url, self._table)
        try:
            with session.connection() as connection:
                return Catalogue(connection).scans(table_identifier(self._table), types)
        finally:
            session.close()
