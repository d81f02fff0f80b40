"""A plan on its way into the caches, as migrations.

    planned keys ──► without those that caches hold fresh ──► their rows, read anew ──► migrations
    held keys that are not planned, if there is no room ──► evictions

Rows are read by the services' own reader at that moment, a few thousand keys at a time, and each is
as old to a cache as its reading: what changes meanwhile is read anew after `master.refresh`, as
always. What was read at once is sent in one transaction, which begins only then: however slow the
database is, no transaction waits for it, and no cache for the transaction. A plan that is sent in
part is of use, and the next run sends what is lacking.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dovetail.errors import Unavailable
from dovetail.join.columns import JoinKeys
from dovetail.join.entry import Entries
from dovetail.join.exchange import Keys
from dovetail.join.mapper import Mapper
from dovetail.join.worth import AGAIN
from dovetail.permissions import PLAN, transacts, writes
from dovetail.pipeline.spec import KeyType
from dovetail.plan.room import blocks_of
from dovetail.stream.acls import refusal
from dovetail.stream.cycles import NO_CYCLE
from dovetail.stream.migrations import MigrationReader, send_evictions, send_migrations
from dovetail.stream.rdkafka import KafkaFailure, Producer
from dovetail.stream.takeover import Written, take_over
from dovetail.topology import LARGEST_MESSAGE_BYTES
from services.spark.relation import relation_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dovetail.join.columns import Ints, SmallInts
    from dovetail.master.relation import ChangingRelation
    from dovetail.pipeline.spec import Pipeline
    from dovetail.settings import Settings
    from dovetail.topology import Topology

_AT_ONCE = 5_000
_READ_BYTES = 8 << 20
_TIMEOUT_S = 30.0
_TRANSACTION_MS = 60_000
"""Caches wait so long at most for a transaction whose process is gone for good."""
_MOST_EVENTS = (1 << 31) - 1
_FRESH = 0.5
"""Part of the refresh time after which an entry is sent anew rather than left to expire."""
_GONE = -1
"""Stands where a time would, of a key that was evicted."""


@dataclass(frozen=True, slots=True)
class Part:
    """The planned keys of one slot."""

    slot: int
    keys: JoinKeys
    events: Ints
    """Expected for each."""
    blocks: Ints
    """That each takes of a cache."""

    def take(self, places: Ints) -> Part:
        return Part(self.slot, self.keys.take(places), self.events[places], self.blocks[places])


@dataclass(frozen=True, slots=True)
class Held:
    """What the caches have, by the topic they load themselves from.

    Of texts with the same hash one may be taken for the other: it is not sent then, and comes
    into the cache by its events.
    """

    keys: JoinKeys
    """In the order of their values."""
    slots: SmallInts
    read_at_ms: Ints
    blocks: Ints

    def __len__(self) -> int:
        return len(self.keys)

    def places(self, keys: JoinKeys) -> Ints:
        """Where these keys stand; -1 for one that no cache has."""
        if not len(self):
            return np.full(len(keys), -1, np.int64)
        found = np.searchsorted(self.keys.values, keys.values)
        found[found == len(self)] = 0
        return np.where(self.keys.values[found] == keys.values, found, -1)


@dataclass(frozen=True, slots=True)
class Sent:
    """How many keys a plan has sent."""

    keys: int = 0
    evicted: int = 0
    """That were not in it and had to make room."""


@dataclass(frozen=True, slots=True)
class _Rows:
    """What was read at once: keys, each with its entry and the events expected for it."""

    keys: JoinKeys
    entries: Entries
    events: Ints
    read_at_ms: int


class Sending:
    """Sends a plan; `room` is how many blocks a slot has in a cache."""

    def __init__(
        self, settings: Settings, pipeline: Pipeline, topology: Topology, room: int
    ) -> None:
        self._settings = settings
        self._pipeline = pipeline
        self._topic = topology.migrations
        self._name = topology.group(PLAN)
        self._int_key = pipeline.key_type is KeyType.INT
        self._mapper = Mapper(pipeline.slots, int_key=self._int_key)
        self._room = room

    def send(self, planned: Sequence[Part], *, everything: bool = False) -> Sent:
        """Send the keys that caches lack, or everything."""
        held = self._nothing() if everything else self._held()
        relation = relation_of(self._settings, self._pipeline)
        producer = self._producer()
        try:
            take_over(self._settings, producer, Written((self._topic,)))
            return self._send_parts(producer, relation, planned, held)
        except KafkaFailure as failure:
            if failure.refused:
                needed = (transacts(self._name), writes(self._topic.name))
                raise refusal(self._settings, failure, needed) from failure
            raise Unavailable(
                f"the plan was not sent, or only in part; the next run sends the rest: {failure}"
            ) from failure
        finally:
            relation.close()
            producer.close()

    def _send_parts(
        self, producer: Producer, relation: ChangingRelation, planned: Sequence[Part], held: Held
    ) -> Sent:
        since_ms = time.time() * 1000 - _FRESH * 1000 * self._pipeline.master.refresh
        keys = evicted = 0
        for part in planned:
            places = held.places(part.keys)
            known = np.flatnonzero(places >= 0)
            fresh = known[held.read_at_ms[places[known]] >= since_ms]
            leaving = held.keys.take(self._making_room(part, places, held))
            lacking = part.take(np.setdiff1d(np.arange(len(part.keys)), fresh))
            self._send_part(producer, self._reads(relation, lacking), leaving)
            keys += len(lacking.keys)
            evicted += len(leaving)
        return Sent(keys, evicted)

    def _making_room(self, part: Part, places: Ints, held: Held) -> Ints:
        """Which of the held keys have to leave: whose rows are the oldest, of those not planned."""
        mine = np.flatnonzero(held.slots == part.slot)
        excess = int(held.blocks[mine].sum() + part.blocks[places < 0].sum()) - self._room
        others = np.setdiff1d(mine, places)
        others = others[np.argsort(held.read_at_ms[others], kind="stable")]
        freed = np.cumsum(held.blocks[others])
        return others[: int(np.searchsorted(freed, excess)) + 1] if excess > 0 else others[:0]

    def _send_part(self, producer: Producer, reads: Iterator[_Rows], leaving: JoinKeys) -> None:
        """Send what is read, a transaction each time; with the first go the keys that leave."""
        rows = next(reads, None)  # at first: nobody leaves for rows that cannot be had
        while rows is not None or len(leaving):
            with _transaction(producer):
                if len(leaving):
                    self._evict(producer, leaving)
                if rows is not None:
                    self._migrate(producer, rows)
            rows, leaving = next(reads, None), leaving.slice(0, 0)

    def _evict(self, producer: Producer, keys: JoinKeys) -> None:
        send_evictions(producer, self._topic, self._mapper, keys, int_key=self._int_key)

    def _migrate(self, producer: Producer, rows: _Rows) -> None:
        send_migrations(
            producer,
            self._topic,
            self._mapper,
            rows.keys,
            rows.entries,
            rows.events,
            NO_CYCLE,
            int_key=self._int_key,
            read_at_ms=rows.read_at_ms,
        )

    def _reads(self, relation: ChangingRelation, part: Part) -> Iterator[_Rows]:
        keys, events = part.keys, np.clip(part.events, AGAIN, _MOST_EVENTS)
        first = 0
        while first < len(keys):
            read_at_ms = int(relation.now() * 1000)
            asked = Keys(keys.slice(first, min(first + _AT_ONCE, len(keys))))
            read = relation.read(asked, _READ_BYTES)
            end = first + read.covers
            some = keys.slice(first, end)
            yield _Rows(some, Entries.of(some, read.rows), events[first:end], read_at_ms)
            first = end

    def _producer(self) -> Producer:
        return Producer(
            self._settings.client(
                {
                    "transactional.id": self._name,
                    "client.id": self._name,
                    "transaction.timeout.ms": _TRANSACTION_MS,
                    "linger.ms": 20,
                    "message.max.bytes": LARGEST_MESSAGE_BYTES,
                    "batch.size": 1 << 20,
                    "queue.buffering.max.messages": 500_000,
                }
            )
        )

    def _nothing(self) -> Held:
        empty = np.empty(0, np.int64)
        return Held(JoinKeys.of_ints(empty), np.empty(0, np.int32), empty, empty)

    def _held(self) -> Held:
        """Read the topic to its end; the last word on a key counts."""
        reader = MigrationReader(self._settings, self._topic, int_key=self._int_key)
        keys: list[JoinKeys] = [JoinKeys.of_ints(np.empty(0, np.int64))]
        times, sizes = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        try:
            reader.follow(list(range(self._topic.partitions)))
            while reader.waiting_for():
                for change in reader.changes():
                    keys += [change.entries.keys(), change.evictions]
                    gone = np.full(len(change.evictions), _GONE, np.int64)
                    times += [change.read_at_ms, gone]
                    sizes += [np.diff(change.entries.bounds), gone]
        finally:
            reader.close()
        every, read_at_ms = JoinKeys.concatenate(keys), np.concatenate(times)
        _, from_end = np.unique(every.values[::-1], return_index=True)
        last = len(every) - 1 - from_end
        last = last[read_at_ms[last] != _GONE]
        found = every.take(last)
        blocks = blocks_of(np.concatenate(sizes)[last], np.diff(found.texts.bounds))
        return Held(found, self._mapper.slots(found), read_at_ms[last], blocks)


@contextmanager
def _transaction(producer: Producer) -> Iterator[None]:
    producer.begin()
    try:
        yield
    except BaseException:
        producer.abort(_TIMEOUT_S)
        raise
    producer.commit()
