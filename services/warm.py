"""Compiles every kernel before the first event comes.

Numba compiles a kernel when it is first called and keeps the result on disk. Left to the
services, each would compile the same kernels at once, with the first events waiting. Here a
handful of events goes through all stages in one process, from memory to memory.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail.contracts.progress_pb2 import Progress
from dovetail.join.caching import SharedCache
from dovetail.join.columns import Column, JoinKeys
from dovetail.join.entry import Entries
from dovetail.join.exchange import Events, Keys, Read
from dovetail.join.keys import hash_text_many
from dovetail.join.line import Line
from dovetail.join.phase import Relation
from dovetail.join.shedding.frequency import KnownFrequencies
from dovetail.join.shedding.strategies import TopW
from dovetail.join.splice import null_row, oversized
from dovetail.master.table.json_rows import JsonRows
from dovetail.node.answers import takes_anything
from dovetail.node.window import LEAST, Window
from dovetail.pipeline.spec import Format, Framing, KeyType
from dovetail.service.metrics import Latency
from dovetail.stream.batch import UNMAPPED, EventBatch
from dovetail.stream.events import splitting
from dovetail.stream.events.paths import split
from dovetail.stream.key_names import keys_named
from dovetail.stream.ledger import Ledger
from dovetail.stream.migration_codec import decode as decode_migrations
from dovetail.stream.migrations import Change
from dovetail.stream.rdkafka import Parcel, Records, compile_kernels
from dovetail.topology import INGEST, MAPPER, NODE, Topology
from services.cache_phase.handler import CacheHandler
from services.disk_phase.build import build_join, build_node_join
from services.disk_phase.handler import DiskHandler
from services.ingest.handler import IngestHandler
from services.mapper.handler import MapperHandler

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dovetail.join.columns import Bytes, Flags
    from dovetail.join.exchange import Request
    from dovetail.pipeline.spec import Pipeline

_BUDGET = 1 << 20


def warm_stage(kind: str, pipeline: Pipeline) -> None:
    """Load what a stage runs, and little else; compile what is not compiled yet."""
    topology = Topology(pipeline)
    if kind == NODE:
        warm(pipeline)
        _warm_node(pipeline)
        return
    if kind == INGEST:
        warm_door()
        _warm_ingest(pipeline, topology)
        return
    compile_kernels()
    if kind == MAPPER:
        _warm_mapper(pipeline, topology, [_batch(pipeline)])
    else:
        _warm_phases(pipeline, topology, [_batch(pipeline, 0)])


def warm(pipeline: Pipeline) -> None:
    warm_door()
    warm_join(pipeline)


def warm_door() -> None:
    """What the others do not need, so that it can be compiled beside them."""
    compile_kernels()
    for lines in (True, False):
        splitting.split(bytearray(b"{}"), lines=lines, most=1)


def warm_join(pipeline: Pipeline) -> None:
    topology = Topology(pipeline)
    clean = _warm_ingest(pipeline, topology)
    _warm_phases(pipeline, topology, _warm_mapper(pipeline, topology, clean))


def _warm_ingest(pipeline: Pipeline, topology: Topology) -> list[tuple[int, bytes]]:
    # The kernels of another format are compiled by bad events as well as by good ones.
    _handled(IngestHandler(pipeline, topology), [(0, b""), (0, b"")])
    sent = _handled(IngestHandler(_in_json(pipeline), topology), _sample(pipeline))
    return sent[topology.clean.name]


def _warm_mapper(
    pipeline: Pipeline, topology: Topology, clean: list[tuple[int, bytes]]
) -> list[tuple[int, bytes]]:
    if pipeline.overload:
        _handled(MapperHandler(pipeline, topology, _Shedding()), clean)
    return _handled(MapperHandler(pipeline, topology), clean)[topology.mapped.name]


def _warm_phases(pipeline: Pipeline, topology: Topology, mapped: list[tuple[int, bytes]]) -> None:
    migrations = MemoryMigrations()
    cache = CacheHandler(topology, migrations, _BUDGET, Latency(), takes_anything)
    missed = _handled(cache, mapped)
    for unique in (False, True):
        master = _Empty(pipeline, unique=unique)
        disk = _disk(pipeline, topology, master)
        answered = _handled(disk, missed[topology.missed.name])
    migrations.take([value for _, value in answered.get(topology.migrations.name, [])])
    cache.between_steps()
    missed = _handled(cache, mapped)
    if pipeline.order.kept:
        _handled(_disk(pipeline, topology, master), missed[topology.missed.name])
    disk.drop()
    cache.revoke(list(range(pipeline.slots)))
    # Which tombstones alone call for.
    keys_named(Column.of([b"1"]), int_key=pipeline.key_type is KeyType.INT)
    # Which handlers call for large outputs alone.
    nothing, first = Entries.without_rows().data, np.zeros(1, np.int64)
    oversized(pipeline.join, Column.of([b"{}"]), nothing, first, null_row([]), 0)


def _warm_node(pipeline: Pipeline) -> None:
    """Load what an engine does beside that whose own cache answers."""
    for unique in (False, True):
        join = build_node_join(pipeline, _Empty(pipeline, unique=unique), _BUDGET, time.monotonic)
        keys, data = _sample_keys(pipeline)
        for _ in range(2):  # the second time the cache answers, if there is one
            join.offer(Events(keys, data, np.arange(2)))
            while join.step() is not None:
                pass
        join.forget()
        SharedCache(join.engine).expire(0, 1.0)


class _Sink:
    """Keeps what a handler sends, by topic; of a batch, where it belongs as well."""

    def __init__(self) -> None:
        self.sent: dict[str, list[tuple[int, bytes]]] = {}

    def send(self, topic: str, value: bytes | Bytes, partition: int = 0, **_: Any) -> None:
        self.sent.setdefault(topic, []).append((partition, bytes(value)))

    def give(self, topic: str, parcel: Parcel, partition: int) -> None:
        self.send(topic, bytes(parcel), partition)

    def send_many(self, topic: str, _: Any, data: Any, bounds: Any, **__: Any) -> None:
        column = Column(data, bounds)
        self.sent.setdefault(topic, []).extend((0, column[i]) for i in range(len(column)))


class _Shedding:
    """Sheds everything, by f_R."""

    strategy = TopW.name

    def look(self) -> None: ...

    def admit(self, keys: JoinKeys) -> Flags:
        known = KnownFrequencies(_BUDGET, keys.values, np.ones(len(keys)))
        return TopW(known).priorities(keys) < 0

    def figures(self) -> dict[str, float]:
        return {}

    def close(self) -> None: ...


class MemoryMigrations:
    """Hands migrations from the disk phase to the cache, without a broker."""

    def __init__(self) -> None:
        self._payloads: list[bytes] = []

    def follow(self, slots: list[int]) -> None: ...

    def waiting_for(self) -> str:
        return ""

    @property
    def loaded(self) -> float:
        return 1.0

    def close(self) -> None: ...

    def take(self, payloads: list[bytes]) -> None:
        self._payloads = payloads

    def changes(self) -> Iterable[Change]:
        arrived = decode_migrations(Column.of(self._payloads))
        nobody = JoinKeys(np.empty(0, np.int64), Column.of([]))
        entries = Entries.received(arrived.entries)
        return [Change(entries, arrived.read_at_ms, arrived.events, 1, nobody)]

    def forget(self, slots: list[int]) -> None: ...


class _Empty:
    """A master table with no rows, in the form in which PostgreSQL sends it."""

    def __init__(self, pipeline: Pipeline, *, unique: bool) -> None:
        self._rows = JsonRows(int_key=pipeline.key_type is KeyType.INT)
        self.facts = Relation(unique=unique)

    def read(self, request: Request, _most: int) -> Read:
        covers = len(request.keys) if isinstance(request, Keys) else 1
        return Read(self._rows.read(b"").rows, covers, np.zeros(covers, np.int64))

    @property
    def queries(self) -> int:
        return 0

    def now(self) -> float:
        return 0.0

    def renew(self) -> None: ...

    def rest(self) -> None: ...

    def keep(self, slots: frozenset[int] | None) -> None: ...

    def close(self) -> None: ...


class NoProgress:
    def read(self, slot: int, number: int) -> Progress:
        return Progress(slot=slot, number=number)

    def close(self) -> None: ...


def _disk(pipeline: Pipeline, topology: Topology, master: _Empty) -> DiskHandler:
    return DiskHandler(
        topology,
        build_join(pipeline, master, _BUDGET, time.monotonic),
        Window(LEAST),
        NoProgress(),
        _BUDGET,
        Latency(),
        takes_anything,
        time.monotonic,
        None if pipeline.order.within is None else Line(pipeline.order.within, _BUDGET),
    )


def _handled(handler: Any, messages: list[tuple[int, bytes]]) -> dict[str, list[tuple[int, bytes]]]:
    sink = _Sink()
    column = Column.of([value for _, value in messages])
    count = len(messages)
    records = Records(
        np.array([partition for partition, _ in messages], np.int32),
        np.arange(count),
        np.zeros(count, np.int64),
        column.data,
        column.bounds,
        np.zeros(count, np.bool_),
    )
    handler.handle(records, sink, Ledger())
    return sink.sent


def _sample(pipeline: Pipeline) -> list[tuple[int, bytes]]:
    """Two events alike, since the second lookup of a key makes it migrate, and a bad one."""
    texts = {
        "int": "1",
        "float": "1.5",
        "decimal": "1.50",
        "text": '"a"',
        "boolean": "true",
        "date": '"2026-01-31"',
        "timestamp": '"2026-01-31T09:00:00Z"',
        "json": "[]",
    }
    event: dict[str, Any] = {}
    for path, field in pipeline.source.fields.items():
        *outer, last = split(path)
        inner = event
        for name in outer:
            inner = inner.setdefault(name, {})
        inner[last] = texts[field.type]
    text = _object(event).encode()
    return [(0, text), (0, text), (0, b"{}")]


def _batch(pipeline: Pipeline, slot: int = UNMAPPED) -> tuple[int, bytes]:
    """The sample as ingest sends it, or the mapper to a slot; the kernels of neither are loaded."""
    keys, events = _sample_keys(pipeline)
    numbers = np.zeros(2, np.int64)
    batch = EventBatch(keys, events, np.zeros(2, np.int32), numbers, numbers)
    return max(slot, 0), bytes(batch.written(pipeline.name, slot))


def _sample_keys(pipeline: Pipeline) -> tuple[JoinKeys, Column]:
    event = _sample(pipeline)[0][1]
    if pipeline.key_type is KeyType.INT:
        keys = JoinKeys.of_ints(np.ones(2, np.int64))
    else:
        texts = Column.of([b"a", b"a"])
        keys = JoinKeys(hash_text_many(texts.data, texts.bounds), texts)
    return keys, Column.of([event, event])


def _object(members: dict[str, Any]) -> str:
    texts = (
        f'"{name}":{_object(value) if isinstance(value, dict) else value}'
        for name, value in members.items()
    )
    return f"{{{','.join(texts)}}}"


def _in_json(pipeline: Pipeline) -> Pipeline:
    source = {"format": Format.JSON, "framing": Framing.PLAIN}
    return pipeline.model_copy(update={"source": pipeline.source.model_copy(update=source)})
