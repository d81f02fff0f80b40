"""The join function: checks what is asked, and drives an engine over the stream.

1. Everything that can be wrong is said before anything is read: columns, types, algorithm.
2. With the first batch the relation is opened; it is closed whichever way the iteration ends.
3. Events are offered to the engine; it is fed when it has no more room, or the stream has ended.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeGuard, cast

import pyarrow as pa

from dovetail.api.arrow import ArrowSource
from dovetail.api.keys import stands_for_null
from dovetail.api.pieces import ArrowTable, ParquetFile
from dovetail.api.stream import Stream
from dovetail.errors import ConfigError
from dovetail.join import phase
from dovetail.join.algorithms import AUTO, Parameters, algorithm_named
from dovetail.join.auto import Auto
from dovetail.join.columns import Column
from dovetail.join.engine import Engine
from dovetail.join.entry import MasterRows
from dovetail.join.exchange import Keys, Pages, Partition, Read
from dovetail.join.in_order import InOrder
from dovetail.join.index import Index
from dovetail.join.kinds import JoinKind
from dovetail.join.pending import UNBOUNDED
from dovetail.join.scan import Scan
from dovetail.pipeline.size import parse_size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from dovetail.api.pieces import Pieces
    from dovetail.api.source import Relation, Source
    from dovetail.join.exchange import Request

Order = Literal["source"] | int | None

_DISTANCE_IN_ORDER = 100_000
"""How many answers are held back, at most, to give them in the stream's order."""


def join(
    batches: Iterable[pa.RecordBatch],
    relation: str | Path | pa.Table | Source | Relation | Pieces,
    *,
    on: str | Sequence[str] | Mapping[str, str],
    how: str = "inner",
    columns: Sequence[str] | Mapping[str, str] | None = None,
    algorithm: str = "ssbj",
    memory: int | str = "64MiB",
    unique: bool | None = None,
    order: Order = None,
) -> Iterator[pa.RecordBatch]:
    """Join a stream of batches with master data.

    `on` are columns that both have, or a mapping of the stream's to the relation's. `how` is
    inner, left, semi or anti, as in SQL: a NULL key matches nothing. `columns` are those of the
    relation to add, or a mapping to what they are to be called; all but the key if none are
    given. `unique` promises that no key has two rows there, so that an event is answered at its
    first match; of PostgreSQL it is known from the indexes. `order` is None for any, "source" for
    the stream's, or how many places at most an event may move.
    """
    kind, key = _kind(how), _renamed(on)
    if _is_open(relation):
        chosen = _as_it_is(relation, columns, unique)
    else:
        source = _source(relation)
        added = _added(columns, source.names, key) if kind.takes_columns else {}
        chosen = _Chosen.of(source, list(key.values()), added, algorithm, unique)
    plan = _Plan(kind, key, algorithm, _bytes(memory), _distance(order), order == "source")
    return _joined(iter(batches), chosen, plan)


@dataclass(frozen=True, slots=True)
class _Chosen:
    """What is taken from a relation that can serve the algorithm, and how it is opened."""

    key: pa.Schema
    names: list[str]
    """What the columns are called in the output."""
    open: Callable[[], Relation]
    by_key: bool = True
    """Whether partitions and keys can be asked for, where the algorithm may choose."""

    @classmethod
    def of(
        cls,
        source: Source,
        key: list[str],
        added: dict[str, str],
        algorithm: str,
        unique: bool | None,
    ) -> _Chosen:
        _require(key, source.names)
        source.fields(list(added))
        source.require(key, _request_of(algorithm))
        opened = partial(source.open, key, list(added), unique)
        by_key = _can(source, key, Partition) and _can(source, key, Keys)
        return cls(source.fields(key), list(added.values()), opened, by_key=by_key)


@dataclass(frozen=True, slots=True)
class _Plan:
    kind: JoinKind
    on: dict[str, str]
    algorithm: str
    memory: int
    distance: int
    in_order: bool


def _joined(
    batches: Iterator[pa.RecordBatch], chosen: _Chosen, plan: _Plan
) -> Iterator[pa.RecordBatch]:
    first = next(batches, None)
    if first is None:
        return
    with closing(chosen.open()) as relation:
        driver = _Driver(relation, chosen, plan)
        yield from driver.offer(first)
        for batch in batches:
            yield from driver.offer(batch)
        yield from driver.rest()


class _Driver:
    """Carries events, reads and answers between stream, engine and relation."""

    def __init__(self, relation: Relation, chosen: _Chosen, plan: _Plan) -> None:
        self._relation = relation
        ordered = plan.distance != UNBOUNDED
        self._stream = Stream(
            plan.kind, plan.on, chosen.key, relation.codec, chosen.names, ordered=ordered
        )
        facts = replace(relation.facts, by_key=chosen.by_key)
        engine: Engine | Auto
        if plan.algorithm == AUTO:
            engine = Auto(facts, plan.memory, time.perf_counter, distance=plan.distance)
        else:
            engine = Engine(plan.algorithm, facts, plan.memory, distance=plan.distance)
        self._most = engine.disk_buffer
        self._engine: Engine | Auto | InOrder = InOrder(engine) if plan.in_order else engine

    def offer(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        events, answers = self._stream.events(batch)
        yield from self._stream.output(answers)
        at = 0
        while at < len(events):
            offered = self._engine.offer(events.slice(at, len(events)))
            at += offered.accepted
            yield from self._stream.output(offered.answers)
            if at < len(events):
                yield from self._feed()

    def rest(self) -> Iterator[pa.RecordBatch]:
        while self._engine.wants() is not None:
            yield from self._feed()

    def _feed(self) -> Iterator[pa.RecordBatch]:
        request = self._engine.wants()
        if request is not None:
            yield from self._stream.output(self._engine.feed(self._read(request)))

    def _read(self, request: Request) -> Read:
        """Read for a request; the key of events that have none is not asked for anywhere."""
        if isinstance(request, Pages):
            return self._relation.read(request, self._most)
        keys = request.key if isinstance(request, Partition) else request.keys
        null = stands_for_null(keys)
        if null[0]:
            nothing = keys.slice(0, 0)
            return Read.whole(MasterRows(nothing, Column.of([])))
        if null.any():
            request = Keys(keys.slice(0, int(null.argmax())))
        return self._relation.read(request, self._most)


def _request_of(algorithm: str) -> type[Request]:
    """What an algorithm asks for; auto begins with pages."""
    if algorithm == AUTO:
        return Pages
    made = algorithm_named(algorithm).phase(Parameters(), phase.Relation(), 1 << 20)
    if isinstance(made, Scan):
        return Pages
    return Partition if isinstance(made, Index) else Keys


def _can(source: Source, key: list[str], request: type[Request]) -> bool:
    try:
        source.require(key, request)
    except ConfigError:
        return False
    return True


def _is_open(relation: object) -> TypeGuard[Relation]:
    return hasattr(relation, "codec")


def _as_it_is(
    relation: Relation, columns: Sequence[str] | Mapping[str, str] | None, unique: bool | None
) -> _Chosen:
    if columns is not None or unique is not None:
        raise ConfigError("the relation was opened with its columns: leave out columns and unique")
    return _Chosen(relation.key, list(relation.codec.schema.names), lambda: relation)


def _is_source(relation: object) -> TypeGuard[Source]:
    return hasattr(relation, "open")


def _source(relation: str | Path | pa.Table | Source | Relation | Pieces) -> Source:
    if isinstance(relation, str | Path):
        if str(relation).startswith(("postgres://", "postgresql://")):
            raise ConfigError("a URL says no table: give Postgres(url, table)")
        return ArrowSource(ParquetFile(Path(relation)))
    if isinstance(relation, pa.Table):
        return ArrowSource(ArrowTable(relation))
    if _is_source(relation):
        return relation
    if isinstance(getattr(relation, "schema", None), pa.Schema):
        return ArrowSource(cast("Pieces", relation))
    raise ConfigError(
        f"{type(relation).__name__} cannot be joined with: give the path of a Parquet file, a "
        f"pyarrow.Table or Postgres(url, table)"
    )


def _renamed(names: str | Sequence[str] | Mapping[str, str]) -> dict[str, str]:
    if isinstance(names, str):
        return {names: names}
    return dict(names) if isinstance(names, Mapping) else {name: name for name in names}


def _added(
    columns: Sequence[str] | Mapping[str, str] | None, known: Sequence[str], key: dict[str, str]
) -> dict[str, str]:
    """The relation's columns to add, and what each is called in the output."""
    if columns is None:
        return {name: name for name in known if name not in key.values()}
    added = _renamed(columns)
    _require(added, known)
    return added


def _require(names: Iterable[str], known: Sequence[str]) -> None:
    for name in names:
        if name not in known:
            raise ConfigError(f"there is no column {name!r}: there are {', '.join(known)}")


def _kind(how: str) -> JoinKind:
    try:
        return JoinKind(how)
    except ValueError:
        kinds = ", ".join(JoinKind)
        raise ConfigError(f"there is no join kind {how!r}: choose one of {kinds}") from None


def _bytes(memory: int | str) -> int:
    if isinstance(memory, int):
        return memory
    try:
        return parse_size(memory)
    except ValueError as error:
        raise ConfigError(f"memory: {error}") from None


def _distance(order: Order) -> int:
    if order is None:
        return UNBOUNDED
    if order == "source":
        return _DISTANCE_IN_ORDER
    if isinstance(order, int) and order >= 0:
        return order
    raise ConfigError(
        f"there is no order {order!r}: choose None, 'source', or how many places an event may move"
    )
