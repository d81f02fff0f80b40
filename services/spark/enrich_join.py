"""Both phases of a node in one Python worker of Spark's: cache and disk phase over one budget.

    a plan's keys ──► ┐
    events ─────────► cache ──hit───────────► answers
                        │miss   ▲ keys that are worth it
                        ▼       │
                     engine ────┴───────────► answers

It outlives a batch, for the cache's sake and for what `auto` (enrich_choice.py) has learnt, but
nothing waits beyond one: `finish` reads R until everything is answered. Spark gives a node's batch
to any worker, so the cache may hold keys of every slot, and is only ever a copy of R's rows: it can
be lost at any time.

What `migrations` holds, a plan (`dovetail spark frequency`) or what the services' caches had, is
taken in between batches.

A batch is let in as far as there is room before R is read at all: the longer the queue, the less a
scan costs an event.

Memory: as in the services, the pipeline's `memory` for cache, pending events, the disk buffer, and
which events wait. A worker has one of these, whichever nodes it works for.
"""

from __future__ import annotations

import logging
import time
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from dovetail.errors import TooManyRowsError
from dovetail.join.algorithms import Parameters
from dovetail.join.cached import NOTHING
from dovetail.join.caching import CachePhase
from dovetail.join.emigration import Emigration
from dovetail.join.engine import Engine
from dovetail.join.exchange import Events
from dovetail.master.pipeline import PipelineRelation
from dovetail.master.snapshot.current import CurrentSnapshot
from dovetail.master.snapshot.versions import versions_of
from dovetail.pipeline.spec import Algorithm, KeyType
from dovetail.stream import ledger as outcome
from dovetail.stream.answer import Answers, SourcedEvents
from dovetail.stream.migrations import MigrationReader
from dovetail.stream.provenance import DETAIL, ORIGIN, REASON, origins
from dovetail.stream.window import BYTES_AN_EVENT, Window
from services.cache_phase.handler import VIA_CACHE
from services.cache_phase.settings import budget as cache_budget
from services.disk_phase.build import REMEMBERED, build_join, factors_of
from services.disk_phase.handler import TOO_MANY_ROWS, VIA_DISK
from services.disk_phase.join import MasterJoin
from services.disk_phase.settings import KEYS_A_QUERY, shares
from services.disk_phase.settings import budget as disk_budget
from services.spark.enrich_choice import SCAN, Choice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

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
        self._migrations = MigrationReader(
            settings, topology.migrations, int_key=pipeline.key_type is KeyType.INT
        )
        self._migrations.follow(list(range(pipeline.slots)))
        left = disk_budget(pipeline) - capacity * BYTES_AN_EVENT
        self._choice: Choice | None = None
        self._make = partial(build_join, pipeline, self._relation, left, time.monotonic)
        if pipeline.algorithm is Algorithm.AUTO:
            self._choice = Choice(factors_of(pipeline))
            self._make = partial(_chosen_join, pipeline, self._relation, left)
        self._join, self._emigration = self._make()
        self._chosen = False
        self._reads = 0
        self._by_cache = Answers(pipeline, topology, VIA_CACHE, latency)
        self._by_disk = Answers(pipeline, topology, VIA_DISK, latency)
        self._looked_at = clock()
        self._finished = True

    @property
    def held_bytes(self) -> int:
        return self._cache.allocated + self._join.engine.allocated + self._window.nbytes

    @property
    def algorithm(self) -> str:
        """What the last batch was joined by."""
        engine = self._join.engine
        return engine.algorithm if isinstance(engine, Engine) else engine.choice.algorithm

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
        self._chosen = False
        self._reads = self._join.engine.figures.reads
        self._join.keep(slots)
        self._follow_plan()
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
        if self._join.pending:
            self._choose()
            with self._learning():
                while self._join.pending:
                    self._read(producer, ledger)
        self._relation.rest()
        self._finished = True

    def close(self) -> None:
        self._join.close()
        self._migrations.close()

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

    def _choose(self) -> None:
        """Let `auto` go on by what is cheaper for the keys that wait now."""
        self._chosen = True
        if self._choice is not None:
            engine = self._engine
            chosen = self._choice.between(self._relation.facts, engine.held.pending.keys)
            if chosen != engine.algorithm:
                engine.switch(chosen)

    @contextmanager
    def _learning(self) -> Iterator[None]:
        """Tell `auto` what answering all took, if nothing was read for want of room before."""
        if self._choice is None or self._engine.figures.reads > self._reads:
            yield
            return
        keys, began = self._engine.held.pending.keys, time.monotonic()
        yield
        seconds = time.monotonic() - began
        if self._engine.algorithm == SCAN:
            self._choice.scanned(self._relation.facts.pages, seconds)
        else:
            self._choice.looked_up(keys, seconds)

    @property
    def _engine(self) -> Engine:
        engine = self._join.engine
        assert isinstance(engine, Engine), "a batch's `auto` is enrich_choice.py's"
        return engine

    def _read(self, producer: Producer, ledger: Ledger) -> None:
        """Read R once, and answer whom that completes."""
        if not self._chosen:
            self._choose()
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

    def _follow_plan(self) -> None:
        for change in self._migrations.changes():
            self._cache.drop(change.evictions)
            read_at = np.clip(change.read_at_ms // 1000 - _EPOCH_S, 0, NOTHING - 1)
            self._cache.take(change.entries, change.events, change.cycle, read_at)
        self._cache.departed()

    def _expire(self) -> None:
        """Let go of what was read too long ago."""
        now, refresh_s = self._clock(), self._pipeline.master.refresh
        if now - self._looked_at >= refresh_s / _ROUNDS:
            self._cache.expire(max(0, int(now - refresh_s - _EPOCH_S)), 1.0)
            self._looked_at = now

    def _age(self) -> int:
        return int(np.clip(self._clock() - _EPOCH_S, 0, NOTHING - 1))


def _chosen_join(
    pipeline: Pipeline, relation: ChangingRelation, memory: int
) -> tuple[MasterJoin, Emigration]:
    """A join for `auto`, whose algorithm is chosen batch by batch; as `build_join` makes others."""
    emigration = Emigration(pipeline.algorithm, memory=cache_budget(pipeline) // REMEMBERED)
    parameters = Parameters(keys=KEYS_A_QUERY)
    engine = Engine(
        SCAN,
        relation.facts,
        memory - emigration.allocated,
        parameters=parameters,
        policy=emigration,
    )
    return MasterJoin(engine, relation), emigration


def _relation(settings: Settings, pipeline: Pipeline) -> ChangingRelation:
    """The current snapshot, if the pipeline names a folder of them; else the table itself."""
    folder = pipeline.master.snapshot
    if folder is None:
        return PipelineRelation(settings.database_url, pipeline)
    command = f"dovetail spark snapshot {settings.pipeline}"
    return CurrentSnapshot(versions_of(folder, pipeline.name), pipeline, command)
