"""Both phases of a table in one Python worker of Spark's: cache and disk phase over one budget.

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

Where the pipeline keeps an order, answers leave as they do in the disk phase (decision 13): by key
at once, unless events of the key are pending; within N by the line.

Memory: as in the services, the link's `memory` for cache, pending events, the disk buffer, which
events wait, and the line. A worker has one of these a table, whichever nodes it works for.
"""

from __future__ import annotations

import logging
import time
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail.errors import SlowError, TooManyRowsError
from dovetail.join.caching import CachePhase
from dovetail.join.engine import Engine
from dovetail.join.entry import Entries
from dovetail.join.exchange import Answers as Joined
from dovetail.join.exchange import Events
from dovetail.join.line import Line
from dovetail.join.splice import slice_bytes
from dovetail.pipeline.spec import Algorithm, KeyType
from dovetail.stream import ledger as outcome
from dovetail.stream.answer import Answers, SourcedEvents
from dovetail.stream.migrations import MigrationReader
from dovetail.stream.parking import TOO_MANY_ROWS, UNFIT_KEY, park
from dovetail.stream.topic_settings import largest_message
from dovetail.stream.window import BYTES_AN_EVENT, Window
from services.cache_phase.contents import EPOCH_S, CacheContents, as_cached
from services.cache_phase.handler import VIA_CACHE, with_entries
from services.cache_phase.settings import budget as cache_budget
from services.disk_phase.build import build_join, factors_of
from services.disk_phase.handler import VIA_DISK, leading_hits
from services.disk_phase.settings import budget as disk_budget
from services.disk_phase.settings import shares
from services.mapper.handler import send_shed
from services.spark.enrich_build import build_chosen_join
from services.spark.enrich_choice import LOOKUP, SCAN, TRIAL_KEYS, Choice
from services.spark.enrich_size import READING_S
from services.spark.relation import relation_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from dovetail.join.caching import Hits
    from dovetail.join.columns import Flags, Ints
    from dovetail.service.metrics import Latency
    from dovetail.settings import Settings
    from dovetail.stream.answer import HandsOn, Sourced
    from dovetail.stream.batch import EventBatch
    from dovetail.stream.ledger import Ledger
    from dovetail.stream.rdkafka import Producer
    from dovetail.topology import Topology
    from services.spark.enrich_overload import NodeGuard

log = logging.getLogger(__name__)

_ROUNDS = 20
"""An entry leaves within one part in so many of the time after which it has to."""


class TableJoin:
    def __init__(
        self,
        settings: Settings,
        topology: Topology,
        latency: Latency,
        onward: HandsOn | None = None,
        guard: NodeGuard | None = None,
        caution: int = 1,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`topology` is seen from the table's link; `caution` is the line's.

        Without a guard nothing is ever shed.
        """
        pipeline = topology.pipeline.link(topology.number)
        self._pipeline = pipeline
        self._topology = topology
        self._guard = guard
        self._clock = clock
        mine, within = shares(pipeline), pipeline.order.within
        self._window = Window(mine.capacity)
        self._line = None if within is None else Line(within, mine.line, caution)
        self._cache = CachePhase(pipeline.algorithm, cache_budget(pipeline))
        self.contents = CacheContents(pipeline, self._cache, cache_budget(pipeline), clock)
        self._no_rows = Entries.without_rows()
        self._most = slice_bytes(pipeline.memory)
        self._relation = relation_of(settings, pipeline, topology.number, read_ahead=True)
        self._migrations = MigrationReader(
            settings, topology.migrations, int_key=pipeline.key_type is KeyType.INT
        )
        self._migrations.follow(list(range(pipeline.slots)))
        left = disk_budget(pipeline) - mine.capacity * BYTES_AN_EVENT - mine.line
        self._choice: Choice | None = None
        self._make = partial(build_join, pipeline, self._relation, left, time.monotonic)
        if pipeline.algorithm is Algorithm.AUTO:
            self._choice = Choice(factors_of(pipeline))
            self._make = partial(build_chosen_join, pipeline, self._relation, left)
        self._join, self._emigration = self._make()
        self._chosen = False
        self._read_until = 0.0
        self._reads = 0
        self.reading_s = 0.0
        """What reading R has taken in this batch."""
        takes = partial(largest_message, settings, topology.enriched)
        self._by_cache = Answers(pipeline, topology, VIA_CACHE, latency, takes, onward)
        self._by_disk = Answers(pipeline, topology, VIA_DISK, latency, takes, onward)
        self._looked_at = clock()
        self._finished = True
        self._producer: Producer
        self._ledger: Ledger

    @property
    def held_bytes(self) -> int:
        in_line = 0 if self._line is None else self._line.nbytes
        held = self._cache.allocated + self._join.engine.allocated + self._window.nbytes
        return held + in_line

    @property
    def algorithm(self) -> str:
        """What the last batch was joined by."""
        engine = self._join.engine
        return engine.algorithm if isinstance(engine, Engine) else engine.choice.algorithm

    def explained(self) -> dict[str, Any]:
        """What runs, why, and what it has measured."""
        found = self._join.explained()
        return found if self._choice is None else {**found, "reason": self._choice.reason}

    @property
    def cached_keys(self) -> int:
        return len(self._cache)

    @property
    def alarm(self) -> str:
        """What somebody should look at although it works; empty if nothing is."""
        return self._by_disk.matches.alarm or self._by_cache.matches.alarm

    def begin(self, slots: Iterable[int], producer: Producer, ledger: Ledger) -> None:
        """Begin a batch of these slots; what one that failed has left is dropped."""
        self._producer, self._ledger = producer, ledger
        if not self._finished:
            self._join, self._emigration = self._make()
            self._window.clear()
            if self._line is not None:
                self._line.clear()
        self._finished = False
        self._chosen = False
        self._read_until = time.monotonic() + READING_S
        self.reading_s = 0.0
        self._reads = self._join.engine.figures.reads
        # A further table's keys are of any slot, whichever slot their events are of.
        self._join.keep(slots if self._topology.number == 1 else range(self._pipeline.slots))
        self._follow_plan()
        self._expire()

    def take(self, slot: int, batch: EventBatch) -> None:
        """Answer what the cache can, and let the others in; R is read for want of room alone."""
        self._ledger.add(slot, outcome.IN, len(batch))
        if not len(batch):
            return
        if batch.unfit:
            self._set_aside(slot, batch, UNFIT_KEY, batch.unfit)
            return
        if batch.keyless:
            self._answer_keyless(slot, batch)
            return
        event_bytes = float(np.diff(batch.events.bounds[[0, -1]])[0]) / len(batch)
        self.contents.event_bytes = event_bytes
        self._cache.see(event_bytes)
        while len(batch):
            hits = self._cache.probe(batch.keys, self._most)
            self._take(slot, batch.slice(0, hits.seen), hits)
            batch = batch.slice(hits.seen, len(batch))

    def _take(self, slot: int, batch: EventBatch, hits: Hits) -> None:
        if self._guard and (kept := self._guard.admit(batch.keys, hits)) is not None:
            self._shed(slot, batch.take(np.flatnonzero(~kept)), self._guard.strategy)
            batch, hits = batch.take(np.flatnonzero(kept)), hits.among(kept)
        if self._pipeline.order.kept:
            for part in with_entries(batch, hits, self._most):
                self._take_in_order(slot, part)
            return
        if len(hits.positions):
            self._ledger.add(slot, outcome.HITS, len(hits.positions))
            events = batch.take(hits.positions)
            self._by_cache.send(
                self._producer, self._ledger, slot, events, hits.entries, hits.starts
            )
        if len(hits.misses):
            missed = batch.take(hits.misses)
            self._offer(Events(missed.keys, missed.events, self._enter(slot, missed)))

    def finish(self) -> None:
        """Read R until everything is answered."""
        if self._join.pending:
            self._choose()
            with self._learning():
                while self._join.pending:
                    self._read()
        self._relation.rest()
        self._finished = True

    def close(self) -> None:
        self._join.close()
        self._migrations.close()

    def _answer_keyless(self, slot: int, batch: EventBatch) -> None:
        """Answer events of a chain that have no key for this table: there is no row for them."""
        self._ledger.add(slot, outcome.HITS, len(batch))
        starts = np.zeros(len(batch), np.int64)
        self._by_cache.send(self._producer, self._ledger, slot, batch, self._no_rows.data, starts)

    def _shed(self, slot: int, events: EventBatch, strategy: str) -> None:
        self._ledger.add(slot, outcome.shed(strategy), len(events))
        send_shed(self._producer, self._topology, events, strategy)

    def _take_in_order(self, slot: int, batch: EventBatch) -> None:
        """Let all events in as they came, those that the cache can answer with their entries."""
        while self._line is not None and not self._line.takes(batch.nbytes):
            self._read()
        numbers = self._enter(slot, batch)
        if batch.entries is not None:
            hits = leading_hits(batch, self._join, self._line)
            if len(places := np.flatnonzero(hits)):
                entries = batch.entries
                answered = Joined(
                    batch.events.take(places), numbers[places], entries.data, entries.bounds[places]
                )
                self._answer(answered, cached=True)
            batch, numbers = batch.take(np.flatnonzero(~hits)), numbers[~hits]
        self._offer(Events(batch.keys, batch.events, numbers))

    def _enter(self, slot: int, batch: EventBatch) -> Ints:
        """Number a batch's events, once there is room."""
        while self._window.room < len(batch):
            self._read()
        _, numbers = self._window.enter(slot, 0, batch)
        return numbers

    def _offer(self, events: Events) -> None:
        """Let events into the join, all of them, as there is room."""
        while len(events):
            most = self._lets_in(len(events))
            accepted = self._join.offer(events.slice(0, most)) if most else 0
            events = events.slice(accepted, len(events))
            if len(events):
                self._read()

    def _lets_in(self, events: int) -> int:
        return events if self._line is None else min(events, self._line.lets_in(self._join.pending))

    def _choose(self) -> None:
        """Let `auto` go on by what is cheaper for the keys that wait now."""
        self._chosen = True
        if self._choice is None:
            return
        chosen = self._choice.between(self._relation.facts, self._waiting_keys)
        if chosen == LOOKUP:
            chosen = self._tried(self._choice)
        if chosen != self._engine.algorithm:
            self._engine.switch(chosen)

    def _tried(self, choice: Choice) -> Algorithm:
        """Look few keys up while it is not known what that costs; return how to go on."""
        engine, usual = self._engine, self._engine.parameters
        while choice.is_to_try(self._relation.facts) and self._join.pending:
            engine.switch(LOOKUP, replace(usual, keys=TRIAL_KEYS))
            keys, began = self._waiting_keys, time.monotonic()
            self._read()
            choice.tried(keys - self._waiting_keys, time.monotonic() - began)
        engine.switch(LOOKUP, usual)
        return choice.between(self._relation.facts, self._waiting_keys)

    @property
    def _waiting_keys(self) -> int:
        return self._engine.held.pending.keys

    @contextmanager
    def _learning(self) -> Iterator[None]:
        """Tell `auto` what answering all took, if nothing was read for want of room before."""
        if self._choice is None or self._engine.figures.reads > self._reads:
            yield
            return
        keys, began = self._waiting_keys, time.monotonic()
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

    def _read(self) -> None:
        """Read R once, and answer whom that completes."""
        self._require_time()
        if not self._chosen:
            self._choose()
        began = time.monotonic()
        try:
            answers = self._join.step()
        except TooManyRowsError as error:
            self._park(str(error))
            answers = None
        self.reading_s += time.monotonic() - began
        if answers is not None and len(answers):
            self._answer(answers)
            while self._join.answering:
                self._answer(self._join.more())
            self._migrate()
        self._window.advance()

    def _require_time(self) -> None:
        """Raise while it can be told why: later the broker says no more than that it is fenced."""
        if time.monotonic() > self._read_until:
            raise SlowError(
                f"reading {self._pipeline.master.table} for the events of a batch takes a node "
                f"longer than {READING_S:.0f} s, and the broker ends its transaction: the next "
                f"batch has half as many; look at what the database does (pg_stat_activity), or "
                f"let it have less to do"
            )

    def _answer(self, joined: Joined, *, cached: bool = False) -> None:
        """Send answers, or let them stand in line."""
        if self._line is None:
            self._send(joined, np.ones(len(joined), np.bool_) if cached else None)
        else:
            self._line.stand(joined, cached=cached)
            self._send_due()

    def _send_due(self) -> None:
        if self._line is None:
            return
        while (due := self._line.due(waiting := self._window.waiting())) is not None:
            self._send(due.answers, due.cached)
        self._line.require_room(len(waiting))

    def _send(self, joined: Joined, cached: Flags | None) -> None:
        found = self._window.finish(joined.ids)
        for one in found:
            whole = len(found) == 1
            events = joined.events if whole else joined.events.take(one.places)
            starts = joined.starts if whole else joined.starts[one.places]
            sourced = SourcedEvents(events, one.partitions, one.offsets, one.timestamps)
            hits = cached if cached is None or whole else cached[one.places]
            if hits is not None:
                self._ledger.add(one.slot, outcome.HITS, int(hits.sum()))
            self._by_disk.send(
                self._producer, self._ledger, one.slot, sourced, joined.entries, starts, hits
            )

    def _migrate(self) -> None:
        leaving, since = self._emigration.collected(), self._join.rows_since()
        if len(leaving):
            read_at = as_cached(np.full(len(leaving), int(since * 1000)), self._clock())
            self._cache.take(leaving.entries, leaving.events, leaving.cycle, read_at)
            self._cache.departed()  # nobody else has to know

    def _park(self, why: str) -> None:
        """Set the events aside whose key has more rows than fit; the others go on."""
        left = self._join.engine.dismiss()
        for one in self._window.finish(left.ids):
            events = left.events.take(one.places)
            sourced = SourcedEvents(events, one.partitions, one.offsets, one.timestamps)
            self._set_aside(one.slot, sourced, TOO_MANY_ROWS, why)
        self._send_due()

    def _set_aside(self, slot: int, events: Sourced, reason: bytes, detail: str) -> None:
        park(self._producer, self._topology, self._ledger, slot, events, reason, detail)

    def _follow_plan(self) -> None:
        for change in self._migrations.changes():
            self._cache.drop(change.evictions)
            read_at = as_cached(change.read_at_ms, self._clock())
            self._cache.take(change.entries, change.events, change.cycle, read_at)
        self._cache.departed()

    def _expire(self) -> None:
        """Let go of what was read too long ago."""
        now, refresh_s = self._clock(), self._pipeline.master.refresh
        if now - self._looked_at >= refresh_s / _ROUNDS:
            self._cache.expire(max(0, int(now - refresh_s - EPOCH_S)), 1.0)
            self._looked_at = now
