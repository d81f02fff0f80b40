"""What can be joined with: a source is told about first, and opened once it is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from dovetail.master.relation import MasterRelation

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from dovetail.join.exchange import Request
    from dovetail.rows import RowCodec


class Relation(MasterRelation, Protocol):
    """Master rows for the join's engine, encoded by `codec` with `rows.SPARE` bytes before each."""

    codec: RowCodec
    key: pa.Schema
    """The columns that rows are joined by; they need not be among those of the codec."""


class Source(Protocol):
    """Master data that nothing has been read of. All that is wrong with it is said here."""

    @property
    def names(self) -> Sequence[str]:
        """The names of all columns."""
        ...

    def fields(self, names: Sequence[str]) -> pa.Schema:
        """The types of columns; ConfigError if one of them cannot be joined."""
        ...

    def require(self, on: Sequence[str], request: type[Request]) -> None:
        """Raise ConfigError, with the cure, unless such a request can be answered."""
        ...

    def open(self, on: Sequence[str], columns: Sequence[str], unique: bool | None) -> Relation:
        """Open it for reading; `unique` is what the source itself knows if it is None."""
        ...
