"""The join function: checks what is asked, and drives an engine over the stream.

1. Everything that can be wrong is said before anything is read: columns, types, algorithm.
2. With the first batch the relation is opened; it is closed whichever way the iteration ends.
3. Events are offered to the engine; it is fed when it has no more room, or the stream has ended.

A condition beside equality takes another engine (`OverlapJoin`), with intervals on both sides.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeGuard, cast

import pyarrow as pa

from dovetail.api.arrow import ArrowSource
from dovetail.api.conditions import Condition
from dovetail.api.keys import stands_for_null
from dovetail.api.pieces import ArrowTable, ParquetFile
from dovetail.api.ranges import RangeReader, RangeStream, with_intervals
from dovetail.api.room import require_fit, require_memory
from dovetail.api.stream import Stream
from dovetail.errors import ConfigError, TooManyRowsError
from dovetail.join import phase
from dovetail.join.algorithms import ALGORITHMS, AUTO, Parameters, algorithm_named
from dovetail.join.auto import Auto
from dovetail.join.columns import Column
from dovetail.join.engine import DISK_BUFFER_SHARE, Engine
from dovetail.join.entry import MasterRows
from dovetail.join.exchange import Keys, Pages, Partition, Read
from dovetail.join.in_order import InOrder
from dovetail.join.index import Index
from dovetail.join.kinds import JoinKind
from dovetail.join.overlap.engine import OverlapJoin
from dovetail.join.pending import UNBOUNDED
from dovetail.join.scan import Scan
from dovetail.join.splice import slice_bytes
from dovetail.pipeline.hints import did_you_mean
from dovetail.pipeline.size import parse_size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from dovetail.api.pieces import Pieces
    from dovetail.api.source import Relation, Source
    from dovetail.join.engine import Offered
    from dovetail.join.exchange import Answers, Request

Order = Literal["source"] | int | None

_USUAL, _BY_CONDITION = "ssbj", "meshjoin"
_LINE_SHARE = 3 / 8
"""Of the memory, where the stream's order is kept: half of what the disk buffer leaves, for an
answer that waits for its turn takes about as much as an event that waits for its rows."""
_LARGEST_DISTANCE = (1 << 31) - 1
"""The join counts no further; whoever allows more gets less than that."""


def join(
    batches: Iterable[pa.RecordBatch],
    relation: str | Path | pa.Table | Source | Relation | Pieces,
    *,
    on: str | Sequence[str] | Mapping[str, str] = (),
    condition: Condition | None = None,
    how: str = "inner",
    columns: Sequence[str] | Mapping[str, str] | None = None,
    algorithm: str | None = None,
    memory: int | str = "64MiB",
    unique: bool | None = None,
    order: Order = None,
) -> Iterator[pa.RecordBatch]:
    """Join a stream of batches with master data.

    `on` are columns that both have, or a mapping of the stream's to the relation's; `condition`
    compares others, as in `between("sold_at", "valid_from", "valid_to")`. `how` is inner, left,
    semi or anti, as in SQL: a NULL matches nothing. `columns` are those of the relation to add,
    or a mapping to what they are to be called; all but the key if none are given. `algorithm` is
    ssbj unless given; a condition has its own. `unique` promises that no key has two rows there,
    so that an event is answered at its first match; of PostgreSQL it is known from the indexes.
    `order` is None for any, "source" for the stream's, or how many places at most an event may
    move.
    """
    kind, key = _kind(how), _renamed(on)
    chosen_algorithm = _algorithm(algorithm, key, condition, order)
    compared = condition.relation if condition else ()
    if _is_open(relation):
        chosen = _as_it_is(relation, columns, unique)
        _require(compared, relation.codec.schema.names)
    else:
        source = _source(relation)
        added = _added(columns, source.names, key) if kind.takes_columns else {}
        chosen = _Chosen.of(source, list(key.values()), added, compared, chosen_algorithm, unique)
    distance = _distance(order)
    plan = _Plan(
        kind, key, condition, chosen_algorithm, _bytes(memory), distance, order == "source"
    )
    return _joined(_iterator(batches), chosen, plan)


@dataclass(frozen=True, slots=True)
class _Chosen:
    """What is taken from a relation that can serve the algorithm, and how it is opened."""

    key: pa.Schema
    added: dict[str, str]
    """The columns that go out, and what they are called there."""
    open: Callable[[], Relation]
    by_key: bool = True
    """Whether partitions and keys can be asked for, where the algorithm may choose."""

    @classmethod
    def of(
        cls,
        source: Source,
        key: list[str],
        added: dict[str, str],
        compared: Sequence[str],
        algorithm: str,
        unique: bool | None,
    ) -> _Chosen:
        _require([*key, *compared], source.names)
        # What a condition compares comes first, so that no more has to be decoded for it.
        columns = list(dict.fromkeys([*compared, *added]))
        source.fields(columns)
        source.require(key, _request_of(algorithm))
        opened = partial(source.open, key, columns, unique)
        by_key = algorithm == AUTO and _can(source, key, Partition) and _can(source, key, Keys)
        return cls(source.fields(key), added, opened, by_key=by_key)


@dataclass(frozen=True, slots=True)
class _Plan:
    kind: JoinKind
    on: dict[str, str]
    condition: Condition | None
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
        facts = replace(relation.facts, by_key=chosen.by_key)
        stream = Stream(
            plan.kind,
            plan.on,
            chosen.key,
            relation.codec,
            chosen.added,
            compared=plan.condition.stream if plan.condition else (),
            ordered=plan.distance != UNBOUNDED or plan.in_order,
            most=slice_bytes(plan.memory),
        )
        # All three are equality's, or all a condition's.
        self._stream: Any = stream
        self._engine: Any
        self._reader: Any
        if plan.condition is not None:
            facts = replace(facts, page_bytes=with_intervals(facts.page_bytes))
            require_memory(plan.memory, facts.page_bytes)
            self._engine = OverlapJoin(plan.kind, facts, plan.memory)
            self._most = self._engine.disk_buffer
            self._stream = RangeStream(stream, plan.condition, relation.codec)
            self._reader = RangeReader(relation, self._stream, self._most)
        else:
            require_memory(plan.memory, facts.page_bytes if _scans(plan.algorithm) else 0)
            room = int(_LINE_SHARE * plan.memory) if plan.in_order else 0
            engine = _engine(plan, facts, plan.memory - room)
            self._most = engine.disk_buffer
            self._reader = _Reader(relation, self._most)
            self._engine = InOrder(engine, room) if plan.in_order else engine
        self._memory = plan.memory

    def offer(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        for part in self._stream.parts(batch):
            yield from self._offer_part(part)

    def _offer_part(self, part: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        events, answers = self._stream.events(part)
        yield from self._stream.output(answers)
        at = 0
        while at < len(events):
            offered = self._offer(events.slice(at, len(events)))
            at += offered.accepted
            yield from self._outputs(offered.answers)
            if at < len(events):
                yield from self._feed()

    def _offer(self, events: Any) -> Offered:
        try:
            offered: Offered = self._engine.offer(events)
        except ConfigError as refusal:
            raise ConfigError(f"memory={self._memory:,} bytes is too little: {refusal}") from None
        return offered

    def rest(self) -> Iterator[pa.RecordBatch]:
        while self._engine.wants() is not None:
            yield from self._feed()

    def _feed(self) -> Iterator[pa.RecordBatch]:
        request = self._engine.wants()
        if request is not None:
            read = self._reader.read(request)
            try:
                answers = self._engine.feed(read)
            except TooManyRowsError:
                require_fit(self._memory, self._most, len(read.rows), read.nbytes)
                raise
            yield from self._outputs(answers)

    def _outputs(self, answers: Answers) -> Iterator[pa.RecordBatch]:
        """What comes of answers, and of all that the engine has beside them."""
        yield from self._stream.output(answers)
        while self._engine.answering:
            yield from self._stream.output(self._engine.more())


class _Reader:
    """Reads for requests; the key of events that have none is not asked for anywhere."""

    def __init__(self, relation: Relation, most: int) -> None:
        self._relation = relation
        self._most = most

    def read(self, request: Request) -> Read:
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


def _engine(plan: _Plan, facts: phase.Relation, memory: int) -> Engine | Auto:
    if plan.algorithm == AUTO:
        return Auto(facts, memory, time.perf_counter, distance=plan.distance)
    disk_buffer = plan.memory // DISK_BUFFER_SHARE
    distance = plan.distance
    return Engine(plan.algorithm, facts, memory, disk_buffer=disk_buffer, distance=distance)


def _scans(algorithm: str) -> bool:
    return _request_of(algorithm) is Pages


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
    names = relation.codec.schema.names
    return _Chosen(relation.key, dict(zip(names, names, strict=True)), lambda: relation)


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
    if not isinstance(names, Iterable):
        raise ConfigError(f"{names!r} names no column: give a name, a list of names, or a mapping")
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
            raise ConfigError(
                f"there is no column {name!r} in the relation: there are {', '.join(known)}"
                f"{did_you_mean(name, known)}"
            )


def _kind(how: str) -> JoinKind:
    try:
        return JoinKind(how)
    except ValueError:
        kinds = ", ".join(JoinKind)
        near = did_you_mean(str(how), JoinKind)
        raise ConfigError(f"there is no join kind {how!r}: choose one of {kinds}{near}") from None


def _algorithm(
    name: str | None, key: Mapping[str, str], condition: Condition | None, order: Order
) -> str:
    """The algorithm's name, if it is one and can do what is asked."""
    if condition is not None and not isinstance(condition, Condition):
        raise ConfigError(
            f"{condition!r} is no condition: make one, e.g. between('sold_at', 'since', 'until')"
        )
    if condition is None:
        if not key:
            raise ConfigError("nothing says which rows match: name columns by on, or a condition")
        known = [*ALGORITHMS, AUTO]
        if name is not None and name not in known:
            raise ConfigError(
                f"there is no join algorithm {name!r}: choose one of {', '.join(known)}"
                f"{did_you_mean(str(name), known)}"
            )
        return name or _USUAL
    if name not in (None, _BY_CONDITION):
        raise ConfigError(
            f"a condition is joined by {_BY_CONDITION} alone, not by {name!r}: leave out algorithm"
        )
    if order is not None:
        raise ConfigError(
            "a condition answers an event in every read that has rows for it, in no order: leave "
            "out order, and sort what comes out"
        )
    return _BY_CONDITION


def _iterator(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    if isinstance(batches, pa.Table | pa.RecordBatch) or not isinstance(batches, Iterable):
        raise ConfigError(
            f"a {type(batches).__name__} is no stream of batches: give an iterable of them, e.g. "
            f"table.to_batches() or [batch]"
        )
    return iter(batches)


def _bytes(memory: int | str) -> int:
    if isinstance(memory, int) and not isinstance(memory, bool):
        return memory
    try:
        return parse_size(memory if isinstance(memory, str) else repr(memory))
    except ValueError as error:
        raise ConfigError(f"memory: {error}") from None


def _distance(order: Order) -> int:
    if order is None or order == "source":
        return UNBOUNDED
    if isinstance(order, int) and order >= 0:
        return min(order, _LARGEST_DISTANCE)
    raise ConfigError(
        f"there is no order {order!r}: choose None, 'source', or how many places an event may move"
    )
