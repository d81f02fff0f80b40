"""Both phases of a node in one Python worker of Spark's: cache and disk phase over one budget.

    events ──► cache ──hit──────────────────► answers
                │miss   ▲ keys that are worth it
                ▼       │
             engine ────┴───────────────────► answers

It outlives a batch, for the cache's sake and for what `auto` has learnt, but nothing waits beyond
one: `finish` reads R until everything is answered. Spark gives a node's batch to any worker, so the
cache may hold keys of every slot, and is only ever a copy of R's rows: it can be lost at any time.

A batch is let in as far as there is room before R is read at all: the longer the queue, the less a
scan costs an event.

Memory: as in the services, the pipeline's `memory` for cache, pending events, the disk buffer, and
which events wait. A worker has one of these, whichever nodes it works for.
"""

from __future__ import annotations

import logging
import time
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from dovetail.errors import TooManyRowsError
from dovetail.join.cached import NOTHING
from dovetail.join.caching import CachePhase
from dovetail.join.exchange import Events
from dovetail.master.pipeline import PipelineRelation
from dovetail.master.snapshot.current import CurrentSnapshot
from dovetail.master.snapshot.versions import versions_of
from dovetail.stream import ledger as outcome
from dovetail.stream.answer import Answers, SourcedEvents
from dovetail.stream.provenance import DETAIL, ORIGIN, REASON, origins
from dovetail.stream.window import BYTES_AN_EVENT, Window
from services.cache_phase.handler import VIA_CACHE
from services.cache_phase.settings import budget as cache_budget
from services.disk_phase.build import build_join
from services.disk_phase.handler import TOO_MANY_ROWS, VIA_DISK
from services.disk_phase.settings import budget as disk_budget
from services.disk_phase.settings import shares

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from dovetail.join.exchange import Answers as Joined
    from dovetail.master.relation import ChangingRelation
    from dovetail.pipeline.spec import Pipeline
    from dovetail.service.metrics import Latency
    from dovetail.settings import Settings
    from dovetail.stream.batch import EventBatch
    from dovetail.stream.ledger import Ledger
    from dovetail.stream.rdkafka import Producer
    from dovetail.topology import Topology

log = logging.getLogger(__name__)

_EPOCH_S = 1_700_000_000
"""Ages count from here, so that they fit 31 bits until 2091."""
_ROUNDS = 20
"""An entry leaves within one part in so many of the time after which it has to."""


class NodeJoin:
    def __init__(
        self,
        settings: Settings,
        pipeline: Pipeline,
        topology: Topology,
        latency: Latency,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._pipeline = pipeline
        self._topology = topology
        self._clock = clock
        capacity = shares(pipeline).capacity
        self._window = Window(capacity)
        self._cache = CachePhase(pipeline.algorithm, cache_budget(pipeline))
        self._relation = _relation(settings, pipeline)
        left = disk_budget(pipeline) - capacity * BYTES_AN_EVENT
        self._make = partial(build_join, pipeline, self._relation, left, time.monotonic)
        self._join, self._emigration = self._make()
        self._by_cache = Answers(pipeline, topology, VIA_CACHE, latency)
        self._by_disk = Answers(pipeline, topology, VIA_DISK, latency)
        self._looked_at = clock()
        self._finished = True

    @property
    def held_bytes(self) -> int:
        return self._cache.allocated + self._join.engine.allocated + self._window.nbytes

    @property
    def cached_keys(self) -> int:
        return len(self._cache)

    @property
    def alarm(self) -> str:
        """What somebody should look at although it works; empty if nothing is."""
        return self._by_disk.matches.alarm or self._by_cache.matches.alarm

    def begin(self, slots: Iterable[int]) -> None:
        """Begin a batch of these slots; what one that failed has left is dropped."""
        if not self._finished:
            self._join, self._emigration = self._make()
            self._window.clear()
        self._finished = False
        self._join.keep(slots)
        self._expire()

    def take(self, slot: int, batch: EventBatch, producer: Producer, ledger: Ledger) -> None:
        """Answer what the cache can, and let the others in; R is read for want of room alone."""
        ledger.add(slot, outcome.IN, len(batch))
        if not len(batch):
            return
        self._cache.see(float(np.diff(batch.events.bounds[[0, -1]])[0]) / len(batch))
        hits = self._cache.probe(batch.keys)
        ledger.add(slot, outcome.HITS, len(hits.positions))
        if len(hits.positions):
            events = batch.take(hits.positions)
            self._by_cache.send(producer, ledger, slot, events, hits.entries, hits.starts)
        if len(hits.misses):
            self._let_in(slot, batch.take(hits.misses), producer, ledger)

    def finish(self, producer: Producer, ledger: Ledger) -> None:
        """Read R until everything is answered."""
        while self._join.pending:
            self._read(producer, ledger)
        self._relation.rest()
        self._finished = True

    def close(self) -> None:
        self._join.close()

    def _let_in(self, slot: int, batch: EventBatch, producer: Producer, ledger: Ledger) -> None:
        while self._window.room < len(batch):
            self._read(producer, ledger)
        _, numbers = self._window.enter(slot, 0, batch)
        events = Events(batch.keys, batch.events, numbers)
        while True:
            accepted = self._join.offer(events)
            if accepted == len(events):
                return
            events = events.slice(accepted, len(events))
            self._read(producer, ledger)

    def _read(self, producer: Producer, ledger: Ledger) -> None:
        """Read R once, and answer whom that completes."""
        try:
            answers = self._join.step()
        except TooManyRowsError as error:
            self._park(str(error), producer, ledger)
            answers = None
        if answers is not None and len(answers):
            self._answer(answers, producer, ledger)
            self._migrate()
        self._window.advance()

    def _answer(self, joined: Joined, producer: Producer, ledger: Ledger) -> None:
        found = self._window.finish(joined.ids)
        for one in found:
            whole = len(found) == 1
            events = joined.events if whole else joined.events.take(one.places)
            starts = joined.starts if whole else joined.starts[one.places]
            sourced = SourcedEvents(events, one.partitions, one.offsets, one.timestamps)
            self._by_disk.send(producer, ledger, one.slot, sourced, joined.entries, starts)

    def _migrate(self) -> None:
        leaving = self._emigration.collected()
        if len(leaving):
            read_at = np.full(len(leaving), self._age(), np.int64)
            self._cache.take(leaving.entries, leaving.events, leaving.cycle, read_at)
            self._cache.departed()  # nobody else has to know

    def _park(self, why: str, producer: Producer, ledger: Ledger) -> None:
        """Set the events aside whose key has more rows than fit; the others go on."""
        left = self._join.engine.dismiss()
        log.error("events parked", extra={"events": len(left.ids), "reason": why})
        for one in self._window.finish(left.ids):
            events = left.events.take(one.places)
            origin = origins(self._topology.source.name, one.partitions, one.offsets)
            producer.send_many(
                self._topology.parked.name,
                0,
                events.data,
                events.bounds,
                headers=(
                    (ORIGIN, (origin.data, origin.bounds)),
                    (REASON, TOO_MANY_ROWS),
                    (DETAIL, why.encode()),
                ),
            )
            ledger.add(one.slot, outcome.PARKED, len(events))

    def _expire(self) -> None:
        """Let go of what was read too long ago."""
        now, refresh_s = self._clock(), self._pipeline.master.refresh
        if now - self._looked_at >= refresh_s / _ROUNDS:
            self._cache.expire(max(0, int(now - refresh_s - _EPOCH_S)), 1.0)
            self._looked_at = now

    def _age(self) -> int:
        return int(np.clip(self._clock() - _EPOCH_S, 0, NOTHING - 1))


def _relation(settings: Settings, pipeline: Pipeline) -> ChangingRelation:
    """The current snapshot, if the pipeline names a folder of them; else the table itself."""
    folder = pipeline.master.snapshot
    if folder is None:
        return PipelineRelation(settings.database_url, pipeline)
    command = f"dovetail spark snapshot {settings.pipeline}"
    return CurrentSnapshot(versions_of(folder, pipeline.name), pipeline, command)
