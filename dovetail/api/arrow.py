"""R as Arrow tables, piece by piece: for scans as it lies, for keys in the order of the key.

    Pages       1024 rows each; a chunk of up to 64 of them is encoded at a time
    Partition   a piece in the order of the key, cut from its start into parts that fit
    Keys        the pieces whose spans hold the keys (zones.py), one after the other

Memory beside the join's budget: one piece, decoded and, for keys, encoded.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dovetail.api.keys import join_keys, resolved, texts_of
from dovetail.api.sizes import row_sizes
from dovetail.api.zones import zones
from dovetail.errors import ConfigError
from dovetail.join import phase
from dovetail.join.entry import MasterRows
from dovetail.join.exchange import Pages, Partition, Read
from dovetail.join.splice import SPARE
from dovetail.master.relation import BYTES_A_ROW, cut, first_rows, part
from dovetail.rows import RowCodec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dovetail.api.pieces import Pieces
    from dovetail.api.zones import Zones
    from dovetail.join.columns import Flags, Ints, JoinKeys
    from dovetail.join.exchange import Request

ROWS_A_PAGE = 1024
_PAGES_A_CHUNK, _BYTES_A_CHUNK = 64, 4 << 20
_SAMPLE = 3
"""Pages that are encoded to learn how large one is; larger ones are read fewer at a time."""


class ArrowSource:
    def __init__(self, pieces: Pieces) -> None:
        self._pieces = pieces

    @property
    def names(self) -> list[str]:
        return list(self._pieces.schema.names)

    def fields(self, names: Sequence[str]) -> pa.Schema:
        return pa.schema([self._pieces.schema.field(name) for name in names])

    def require(self, on: Sequence[str], request: type[Request]) -> None:
        if request is not Pages and zones(self._pieces, on) is None:
            raise ConfigError(
                f"the algorithm looks rows up by key, and this relation can only be scanned, as "
                f"its rows are not in the order of {' or '.join(on)}: choose meshjoin, cmeshjoin "
                f"or ssbj, or sort it, e.g. table.sort_by({on[0]!r})"
            )

    def open(self, on: Sequence[str], columns: Sequence[str], unique: bool | None) -> ArrowRelation:
        return ArrowRelation(self._pieces, list(on), list(columns), unique=bool(unique))


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Consecutive pages of a piece, encoded."""

    first_page: int
    rows: MasterRows
    ends: Ints


@dataclass(frozen=True, slots=True)
class _Sorted:
    """A piece in the order of its keys' values."""

    place: int
    rows: MasterRows
    whole: MasterRows
    """The rows of those keys that have none in another piece."""
    partitions: Ints
    """Where the partitions of these end, each between two keys."""
    room: int
    """What a partition was cut to; a single key may take more."""


class ArrowRelation:
    def __init__(self, pieces: Pieces, on: list[str], columns: list[str], *, unique: bool) -> None:
        self._pieces = pieces
        self._on = on
        self._columns = columns
        self._wanted = list(dict.fromkeys([*on, *columns]))
        self._unique = unique
        self.key = pa.schema([pieces.schema.field(name) for name in on])
        self.codec = RowCodec(pa.schema([pieces.schema.field(name) for name in columns]))
        counts = [-(-rows // ROWS_A_PAGE) for rows in pieces.rows]
        self._first_pages = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        self._decoded: tuple[int, pa.RecordBatch] | None = None
        self._pages_a_chunk = 1
        """Of the piece that is decoded."""
        self._chunk: _Chunk | None = None
        self._sorted: _Sorted | None = None

    @cached_property
    def facts(self) -> phase.Relation:
        pages = int(self._first_pages[-1])
        sample = [self._whole_pages(page, 1).nbytes for page in range(min(pages, _SAMPLE))]
        return phase.Relation(
            max(1, pages), max(sample, default=1), unique=self._unique, in_parts=True
        )

    def read(self, request: Request, most: int) -> Read:
        if isinstance(request, Pages):
            return self._pages(request, most)
        if isinstance(request, Partition):
            return self._partition(request.key, most)
        return self._rows_of(request.keys, most)

    def close(self) -> None:
        self._decoded = self._chunk = self._sorted = None
        self._pieces.close()

    def _pages(self, request: Pages, most: int) -> Read:
        if not self._first_pages[-1]:
            return Read(self._nothing, request.count, np.zeros(request.count, np.int64))
        read = self._whole_pages(request.first, 1 if request.place else request.count)
        rows, ends = read.rows, read.ends
        if request.place:
            rows, ends = part(rows, request.place, len(rows)), ends - request.place
        ends = ends[: cut(rows, ends, most)]
        found = Read(part(rows, 0, int(ends[-1])), len(ends), ends)
        if found.nbytes <= most:
            return found
        return first_rows(found, request.place + np.arange(1, len(found.rows) + 1), most)

    def _whole_pages(self, first: int, count: int) -> Read:
        """So many pages, or as many as the chunk has."""
        chunk = self._chunk_of(first)
        first -= chunk.first_page
        start = int(chunk.ends[first - 1]) if first else 0
        ends = chunk.ends[first : first + count] - start
        return Read(part(chunk.rows, start, start + int(ends[-1])), len(ends), ends)

    def _chunk_of(self, page: int) -> _Chunk:
        held = self._chunk
        if held is None or not 0 <= page - held.first_page < len(held.ends):
            piece = int(np.searchsorted(self._first_pages, page, side="right")) - 1
            first_page = int(self._first_pages[piece])
            self._chunk = None  # so that two are never held at a time
            whole = self._decode(piece)
            pages = self._pages_a_chunk
            first_page += (page - first_page) // pages * pages
            start = (first_page - int(self._first_pages[piece])) * ROWS_A_PAGE
            batch = whole.slice(start, pages * ROWS_A_PAGE)
            rows, null = self._encode(batch)
            lasts = np.arange(ROWS_A_PAGE, batch.num_rows + ROWS_A_PAGE, ROWS_A_PAGE)
            before = np.concatenate([[0], np.cumsum(~null)]).astype(np.int64)
            ends = before[np.minimum(lasts, batch.num_rows)]
            self._chunk = held = _Chunk(first_page, rows, ends)
        return held

    def _partition(self, key: JoinKeys, most: int) -> Read:
        (first,), (end,) = self._zones.holding(key)
        if first == end:
            return Read.whole(self._nothing)
        if end - first > 1:
            return self._rows_of(key, most)
        piece = self._sorted_piece(int(first), most)
        at = int(np.searchsorted(piece.whole.keys.values, key.values[0]))
        nth = int(np.searchsorted(piece.partitions, at, side="right"))
        nth = min(nth, len(piece.partitions) - 1)
        start = int(piece.partitions[nth - 1]) if nth else 0
        found = Read.whole(part(piece.whole, start, int(piece.partitions[nth])))
        if found.nbytes <= most:
            return found
        # One key fills it by itself, and need not be the one that was asked for.
        return self._rows_of(key, most)

    def _rows_of(self, keys: JoinKeys, most: int) -> Read:
        count = len(keys)
        while True:
            read = Read.whole(self._matching(keys.slice(0, count)), count)
            if read.nbytes <= most or count == 1:
                return read
            count //= 2

    def _matching(self, keys: JoinKeys) -> MasterRows:
        first, end = self._zones.holding(keys)
        found = [self._nothing]
        for place in range(int(first.min()), int(end.max())):
            # Texts that share a hash share their rows: once is enough, the join tells them apart.
            here = np.unique(keys.values[(first <= place) & (place < end)])
            if len(here):
                rows = self._sorted_piece(place).rows
                starts = np.searchsorted(rows.keys.values, here, side="left")
                ends = np.searchsorted(rows.keys.values, here, side="right")
                found.append(_take(rows, _ranges(starts, ends)))
        return _only(MasterRows.concatenate(found), keys)

    @cached_property
    def _zones(self) -> Zones:
        found = zones(self._pieces, self._on)
        assert found is not None, "required by the source before it was opened"
        return found

    @cached_property
    def _nothing(self) -> MasterRows:
        schema = pa.schema([self._pieces.schema.field(name) for name in self._wanted])
        return self._encode(pa.RecordBatch.from_pylist([], schema))[0]

    def _sorted_piece(self, place: int, room: int = 0) -> _Sorted:
        """A piece; with `room`, in partitions that fit into so many bytes."""
        held = self._sorted
        if held is not None and held.place == place and room not in (0, held.room):
            held = self._sorted = replace(held, partitions=_cuts(held.whole, room), room=room)
        if held is None or held.place != place:
            self._sorted = None
            batch = self._decode(self._zones.pieces[place])
            rows, null = self._encode(batch)
            order = np.argsort(rows.keys.values, kind="stable")
            rows = _take(rows, order)
            shared = self._zones.shared(place)
            whole = rows
            if shared:
                leading = resolved(batch.column(self._zones.column))
                elsewhere = np.array(pc.is_in(leading, pa.array(shared, leading.type)))
                whole = _take(rows, np.flatnonzero(~elsewhere[~null][order]))
            self._decoded = None
            cuts = _cuts(whole, room) if room else np.empty(0, np.int64)
            self._sorted = held = _Sorted(place, rows, whole, cuts, room)
        return held

    def _decode(self, piece: int) -> pa.RecordBatch:
        if self._decoded is None or self._decoded[0] != piece:
            self._decoded = None
            table = self._pieces.read(piece, self._wanted)
            self._decoded = piece, _batch(table)
            self._pages_a_chunk = _pages_a_chunk(self._decoded[1])
        return self._decoded[1]

    def _encode(self, batch: pa.RecordBatch) -> tuple[MasterRows, Flags]:
        """The rows that have a key, and which have none: a NULL equals nothing."""
        keys, null = join_keys(batch, self._on)
        rows = MasterRows(keys, self.codec.encode(batch.select(self._columns), before=SPARE))
        return _take(rows, np.flatnonzero(~null)) if null.any() else rows, null


def _pages_a_chunk(piece: pa.RecordBatch) -> int:
    """How many pages of a piece are encoded at a time: fewer if its rows are wide."""
    size = max(1, int(row_sizes(piece).sum()))
    pages = _BYTES_A_CHUNK * piece.num_rows // (ROWS_A_PAGE * size)
    return min(max(1, int(pages)), _PAGES_A_CHUNK)


def _batch(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], table.schema)


def _take(rows: MasterRows, indices: Ints) -> MasterRows:
    return MasterRows(rows.keys.take(indices), rows.rows.take(indices))


def _cuts(rows: MasterRows, room: int) -> Ints:
    """Where to cut sorted rows, between keys, into parts that fit: the same whoever asks."""
    ends = np.append(np.flatnonzero(np.diff(rows.keys.values)) + 1, len(rows))
    found, first = [], 0
    while first < len(ends):
        start = int(ends[first - 1]) if first else 0
        # No more keys than can fit.
        some = ends[first : first + room // BYTES_A_ROW + 1] - start
        first += cut(part(rows, start, start + int(some[-1])), some, room)
        found.append(int(ends[first - 1]))
    return np.array(found, np.int64)


def _ranges(starts: Ints, ends: Ints) -> Ints:
    """All numbers from each start up to its end."""
    counts = ends - starts
    before = np.cumsum(counts) - counts
    numbers: Ints = np.arange(counts.sum()) + np.repeat(starts - before, counts)
    return numbers


def _only(rows: MasterRows, keys: JoinKeys) -> MasterRows:
    """Leave out rows whose text merely shares its hash with one that is sought."""
    if not len(keys.texts.data) or not len(rows):
        return rows
    alike = pc.is_in(texts_of(rows.keys.texts), texts_of(keys.texts))
    return rows if pc.all(alike).as_py() else _take(rows, np.flatnonzero(np.array(alike)))
