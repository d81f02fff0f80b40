"""Answers what the cache can answer completely; the rest is the disk phase's.

Where the pipeline keeps an order, it answers nothing by itself: all events go on to the disk phase
as they came, each hit with its entry, so that one phase alone writes to the sink.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

from dovetail.join.cached import NOTHING
from dovetail.join.caching import CachePhase
from dovetail.join.columns import Column
from dovetail.join.entry import Entries, entries_at, sizes_at
from dovetail.join.mapper import Mapper
from dovetail.join.splice import slice_bytes
from dovetail.pipeline.spec import KeyType
from dovetail.service.questions import Questions
from dovetail.stream import ledger as outcome
from dovetail.stream.answer import Answers
from dovetail.stream.batch import EventBatch, cuts
from dovetail.stream.handler import Handler
from dovetail.stream.migrations import send_evictions
from dovetail.stream.parking import UNFIT_KEY, park
from dovetail.stream.reader import BatchReader
from dovetail.topology import LARGEST_MESSAGE_BYTES
from services.cache_phase.contents import EPOCH_S, CacheContents, as_cached
from services.cache_phase.settings import piece_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from dovetail.join.caching import Hits
    from dovetail.join.columns import Ints
    from dovetail.pipeline.spec import Pipeline
    from dovetail.service.metrics import Latency
    from dovetail.stream.ledger import Ledger
    from dovetail.stream.migrations import Change
    from dovetail.stream.rdkafka import Producer, Records
    from dovetail.topology import Topology

VIA_CACHE = b"cache"
_ROUNDS = 20
"""An entry leaves within one part in so many of the time after which it has to."""
_ROUND_S = 60.0
"""A round takes no longer: it also finds the oldest."""


_FRAME = 4 << 10
"""What a message takes beside an event, its key and its entry."""


class Migrations(Protocol):
    """Where the cache's keys come from; `MigrationReader` over Kafka."""

    def follow(self, slots: list[int]) -> None: ...

    def forget(self, slots: list[int]) -> None: ...

    def changes(self) -> Iterable[Change]: ...

    def waiting_for(self) -> str: ...

    @property
    def loaded(self) -> float: ...

    def close(self) -> None: ...


class CacheHandler(Handler):
    """Answers an event with all its master rows or not at all.

    So a key may enter or leave the cache between any two steps without a wrong answer; while
    slots are loading, more events miss.
    """

    def __init__(
        self,
        pipeline: Pipeline,
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
        self._pipeline = pipeline
        self._topology = topology
        self._migrations = migrations
        self._reader = BatchReader(topology, topology.mapped)
        self._budget = budget
        self._int_key = pipeline.key_type is KeyType.INT
        self._mapper = Mapper(pipeline.slots, int_key=self._int_key)
        self._cache = CachePhase(pipeline.algorithm, budget)
        self.contents = CacheContents(pipeline, self._cache, budget, clock)
        self._refresh_s = pipeline.master.refresh
        self._clock = clock
        self._looked_at = clock()
        self._tombstones = 0
        self._piece_bytes = piece_bytes(pipeline)
        self._most = slice_bytes(pipeline.memory)
        self._no_rows = Entries.without_rows()
        self._answers = Answers(pipeline, topology, VIA_CACHE, latency, sink_takes)

    def assign(self, partitions: list[int]) -> None:
        self._migrations.follow(partitions)

    def revoke(self, partitions: list[int]) -> None:
        self._migrations.forget(partitions)
        self._cache.drop_slots(self._mapper, partitions)

    def between_steps(self) -> None:
        """Apply the migrations that have arrived; let go of what is too old."""
        for change in self._migrations.changes():
            self._cache.drop(change.evictions)
            read_at = as_cached(change.read_at_ms, self._clock())
            self._cache.take(change.entries, change.events, change.cycle, read_at)
        self._expire()
        self._questions.answer()

    def _expire(self) -> None:
        now = self._clock()
        before = max(0.0, now - self._refresh_s - EPOCH_S)
        round_s = min(self._refresh_s / _ROUNDS, _ROUND_S)
        self._cache.expire(int(before), (now - self._looked_at) / round_s)
        self._looked_at = now

    def waiting_for(self) -> str:
        return self._migrations.waiting_for()

    def handle(self, records: Records, producer: Producer, ledger: Ledger) -> None:
        by_slot: dict[tuple[int, bool, str], list[EventBatch]] = {}
        for slot, batch in self._reader.read(records, producer):
            by_slot.setdefault((slot, batch.keyless, batch.unfit), []).append(batch)
        for (slot, keyless, unfit), batches in by_slot.items():
            batch = EventBatch.concatenate(batches)
            if unfit:
                ledger.add(slot, outcome.IN, len(batch))
                park(producer, self._topology, ledger, slot, batch, UNFIT_KEY, unfit)
            elif keyless:
                self._answer_keyless(slot, batch, producer, ledger)
            else:
                self._join(slot, batch, producer, ledger)
        self._report_departed(producer)

    def _answer_keyless(
        self, slot: int, batch: EventBatch, producer: Producer, ledger: Ledger
    ) -> None:
        """Answer events that a link of a chain found no key in: there is no row for them."""
        ledger.add(slot, outcome.IN, len(batch))
        ledger.add(slot, outcome.HITS, len(batch))
        starts = np.zeros(len(batch), np.int64)
        self._answers.send(producer, ledger, slot, batch, self._no_rows.data, starts)

    def _join(self, slot: int, batch: EventBatch, producer: Producer, ledger: Ledger) -> None:
        ledger.add(slot, outcome.IN, len(batch))
        if len(batch):
            event_bytes = float(np.diff(batch.events.bounds[[0, -1]])[0]) / len(batch)
            self.contents.event_bytes = event_bytes
            self._cache.see(event_bytes)
        while len(batch):
            hits = self._cache.probe(batch.keys, self._most)
            self._answer(slot, batch.slice(0, hits.seen), hits, producer, ledger)
            batch = batch.slice(hits.seen, len(batch))

    def _answer(
        self, slot: int, batch: EventBatch, hits: Hits, producer: Producer, ledger: Ledger
    ) -> None:
        if self._pipeline.order.kept:
            for part in with_entries(batch, hits, self._piece_bytes):
                self._pass_on(slot, part, producer, ledger)
            return
        answered, missed = hits.positions, hits.misses
        ledger.add(slot, outcome.HITS, len(answered))
        if len(answered):
            events = _part(batch, answered)
            self._answers.send(producer, ledger, slot, events, hits.entries, hits.starts)
        if len(missed):
            self._pass_on(slot, _part(batch, missed), producer, ledger)

    def _pass_on(self, slot: int, batch: EventBatch, producer: Producer, ledger: Ledger) -> None:
        ledger.add(slot, outcome.MISSED, len(batch))
        for piece in batch.pieces(self._piece_bytes):
            message = piece.written(self._pipeline.name, slot)
            producer.give(self._topology.missed.name, message, slot)

    def _report_departed(self, producer: Producer) -> None:
        gone = self._cache.departed()
        if len(gone):
            self._tombstones += len(gone)
            topic = self._topology.migrations
            send_evictions(producer, topic, self._mapper, gone, int_key=self._int_key)

    def alarm(self) -> str:
        return self._answers.matches.alarm

    def figures(self) -> dict[str, float]:
        cache = self._cache
        figures: dict[str, float] = {
            "budget_bytes": self._budget,
            "held_bytes": cache.allocated,
            "cache_used_bytes": cache.used,
            "cache_keys": len(cache),
            "cache_hits": cache.hits,
            "cache_misses": cache.misses,
            "cache_taken": cache.taken,
            "cache_evicted": cache.evicted,
            "cache_refused": cache.refused,
            "cache_tombstones": self._tombstones,
            "refused_messages": self._reader.refused,
            "cache_loaded": self._migrations.loaded,
            **self._answers.matches.figures(),
            **{f"component_bytes.{name}": size for name, size in cache.components.items()},
        }
        if cache.oldest != NOTHING:
            figures["cache_oldest_s"] = max(0.0, self._clock() - cache.oldest - EPOCH_S)
        return figures

    def close(self) -> None:
        self._migrations.close()


def with_entries(batch: EventBatch, hits: Hits, most: int) -> Iterator[EventBatch]:
    """All events, those that are hits with their entries, in batches of about so many bytes.

    An entry that is too large for a message beside its event stays here.
    """
    sizes = sizes_at(hits.entries, hits.starts)
    fit = sizes + batch.sizes[hits.positions] <= LARGEST_MESSAGE_BYTES - _FRAME
    if not fit.all():
        hits, sizes = hits.only(fit), sizes[fit]
    if not len(hits.positions):
        yield batch
        return
    bounds = np.zeros(len(batch) + 1, np.int64)
    bounds[hits.positions + 1] = sizes
    bounds = np.cumsum(bounds)
    for first, end in cuts(batch.events.bounds + bounds, most):
        part = hits.part(first, end)
        entries = entries_at(part.entries, part.starts)
        own = bounds[first : end + 1] - bounds[first]
        yield replace(batch.slice(first, end), entries=Column(entries.data, own))


def _part(batch: EventBatch, positions: Ints) -> EventBatch:
    """The events at these positions; all of them without a copy."""
    return batch if len(positions) == len(batch) else batch.take(positions)
