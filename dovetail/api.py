"""The join as a Python function: Arrow batches in, Arrow batches out.

    from dovetail.api import join

    for batch in join(sales, "products.parquet", on="product_id", how="left", memory=64 << 20):
        write(batch)

The master data is a Parquet file, an Arrow table or whatever has the methods of `Relation`.
It is never held: the algorithm says what to read next, and all that waits meanwhile, cached
rows included, takes no more than `memory` bytes. Output comes out of order.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dovetail.errors import ConfigError, MasterDataError
from dovetail.join.columns import Column, JoinKeys
from dovetail.join.engine import Engine
from dovetail.join.entry import Entries, MasterRows
from dovetail.join.exchange import Answers, Events, Pages, Read
from dovetail.join.keys import SEPARATOR, hash_text_many
from dovetail.join.kinds import JoinKind
from dovetail.join.phase import Relation
from dovetail.join.splice import splice
from dovetail.rows import SPARE, RowCodec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from dovetail.join.columns import Ints
    from dovetail.join.exchange import Request

ROWS_A_PAGE = 1024
_SEPARATOR = pa.scalar(chr(SEPARATOR), pa.large_string())


class Pieces(Protocol):
    """A relation as pieces that can be read one by one: row groups, or one table."""

    schema: pa.Schema
    rows: list[int]
    """Rows of each piece."""

    def read(self, piece: int, columns: list[str]) -> pa.Table: ...


class ParquetFile:
    """Row groups of a Parquet file; one at a time is decoded, beside the join's budget."""

    def __init__(self, path: Path) -> None:
        try:
            self._file = pq.ParquetFile(path)
        except (FileNotFoundError, pa.ArrowInvalid) as error:
            raise MasterDataError(f"{path} cannot be read as a Parquet file: {error}") from error
        self.schema = self._file.schema_arrow
        metadata = self._file.metadata
        self.rows = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]

    def read(self, piece: int, columns: list[str]) -> pa.Table:
        return self._file.read_row_group(piece, columns=columns)


class ArrowTable:
    def __init__(self, table: pa.Table) -> None:
        self._table = table
        self.schema = table.schema
        self.rows = [table.num_rows]

    def read(self, _piece: int, columns: list[str]) -> pa.Table:
        return self._table.select(columns)


class ScannedRelation:
    """Pages of a relation that can only be scanned. A page lies within one piece."""

    def __init__(self, pieces: Pieces, on: list[str], columns: list[str], *, unique: bool) -> None:
        self._pieces = pieces
        self._on = on
        self._wanted = list(dict.fromkeys([*on, *columns]))
        self._columns = columns
        self.codec = RowCodec(pa.schema([pieces.schema.field(name) for name in columns]))
        self._unique = unique
        counts = [-(-rows // ROWS_A_PAGE) for rows in pieces.rows]
        self._first_pages = np.concatenate([[0], np.cumsum(counts)]).astype(int)
        self._held: tuple[int, pa.Table] | None = None

    @property
    def facts(self) -> Relation:
        pages = int(self._first_pages[-1])
        size = max((self._page(page).nbytes for page in range(min(pages, 3))), default=1)
        # Later pages may be larger: a read then covers fewer of them.
        return Relation(max(1, pages), size, unique=self._unique)

    def read(self, request: Request, most: int) -> Read:
        """Read pages, at least one and no more than `most` bytes of them."""
        if not isinstance(request, Pages):
            raise ConfigError(
                "the algorithm looks rows up by key, and this relation can only be scanned: "
                "choose meshjoin, cmeshjoin or ssbj"
            )
        reads: list[Read] = []
        size = 0
        for number in request.numbers():
            page = self._page(number)
            if reads and size + page.nbytes > most:
                break
            reads.append(page)
            size += page.nbytes
        ends = np.cumsum([len(read.rows) for read in reads])
        return Read(MasterRows.concatenate([read.rows for read in reads]), len(reads), ends)

    def _page(self, number: int) -> Read:
        if number >= self._first_pages[-1]:  # an empty relation
            batch = pa.RecordBatch.from_pylist([], self._pieces.schema)
            return self._encode(batch.select(self._wanted))
        piece = int(np.searchsorted(self._first_pages, number, side="right")) - 1
        if self._held is None or self._held[0] != piece:
            self._held = None  # so that two are never held at a time
            self._held = piece, self._pieces.read(piece, self._wanted).combine_chunks()
        start = (number - int(self._first_pages[piece])) * ROWS_A_PAGE
        table = self._held[1].slice(start, ROWS_A_PAGE)
        return self._encode(table.to_batches()[0])

    def _encode(self, batch: pa.RecordBatch) -> Read:
        keys, null = join_keys(batch, self._on)
        rows = self.codec.encode(batch.select(self._columns), before=SPARE)
        some = np.flatnonzero(~null)
        if len(some) < len(null):  # a NULL key equals nothing
            keys, rows = keys.take(some), rows.take(some)
        return Read(MasterRows(keys, rows), 1, np.array([len(rows)]))


def join(
    batches: Iterable[pa.RecordBatch],
    relation: str | Path | pa.Table | Pieces,
    *,
    on: str | Sequence[str],
    how: str = "inner",
    columns: Sequence[str] | None = None,
    algorithm: str = "ssbj",
    memory: int = 64 << 20,
    unique: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Join a stream of batches with a relation on columns that both have.

    `how` is inner, left, semi or anti, as in SQL: a NULL key matches nothing. `columns` are
    those of the relation to add, all but the key if none are given. `unique` promises that no
    key has two rows there, so that an event is answered at its first match.
    """
    kind = _kind(how)
    pieces = _pieces(relation)
    names = [on] if isinstance(on, str) else list(on)
    _require(names, pieces.schema)
    added = (
        list(columns)
        if columns is not None
        else [name for name in pieces.schema.names if name not in names]
    )
    _require(added, pieces.schema)
    master = ScannedRelation(pieces, names, added, unique=unique)
    engine = Engine(algorithm, master.facts, memory)
    return _joined(iter(batches), _Stream(kind, names, pieces.schema, master.codec), engine, master)


def _joined(
    batches: Iterator[pa.RecordBatch], stream: _Stream, engine: Engine, master: ScannedRelation
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        events, without_key = stream.events(batch)
        yield from stream.output(without_key)
        at = 0
        while at < len(events):
            offered = engine.offer(events.slice(at, len(events)))
            at += offered.accepted
            yield from stream.output(offered.answers)
            if at < len(events):
                yield from _read(stream, engine, master)
    while engine.wants() is not None:
        yield from _read(stream, engine, master)


def _read(stream: _Stream, engine: Engine, master: ScannedRelation) -> Iterator[pa.RecordBatch]:
    request = engine.wants()
    if request is not None:
        yield from stream.output(engine.feed(master.read(request, engine.disk_buffer)))


class _Stream:
    """The stream's batches as events, and answers as batches of the output's schema."""

    def __init__(
        self, kind: JoinKind, on: list[str], relation: pa.Schema, master: RowCodec
    ) -> None:
        self._kind = kind
        self._on = on
        self._relation = relation
        self._master = master
        self._codec: RowCodec | None = None

    def events(self, batch: pa.RecordBatch) -> tuple[Events, Answers]:
        """The events of a batch; those without a key are answered at once."""
        if self._codec is None:
            _require(self._on, batch.schema)
            _require_alike(self._on, batch.schema, self._relation)
            self._codec = RowCodec(batch.schema)
        keys, null = join_keys(batch, self._on)
        data = self._codec.encode(batch, after=SPARE)
        some, none = np.flatnonzero(~null), np.flatnonzero(null)
        if not len(none):
            some_data = data
        else:
            keys, some_data = keys.take(some), data.take(some)
        nothing = MasterRows(keys.slice(0, 0), Column.of([]))
        entry = Entries.of(JoinKeys.of_ints(np.zeros(1, np.int64)), nothing)
        unmatched = Answers(data.take(none), none, entry.data, np.zeros(len(none), np.int64))
        return Events(keys, some_data, some), unmatched

    def output(self, answers: Answers) -> Iterator[pa.RecordBatch]:
        if not len(answers) or self._codec is None:
            return
        made = splice(
            self._kind, answers.events, answers.entries, answers.starts, self._master.null_row()
        )
        if not len(made.outputs):
            return
        cursors = made.outputs.bounds[:-1].copy()
        arrays = self._codec.decode(made.outputs.data, cursors)
        names = list(self._codec.schema.names)
        if self._kind.takes_columns:
            cursors += SPARE
            arrays += self._master.decode(made.outputs.data, cursors)
            names += self._master.schema.names
        yield pa.RecordBatch.from_arrays(arrays, names=names)


def join_keys(batch: pa.RecordBatch, on: list[str]) -> tuple[JoinKeys, np.ndarray]:
    """The join keys of a batch, and which of them are NULL.

    One int column is its own key. Everything else is text: composite keys as in keys.py.
    """
    columns = [batch.column(name) for name in on]
    null = np.zeros(batch.num_rows, bool)
    for column in columns:
        null |= np.array(column.is_null())
    if len(columns) == 1 and pa.types.is_integer(columns[0].type):
        values = columns[0].cast(pa.int64()).fill_null(0)
        return JoinKeys.of_ints(np.array(values, np.int64)), null
    texts = [column.cast(pa.large_string()).fill_null("") for column in columns]
    if len(texts) > 1:
        _require_separable(on, texts)
    joined = pc.binary_join_element_wise(*texts, _SEPARATOR)
    data, bounds = _column(joined)
    return JoinKeys(hash_text_many(data, bounds), Column(data, bounds)), null


def _require_separable(on: list[str], texts: list[pa.Array]) -> None:
    for name, text in zip(on, texts, strict=True):
        if pc.any(pc.match_substring(text, chr(SEPARATOR))).as_py():
            raise ConfigError(
                f"column {name!r} has a value with U+001F, which separates the parts of a "
                f"composite key: remove it from the values"
            )


def _require_alike(on: list[str], stream: pa.Schema, master: pa.Schema) -> None:
    """Keys are compared as ints or as text: both sides have to be of one sort."""
    for name in on:
        ours, theirs = stream.field(name).type, master.field(name).type
        if ours != theirs and _sort(ours) != _sort(theirs):
            raise ConfigError(
                f"column {name!r} is {ours} in the stream and {theirs} in the relation, which are "
                f"never equal: cast one of them"
            )


def _sort(kind: pa.DataType) -> str:
    if pa.types.is_integer(kind):
        return "int"
    if pa.types.is_dictionary(kind):
        return _sort(kind.value_type)
    return "text" if pa.types.is_string(kind) or pa.types.is_large_string(kind) else str(kind)


def _column(texts: pa.Array) -> tuple[np.ndarray, Ints]:
    _, offsets, data = texts.buffers()
    bounds = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1].copy()
    content = np.frombuffer(data, np.uint8).copy() if data else np.empty(0, np.uint8)
    return content, bounds


def _kind(how: str) -> JoinKind:
    try:
        return JoinKind(how)
    except ValueError:
        kinds = ", ".join(JoinKind)
        raise ConfigError(f"there is no join kind {how!r}: choose one of {kinds}") from None


def _pieces(relation: str | Path | pa.Table | Pieces) -> Pieces:
    if isinstance(relation, str | Path):
        return ParquetFile(Path(relation))
    if isinstance(relation, pa.Table):
        return ArrowTable(relation)
    return relation


def _require(names: Sequence[str], schema: pa.Schema) -> None:
    missing = [name for name in names if name not in schema.names]
    if missing:
        raise ConfigError(f"there is no column {missing[0]!r}: there are {', '.join(schema.names)}")
