"""A plan on its way into the caches, as migrations.

    planned keys ──► without those that caches hold fresh ──► their rows, read anew ──► migrations

Everything is sent in one transaction, so that a cache takes a plan whole or not at all. Rows are
read by the services' own reader at that moment, a few thousand keys at a time, and each is as old
to a cache as its reading: what changes meanwhile is read anew after `master.refresh`, as always.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from dovetail.errors import Unavailable
from dovetail.join.entry import Entries
from dovetail.join.exchange import Keys
from dovetail.join.mapper import Mapper
from dovetail.join.worth import AGAIN
from dovetail.master.pipeline import PipelineRelation
from dovetail.pipeline.spec import KeyType
from dovetail.stream.cycles import NO_CYCLE
from dovetail.stream.migrations import MigrationReader, send_migrations
from dovetail.stream.rdkafka import KafkaFailure, Producer
from dovetail.topology import LARGEST_MESSAGE_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from dovetail.join.columns import Flags, Ints, JoinKeys
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


class Held:
    """What the caches have, by the topic they load themselves from."""

    def __init__(self, settings: Settings, topology: Topology, *, int_key: bool) -> None:
        self._values, self._read_at_ms = _latest(settings, topology, int_key=int_key)

    def __len__(self) -> int:
        return len(self._values)

    def fresh(self, keys: JoinKeys, since_ms: float) -> Flags:
        """Which of these keys have rows that were read since a moment.

        Of texts with the same hash, one may be taken for the other: it is not sent then, and
        comes into the cache by its events.
        """
        places = np.searchsorted(self._values, keys.values)
        places[places == len(self._values)] = 0
        if not len(self._values):
            return np.zeros(len(keys), np.bool_)
        found: Flags = (self._values[places] == keys.values) & (
            self._read_at_ms[places] >= since_ms
        )
        return found


def fresh_since_ms(pipeline: Pipeline) -> float:
    """Rows that were read since then need not be sent."""
    return time.time() * 1000 - _FRESH * 1000 * pipeline.master.refresh


def send_plan(
    settings: Settings,
    pipeline: Pipeline,
    topology: Topology,
    planned: Iterable[tuple[JoinKeys, Ints]],
    tell: Callable[[int], None],
) -> int:
    """Send these keys, with so many events expected for each, in one transaction."""
    relation = PipelineRelation(settings.database_url, pipeline, read_ahead=False)
    producer = _producer(settings, pipeline)
    sent = 0
    try:
        producer.init_transactions(_TIMEOUT_S)
        producer.begin()
        try:
            for keys, events in planned:
                for first in range(0, len(keys), _AT_ONCE):
                    end = min(first + _AT_ONCE, len(keys))
                    some, expected = keys.slice(first, end), events[first:end]
                    _send(producer, relation, pipeline, topology, some, expected)
                    sent += len(some)
                    tell(sent)
        except BaseException:
            producer.abort(_TIMEOUT_S)
            raise
        producer.commit()
    except KafkaFailure as failure:
        raise Unavailable(f"the plan was not sent, and no part of it is: {failure}") from failure
    finally:
        relation.close()
        producer.close()
    return sent


def _send(
    producer: Producer,
    relation: PipelineRelation,
    pipeline: Pipeline,
    topology: Topology,
    keys: JoinKeys,
    events: Ints,
) -> None:
    int_key = pipeline.key_type is KeyType.INT
    mapper = Mapper(pipeline.slots, int_key=int_key)
    waited = np.clip(events, AGAIN, _MOST_EVENTS)
    first = 0
    while first < len(keys):
        read_at_ms = time.time_ns() // 1_000_000
        read = relation.read(Keys(keys.slice(first, len(keys))), _READ_BYTES)
        some = keys.slice(first, first + read.covers)
        send_migrations(
            producer,
            topology.migrations,
            mapper,
            some,
            Entries.of(some, read.rows),
            waited[first : first + read.covers],
            NO_CYCLE,
            int_key=int_key,
            read_at_ms=read_at_ms,
        )
        first += read.covers


def _producer(settings: Settings, pipeline: Pipeline) -> Producer:
    name = f"dovetail.{pipeline.name}.plan"
    return Producer(
        settings.client(
            {
                "transactional.id": name,
                "client.id": name,
                "transaction.timeout.ms": _TRANSACTION_MS,
                "linger.ms": 20,
                "message.max.bytes": LARGEST_MESSAGE_BYTES,
                "batch.size": 1 << 20,
                "queue.buffering.max.messages": 500_000,
            }
        )
    )


def _latest(settings: Settings, topology: Topology, *, int_key: bool) -> tuple[Ints, Ints]:
    """The keys on the topic, in their order, and when the rows of each were read."""
    reader = MigrationReader(settings, topology.migrations, int_key=int_key)
    values, times = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    try:
        reader.follow(list(range(topology.migrations.partitions)))
        while reader.waiting_for():
            for change in reader.changes():
                values += [change.entries.keys().values, change.evictions.values]
                times += [change.read_at_ms, np.full(len(change.evictions), -1, np.int64)]
    finally:
        reader.close()
    # The last word on a key counts.
    found, from_end = np.unique(np.concatenate(values)[::-1], return_index=True)
    return found, np.concatenate(times)[::-1][from_end]
