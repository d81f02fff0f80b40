"""Master data in pieces that are read one by one: row groups of a file, or slices of a table."""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dovetail.api.keys import resolved
from dovetail.api.sizes import ROWS_AT_ONCE, cuts, row_sizes
from dovetail.errors import MasterDataError

if TYPE_CHECKING:
    from pathlib import Path

Span = tuple[Any, Any] | None
"""The least and the largest value of a column in a piece; None if it has no value there."""

_BYTES_A_SLICE = 8 << 20
"""A slice is held several times while it is put in order: as it was, encoded, and sorted."""


class Pieces(Protocol):
    """A relation as pieces. Nothing is open before the first read."""

    schema: pa.Schema
    rows: list[int]
    """Rows of each piece."""

    def read(self, piece: int, columns: list[str]) -> pa.Table: ...

    def spans(self, column: str) -> list[Span] | None:
        """Where the values of a column lie in each piece, or wider; None if that is unknown."""
        ...

    def close(self) -> None: ...


class ParquetFile:
    """Row groups of a Parquet file; one at a time is decoded, beside the join's budget."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: pq.ParquetFile | None = None
        try:
            self._metadata = pq.read_metadata(path)
        except (OSError, pa.ArrowInvalid) as error:
            raise MasterDataError(f"{path} cannot be read as a Parquet file: {error}") from error
        self.schema = self._metadata.schema.to_arrow_schema()
        self._groups = [self._metadata.row_group(i) for i in range(self._metadata.num_row_groups)]
        self.rows = [group.num_rows for group in self._groups]

    def read(self, piece: int, columns: list[str]) -> pa.Table:
        try:
            if self._file is None:
                self._file = pq.ParquetFile(self._path, metadata=self._metadata)
            return self._file.read_row_group(piece, columns=columns)
        except (OSError, pa.ArrowInvalid) as error:
            raise MasterDataError(
                f"{self._path} cannot be read: {error}; was it replaced while it was joined?"
            ) from error

    def spans(self, column: str) -> list[Span] | None:
        if not self._groups:
            return []
        paths = [
            self._groups[0].column(i).path_in_schema for i in range(self._metadata.num_columns)
        ]
        place = paths.index(column)
        spans: list[Span] = []
        for group in self._groups:
            known = group.column(place).statistics
            if known is not None and known.has_min_max:
                spans.append((known.min, known.max))
            elif not group.num_rows or (known and known.null_count == group.num_rows):
                spans.append(None)
            else:
                return None
        return spans

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class ArrowTable:
    """Slices of a table: as many rows as take some MiB when they are encoded."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table
        self.schema = table.schema
        self.rows = []
        for start in range(0, table.num_rows, ROWS_AT_ONCE):
            ends = cuts(row_sizes(table.slice(start, ROWS_AT_ONCE)), _BYTES_A_SLICE)
            self.rows += [end - start for start, end in pairwise([0, *ends])]
        self._starts = [0, *accumulate(self.rows)]

    def read(self, piece: int, columns: list[str]) -> pa.Table:
        return self._table.slice(self._starts[piece], self.rows[piece]).select(columns)

    def spans(self, column: str) -> list[Span] | None:
        spans: list[Span] = []
        for piece in range(len(self.rows)):
            ends = pc.min_max(resolved(self.read(piece, [column]).column(0))).as_py()
            spans.append(None if ends["min"] is None else (ends["min"], ends["max"]))
        return spans

    def close(self) -> None:
        pass
