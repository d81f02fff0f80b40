"""Answers what the cache can answer completely; the rest is the disk phase's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from dovetail.join.cache import MISS, MasterCache
from dovetail.stream import ledger as outcome
from dovetail.stream.answer import Answers
from dovetail.stream.batch import PIECE_BYTES, EventBatch, batches_of
from dovetail.stream.loop import Handler

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dovetail.join.columns import Ints
    from dovetail.pipeline.spec import Pipeline
    from dovetail.service.metrics import Latency
    from dovetail.stream.ledger import Ledger
    from dovetail.stream.migrations import Change
    from dovetail.stream.rdkafka import Producer, Records
    from dovetail.topology import Topology

VIA_CACHE = b"cache"


class Migrations(Protocol):
    """Where the cache's keys come from; `MigrationReader` over Kafka."""

    def follow(self, slots: list[int]) -> None: ...

    def forget(self, slots: list[int], held: Ints) -> Ints: ...

    def changes(self) -> Iterable[Change]: ...

    def waiting_for(self) -> str: ...

    def close(self) -> None: ...


class CacheHandler(Handler):
    """Answers an event with all its master rows or not at all.

    So a key may enter or leave the cache between any two steps without a wrong answer.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        topology: Topology,
        migrations: Migrations,
        budget: int,
        latency: Latency,
    ) -> None:
        self._pipeline = pipeline
        self._missed = topology.missed.name
        self._migrations = migrations
        self._budget = budget
        self._cache = MasterCache(budget)
        self._answers = Answers(pipeline, topology, VIA_CACHE, latency)
        self._evicted = 0
        self._refused = 0

    def assign(self, partitions: list[int]) -> None:
        self._migrations.follow(partitions)

    def revoke(self, partitions: list[int]) -> None:
        gone = set(self._migrations.forget(partitions, self._cache.keys()).tolist())
        self._cache.evict_values(np.array(sorted(gone), np.int64))

    def between_steps(self) -> None:
        """Apply the migrations that have arrived."""
        for change in self._migrations.changes():
            self._cache.evict(change.evictions)
            inserted = self._cache.insert(change.entries)
            self._evicted += inserted.evicted
            self._refused += inserted.refused

    def waiting_for(self) -> str:
        return self._migrations.waiting_for()

    def handle(self, records: Records, producer: Producer, ledger: Ledger) -> None:
        by_slot: dict[int, list[EventBatch]] = {}
        for slot, batch in batches_of(records):
            by_slot.setdefault(slot, []).append(batch)
        for slot, batches in by_slot.items():
            self._join(slot, EventBatch.concatenate(batches), producer, ledger)

    def _join(self, slot: int, batch: EventBatch, producer: Producer, ledger: Ledger) -> None:
        starts = self._cache.find(batch.keys)
        hits = np.flatnonzero(starts != MISS)
        ledger.add(slot, outcome.IN, len(batch))
        ledger.add(slot, outcome.HITS, len(hits))
        ledger.add(slot, outcome.MISSED, len(batch) - len(hits))
        if len(hits):
            answered = batch if len(hits) == len(batch) else batch.take(hits)
            self._answers.send(producer, ledger, slot, answered, self._cache.arena, starts[hits])
        if len(hits) < len(batch):
            missed = batch.take(np.flatnonzero(starts == MISS))
            for piece in missed.pieces(PIECE_BYTES):
                producer.send(self._missed, piece.to_message(self._pipeline.name, slot), slot)

    def figures(self) -> dict[str, float]:
        return {
            "budget_bytes": self._budget,
            "held_bytes": self._cache.allocated,
            "cache_used_bytes": self._cache.used,
            "cache_keys": len(self._cache),
            "cache_evicted": self._evicted,
            "cache_refused": self._refused,
        }

    def close(self) -> None:
        self._migrations.close()
