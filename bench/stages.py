"""What each stage costs an event, without the broker: `python -m bench.stages`.

The stages' own handlers work on the demo's events from memory; what they send goes into a list.
So this is the work itself: decoding, mapping, probing, splicing, packing batches. The Kafka
client's share is in rdkafka_edges.py, the whole in end_to_end.py.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np

from dovetail.demo.generate import GenerateSettings
from dovetail.join.columns import Bytes, Column, JoinKeys
from dovetail.join.entry import MasterRows
from dovetail.join.exchange import Keys, Read
from dovetail.join.phase import Relation
from dovetail.node.answers import takes_anything
from dovetail.node.window import Window
from dovetail.pipeline.load import load_pipeline
from dovetail.service.allocator import keep_freed_memory
from dovetail.service.metrics import Latency
from dovetail.stream.ledger import Ledger
from dovetail.stream.rdkafka import Parcel, Records
from dovetail.topology import Topology
from services.cache_phase.handler import CacheHandler
from services.disk_phase.build import build_join
from services.disk_phase.handler import DiskHandler
from services.ingest.handler import IngestHandler
from services.mapper.handler import MapperHandler
from services.warm import MemoryMigrations, NoProgress

EVENTS = 50_000
MEMORY = 64 << 20
_ROW = b'{"name":"' + b"x" * 100 + b'","price":9.95}'
ROUNDS = 7


class Sink:
    """Keeps the batches that a stage passes on; edge messages are counted and dropped."""

    def __init__(self) -> None:
        self.sent: dict[str, list[tuple[int, bytes | Bytes | Parcel]]] = {}
        self.edge = 0

    def send(self, topic: str, value: Bytes, partition: int = 0, **_: object) -> None:
        self.sent.setdefault(topic, []).append((partition, value))

    def give(self, topic: str, parcel: Parcel, partition: int) -> None:
        self.sent.setdefault(topic, []).append((partition, parcel))

    def send_many(
        self, topic: str, _slots: object, data: object, bounds: object, **_: object
    ) -> None:
        column = Column(data, bounds)  # type: ignore[arg-type]
        self.edge += len(column)
        if topic.endswith("migrations"):
            self.sent.setdefault(topic, []).extend((0, column[i]) for i in range(len(column)))


class Catalogue:
    """Every key has one row of about 120 bytes; answers lookups alone."""

    facts = Relation(unique=True)
    queries = 0

    def read(self, request: object, _most: int) -> Read:
        assert isinstance(request, Keys)
        keys = JoinKeys.of_ints(request.keys.values.copy())
        count = len(keys)
        bounds = np.arange(count + 1) * len(_ROW)
        rows = Column(np.tile(np.frombuffer(_ROW, np.uint8), count), bounds)
        return Read(MasterRows(keys, rows), count, np.zeros(count, np.int64))

    def now(self) -> float:
        return 0.0

    def renew(self) -> None: ...

    def rest(self) -> None: ...

    def keep(self, slots: frozenset[int] | None) -> None: ...

    def close(self) -> None: ...


def records_of(messages: list[tuple[int, bytes | Bytes | Parcel]]) -> Records:
    column = Column.of([bytes(value) for _, value in messages])
    count = len(column)
    return Records(
        np.array([partition for partition, _ in messages], np.int32),
        np.arange(count),
        np.full(count, time.time_ns() // 1_000_000),
        column.data,
        column.bounds,
        np.zeros(count, np.bool_),
    )


def measure(handler: object, records: Records) -> tuple[float, Sink]:
    best = float("inf")
    for _ in range(ROUNDS):
        sink = Sink()
        started = time.process_time()
        handler.handle(records, sink, Ledger())  # type: ignore[attr-defined]
        best = min(best, time.process_time() - started)
    return best / EVENTS * 1e9, sink


def main() -> None:
    keep_freed_memory()
    pipeline = load_pipeline(Path("pipeline.yaml"), {"DOVETAIL_ALGORITHM": "srj"})
    topology = Topology(pipeline)
    sales = GenerateSettings(bad=0.005).events().batch(1, np.zeros(EVENTS, np.int64))
    source = Records(
        (np.arange(EVENTS) % topology.source.partitions).astype(np.int32),
        np.arange(EVENTS),
        np.full(EVENTS, time.time_ns() // 1_000_000),
        sales.data,
        sales.bounds,
        sales.tombstones,
    )
    figures = {}
    figures["ingest_ns"], sink = measure(IngestHandler(pipeline, topology), source)
    clean = records_of(sink.sent[topology.clean.name])
    figures["mapper_ns"], sink = measure(MapperHandler(pipeline, topology), clean)
    mapped = records_of(sink.sent[topology.mapped.name])
    migrations = MemoryMigrations()
    cache = CacheHandler(topology, migrations, MEMORY, Latency(), takes_anything)
    figures["cache_miss_ns"], sink = measure(cache, mapped)
    missed = records_of(sink.sent[topology.missed.name])
    disk = DiskHandler(
        topology,
        build_join(pipeline, Catalogue(), MEMORY, time.monotonic),
        Window(2 * EVENTS),
        NoProgress(),
        MEMORY,
        Latency(),
        takes_anything,
        time.monotonic,
    )
    figures["disk_ns"], sink = measure(disk, missed)
    migrations.take([value for _, value in sink.sent[topology.migrations.name]])
    cache.between_steps()
    figures["cache_hit_ns"], sink = measure(cache, mapped)
    hits = sink.edge / EVENTS
    for name, value in figures.items():
        print(f"{name:16} {value:8.0f} ns an event")
    print(f"{hits:.0%} of the events were hits in the last one")
    print(json.dumps({name: round(value) for name, value in figures.items()}))


if __name__ == "__main__":
    main()
