"""Answers what the cache can answer completely; the rest is the disk phase's (node/cache.py)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from dovetail.join.caching import CachePhase
from dovetail.node.answers import VIA_CACHE, Answers
from dovetail.node.cache import CacheHalf
from dovetail.service.questions import Questions
from dovetail.stream.batch import EventBatch
from dovetail.stream.engines import require_no_progress
from dovetail.stream.handler import Handler
from dovetail.stream.reader import BatchReader
from dovetail.stream.writing import PartWriter
from services.cache_phase.settings import piece_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from dovetail.node.cache import Migrations
    from dovetail.node.contents import CacheContents
    from dovetail.service.metrics import Latency
    from dovetail.stream.ledger import Ledger
    from dovetail.stream.rdkafka import Producer, Records
    from dovetail.topology import Topology


class CacheHandler(Handler):
    """Drives the cache half; while its slots are loading, more events miss."""

    def __init__(
        self,
        topology: Topology,
        migrations: Migrations,
        budget: int,
        latency: Latency,
        sink_takes: Callable[[], int],
        clock: Callable[[], float] = time.time,
        questions: Questions | None = None,
    ) -> None:
        """`questions` about the cache are answered between steps."""
        self._questions = questions or Questions()
        self._migrations = migrations
        self._reads = topology.mapped
        self._reader = BatchReader(topology, topology.mapped)
        self._writer = PartWriter(topology, latency)
        self._budget = budget
        self._tombstones = 0
        link = topology.pipeline.link(topology.number)
        answers = Answers.of(topology, VIA_CACHE, sink_takes)
        self.half = CacheHalf(
            link, answers, CachePhase(link.algorithm, budget), piece_bytes(link), clock
        )

    @property
    def contents(self) -> CacheContents:
        return self.half.contents

    def assign(self, partitions: list[int]) -> None:
        self._migrations.follow(partitions)

    def open(self, partition: int, ledger: Ledger) -> None:
        require_no_progress(ledger, partition, self._reads)

    def revoke(self, partitions: list[int]) -> None:
        self._migrations.forget(partitions)
        self.half.forget(partitions)

    def between_steps(self) -> None:
        """Apply the migrations that have arrived; let go of what is too old."""
        for change in self._migrations.changes():
            self.half.apply(change)
        self.half.expire()
        self._questions.answer()

    def waiting_for(self) -> str:
        return self._migrations.waiting_for()

    def handle(self, records: Records, producer: Producer, ledger: Ledger) -> None:
        by_slot: dict[tuple[int, bool, str], list[EventBatch]] = {}
        for slot, batch in self._reader.read(records, producer):
            by_slot.setdefault((slot, batch.keyless, batch.unfit), []).append(batch)
        for (slot, _, _), batches in by_slot.items():
            parts = self.half.take(slot, EventBatch.concatenate(batches))
            self._writer.write(parts, producer, ledger)
        for gone in self.half.evicted():
            self._tombstones += len(gone.keys)
            self._writer.write([gone], producer, ledger)

    def alarm(self) -> str:
        return self.half.answers.matches.alarm

    def figures(self) -> dict[str, float]:
        return {
            "budget_bytes": self._budget,
            "held_bytes": self.half.cache.allocated,
            "cache_tombstones": self._tombstones,
            "refused_messages": self._reader.refused,
            "cache_loaded": self._migrations.loaded,
            **self.half.answers.matches.figures(),
            **self.half.figures(),
        }

    def close(self) -> None:
        self._migrations.close()
