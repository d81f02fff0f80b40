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

import time
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from dovetail.errors import SlowError
from dovetail.join.caching import CachePhase
from dovetail.join.engine import Engine
from dovetail.join.line import Line
from dovetail.join.splice import slice_bytes
from dovetail.node.answers import VIA_CACHE, VIA_DISK, Answers
from dovetail.node.cache import CacheHalf
from dovetail.node.disk import DiskHalf
from dovetail.node.step import Counted, Migrating, Missed, Outputs
from dovetail.node.window import BYTES_AN_EVENT, Window
from dovetail.pipeline.spec import Algorithm, KeyType
from dovetail.stream import ledger as outcome
from dovetail.stream.migrations import MigrationReader
from dovetail.stream.topic_settings import largest_message
from dovetail.stream.writing import PartWriter
from services.cache_phase.settings import budget as cache_budget
from services.disk_phase.build import build_join, factors_of
from services.disk_phase.settings import budget as disk_budget
from services.disk_phase.settings import shares
from services.spark.enrich_build import build_chosen_join
from services.spark.enrich_choice import LOOKUP, SCAN, TRIAL_KEYS, Choice
from services.spark.enrich_size import READING_S
from services.spark.relation import relation_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from dovetail.node.contents import CacheContents
    from dovetail.node.step import Part
    from dovetail.service.metrics import Latency
    from dovetail.settings import Settings
    from dovetail.stream.batch import EventBatch
    from dovetail.stream.ledger import Ledger
    from dovetail.stream.rdkafka import Producer
    from dovetail.topology import Topology
    from services.spark.enrich_overload import NodeGuard

    Following = Callable[[Outputs], None]


class TableJoin:
    def __init__(
        self,
        settings: Settings,
        topology: Topology,
        latency: Latency,
        following: Following | None = None,
        guard: NodeGuard | None = None,
        caution: int = 1,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`topology` is seen from the table's link; `following` is the chain's next table, if any.

        `caution` is the line's. Without a guard nothing is ever shed.
        """
        link = topology.pipeline.link(topology.number)
        self._link = link
        self._topology = topology
        self._following = following
        self._guard = guard
        takes = partial(largest_message, settings, topology.enriched)
        self._writer = PartWriter(topology, latency)
        self._cache = CacheHalf(
            link,
            Answers.of(topology, VIA_CACHE, takes),
            CachePhase(link.algorithm, cache_budget(link)),
            slice_bytes(link.memory),
            clock,
        )
        self._relation = relation_of(settings, link, topology.number, read_ahead=True)
        int_key = link.key_type is KeyType.INT
        self._migrations = MigrationReader(settings, topology.migrations, int_key=int_key)
        self._migrations.follow(list(range(link.slots)))
        mine, within = shares(link), link.order.within
        left = disk_budget(link) - mine.capacity * BYTES_AN_EVENT - mine.line
        self._choice: Choice | None = None
        if link.algorithm is Algorithm.AUTO:
            self._choice = Choice(factors_of(link))
            join = build_chosen_join(link, self._relation, left)
        else:
            join = build_join(link, self._relation, left, time.monotonic)
        self._disk = DiskHalf(
            Answers.of(topology, VIA_DISK, takes),
            join,
            Window(mine.capacity),
            None if within is None else Line(within, mine.line, caution),
        )
        self._chosen = False
        self._read_until = 0.0
        self._reads = 0
        self.reading_s = 0.0
        """What reading R has taken in this batch."""
        self._finished = True
        self._producer: Producer
        self._ledger: Ledger

    @property
    def contents(self) -> CacheContents:
        return self._cache.contents

    @property
    def held_bytes(self) -> int:
        return self._cache.cache.allocated + self._disk.held_bytes

    @property
    def algorithm(self) -> str:
        """What the last batch was joined by."""
        engine = self._disk.join.engine
        return engine.algorithm if isinstance(engine, Engine) else engine.choice.algorithm

    def explained(self) -> dict[str, Any]:
        """What runs, why, and what it has measured."""
        found = self._disk.join.explained()
        return found if self._choice is None else {**found, "reason": self._choice.reason}

    @property
    def cached_keys(self) -> int:
        return len(self._cache.cache)

    @property
    def alarm(self) -> str:
        """What somebody should look at although it works; empty if nothing is."""
        return self._disk.answers.matches.alarm or self._cache.answers.matches.alarm

    def begin(self, slots: Iterable[int], producer: Producer, ledger: Ledger) -> None:
        """Begin a batch of these slots; what one that failed has left is dropped."""
        self._producer, self._ledger = producer, ledger
        if not self._finished:
            self._disk.drop()
        self._finished = False
        self._chosen = False
        self._read_until = time.monotonic() + READING_S
        self.reading_s = 0.0
        self._reads = self._disk.join.engine.figures.reads
        # A further table's keys are of any slot, whichever slot their events are of.
        self._disk.keep(slots if self._topology.number == 1 else range(self._link.slots))
        for change in self._migrations.changes():
            self._cache.apply(change)
        self._forget_evicted()
        self._cache.expire()

    def take(self, slot: int, batch: EventBatch) -> None:
        """Answer what the cache can, and let the others in; R is read for want of room alone."""
        self._write(self._cache.take(slot, batch, self._guard))

    def finish(self) -> None:
        """Read R until everything is answered."""
        if self._disk.pending:
            self._choose()
            with self._learning():
                while self._disk.pending:
                    self._read()
        self._relation.rest()
        self._finished = True

    def close(self) -> None:
        self._disk.join.close()
        self._migrations.close()

    def _write(self, parts: Iterable[Part]) -> None:
        """Write what either half gives, but for what is the other's, or the next table's."""
        for part in parts:
            match part:
                case Missed(slot, batch):
                    self._let_in(slot, batch)
                case Migrating():
                    self._cache.adopt(part)
                case Outputs() if self._following is not None:
                    self._ledger.add(part.slot, outcome.OUTPUTS, len(part.outputs))
                    self._following(part)
                case _:
                    self._writer.write([part], self._producer, self._ledger)

    def _let_in(self, slot: int, batch: EventBatch) -> None:
        """Let events in that the cache has not answered, all of them, as there is room."""
        self._disk.arrive(slot, 0, batch)
        self._write_of_disk(self._disk.let_in())
        while self._disk.arrivals:
            self._read()
            self._write_of_disk(self._disk.let_in())

    def _write_of_disk(self, parts: Iterable[Part]) -> None:
        """Its events have come in before, by the cache."""
        self._write(part for part in parts if not _counts_in(part))

    def _forget_evicted(self) -> None:
        for _ in self._cache.evicted():
            pass  # nobody else has to know

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
        while choice.is_to_try(self._relation.facts) and self._disk.pending:
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
        engine = self._disk.join.engine
        assert isinstance(engine, Engine), "a batch's `auto` is enrich_choice.py's"
        return engine

    def _read(self) -> None:
        """Read R once, and answer whom that completes."""
        self._require_time()
        if not self._chosen:
            self._choose()
        began = time.monotonic()
        answered = self._disk.read()
        self.reading_s += time.monotonic() - began
        self._write_of_disk(answered or ())
        self._write(self._disk.migrating())

    def _require_time(self) -> None:
        """Raise while it can be told why: later the broker says no more than that it is fenced."""
        if time.monotonic() > self._read_until:
            raise SlowError(
                f"reading {self._link.master.table} for the events of a batch takes a node "
                f"longer than {READING_S:.0f} s, and the broker ends its transaction: the next "
                f"batch has half as many; look at what the database does (pg_stat_activity), or "
                f"let it have less to do"
            )


def _counts_in(part: Part) -> bool:
    return isinstance(part, Counted) and part.outcome == outcome.IN
