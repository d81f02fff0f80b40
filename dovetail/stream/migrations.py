"""Join keys on their way into the cache, by a compacted topic with a partition a slot.

Compaction keeps the latest message of a key, so a cache that starts, or takes over a
slot, reads the partition from its beginning and has all the keys its predecessor had.

Who leaves the cache by itself is deleted from the topic by a tombstone, else a cache would
reload everything that was ever there. The disk phase may send the key again at the same time, and
then the topic's order decides. Either is harmless. Behind the tombstone, the migration counts.
Before it, the cache drops the key when it reads its own tombstone: its next event misses and is
answered by the disk phase. A tombstone whose transaction is undone is not sent again: the topic
then holds a key more than the cache, until compaction finds a later one.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from dovetail.join.columns import Column, JoinKeys
from dovetail.join.entry import Entries
from dovetail.permissions import reads
from dovetail.stream.cycles import SharedCycle
from dovetail.stream.key_names import keys_named, names_of
from dovetail.stream.migration_codec import decode, encode
from dovetail.stream.refusals import failure
from dovetail.topology import LARGEST_MESSAGE_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dovetail.join.columns import Ints
    from dovetail.join.mapper import Mapper
    from dovetail.settings import Settings
    from dovetail.stream.rdkafka import Producer
    from dovetail.topology import Topic

log = logging.getLogger(__name__)

_MOST_AT_ONCE = 20_000
_LOADING_S = 0.05
_A_TURN_S = 1.0
_WATERMARKS_S = 5.0
_LARGEST_ENTRY = LARGEST_MESSAGE_BYTES - (1 << 10)
"""With its key; the rest is for the message around it, and Kafka's own framing."""


@dataclass(frozen=True, slots=True)
class Change:
    """Keys to hold and keys to drop; no key is in both, and none twice."""

    entries: Entries
    read_at_ms: Ints
    events: Ints
    """How many events had waited for each key to hold."""
    cycle: int
    """How many cycles the disk phases have come through since the reader was made."""
    evictions: JoinKeys


@dataclass(slots=True)
class _Load:
    """How far a slot is on its way to the end that it had when it was assigned."""

    about: int
    read: int = 0


class MigrationReader:
    """Follows the migrations of the slots that a node holds."""

    def __init__(self, settings: Settings, topic: Topic, *, int_key: bool) -> None:
        self._settings = settings
        self._topic = topic.name
        self._int_key = int_key
        self._loading: dict[int, _Load] = {}
        self._cycle = SharedCycle()
        self.refused = 0
        self._consumer = Consumer(
            settings.client(
                {
                    "group.id": f"{topic.name}.reader",  # required, and never committed to
                    "client.id": f"{topic.name}.{settings.node}",
                    "isolation.level": "read_committed",
                    "auto.offset.reset": "earliest",
                    "enable.auto.commit": False,
                    "enable.partition.eof": True,
                    "fetch.wait.max.ms": 200,
                    "fetch.queue.backoff.ms": 20,
                }
            )
        )

    def follow(self, slots: list[int]) -> None:
        """Read these slots from their beginning, and on."""
        self._loading.update((slot, _Load(0)) for slot in slots)
        self._estimate(slots)
        self._cycle.follow(slots)
        self._consumer.incremental_assign(
            [TopicPartition(self._topic, slot, OFFSET_BEGINNING) for slot in slots]
        )

    def forget(self, slots: list[int]) -> None:
        """Stop following these slots."""
        for slot in slots:
            self._loading.pop(slot, None)
        self._cycle.forget(slots)
        self._consumer.incremental_unassign([TopicPartition(self._topic, slot) for slot in slots])

    def changes(self) -> Iterator[Change]:
        """Give what has arrived since the last call; while a slot is loading, a second's worth.

        So what it waits for is told anew each second, and events go on meanwhile.
        """
        until = time.monotonic() + _A_TURN_S
        while messages := self._consumer.consume(
            _MOST_AT_ONCE, _LOADING_S if self._loading else 0.0
        ):
            arrived = [message for message in messages if message.error() is None]
            if arrived:
                yield self._change(arrived)
            # Only now: what came before an error is read and would not come again.
            self._note([message for message in messages if message.error() is not None])
            if not self._loading or time.monotonic() > until:
                return

    def waiting_for(self) -> str:
        if not self._loading:
            return ""
        read, about = self._progress()
        slots = ", ".join(map(str, sorted(self._loading)))
        return f"loading the cache: {read:,} of about {about:,} migrations of slots {slots}"

    @property
    def loaded(self) -> float:
        """How much of what is being loaded has arrived; 1 if nothing is."""
        read, about = self._progress()
        return read / about if about else float(not self._loading)

    def close(self) -> None:
        self._consumer.close()

    def _progress(self) -> tuple[int, int]:
        """Migrations read of the slots that are loading, and about how many they have."""
        loads = list(self._loading.values())
        return sum(load.read for load in loads), sum(max(load.about, load.read) for load in loads)

    def _estimate(self, slots: list[int]) -> None:
        """Ask how many migrations these slots have; those that compaction has removed count too."""
        try:
            for slot in slots:
                low, high = self._consumer.get_watermark_offsets(
                    TopicPartition(self._topic, slot), _WATERMARKS_S
                )
                self._loading[slot].about = int(high - low)
        except KafkaException as error:  # reading would fail for the same reason, and say so
            log.warning("how long loading will take is unknown", extra={"reason": str(error)})

    def _note(self, messages: list[Message]) -> None:
        """A slot is loaded when its end is reached, which is told once; any other error is one."""
        failed: KafkaError | None = None
        for message in messages:
            error = message.error()
            assert error is not None
            if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
                self._loading.pop(message.partition() or 0, None)
            else:
                failed = failed or error
        if failed is not None:
            text = "migrations cannot be read"
            raise failure(self._settings, failed, text, reads(self._topic))

    def _change(self, messages: list[Message]) -> Change:
        # The latest of each key counts, whatever came before it in this batch.
        latest = list({message.key() or b"": message for message in messages}.values())
        try:
            change = self._opened(latest)
        except ValueError:
            change = self._opened([message for message in latest if self._is_ours(message)])
        if self._loading:
            self._count(messages)
        return change

    def _opened(self, messages: list[Message]) -> Change:
        """Raise ValueError if one of these is none of the pipeline's."""
        names = keys_named(
            Column.of([message.key() or b"" for message in messages]), int_key=self._int_key
        )
        gone = np.array([message.value() is None for message in messages], np.bool_)
        held = np.flatnonzero(~gone)
        arrived = decode(Column.of([messages[place].value() or b"" for place in held]))
        entries = Entries.received(arrived.entries)
        if not _same(entries.keys(), names.take(held)):
            raise ValueError("a migration is not of the key that it is named after")
        slots = np.array([messages[place].partition() for place in held], np.int32)
        self._cycle.see(slots, arrived.cycles, self._loading)
        return Change(
            entries,
            arrived.read_at_ms,
            arrived.events,
            self._cycle.cycle,
            names.take(np.flatnonzero(gone)),
        )

    def _is_ours(self, message: Message) -> bool:
        """Tell whether it is; if not, it counts for nothing, and is logged.

        Nothing is lost by that: its key is answered by the disk phase, and migrates again.
        """
        try:
            self._opened([message])
        except ValueError as error:
            place = f"{self._topic}/{message.partition()}/{message.offset()}"
            log.error(  # noqa: TRY400 - where it was raised says nothing
                "migration refused: it is none of ours",
                extra={"place": place, "reason": str(error)},
            )
            self.refused += 1
            return False
        return True

    def _count(self, messages: list[Message]) -> None:
        slots, counts = np.unique([message.partition() for message in messages], return_counts=True)
        for slot, count in zip(slots.tolist(), counts.tolist(), strict=True):
            if slot in self._loading:
                self._loading[slot].read += count


def send_migrations(
    producer: Producer,
    topic: Topic,
    mapper: Mapper,
    keys: JoinKeys,
    entries: Entries,
    events: Ints,
    cycle: int,
    *,
    int_key: bool,
    read_at_ms: int,
) -> None:
    """Send these keys, each with its entry, to the caches of their slots.

    So many events had waited for each, in this cycle of the disk phase; its rows are as of this
    time by R's clock. A key whose entry is too large for a message is sent as its
    eviction: it cannot be cached, and what a cache may still hold of it is older.
    """
    payloads = encode(Column(entries.data, entries.bounds), read_at_ms, events, cycle)
    names = names_of(keys, int_key=int_key)
    too_large = np.diff(entries.bounds) + np.diff(names.bounds) > _LARGEST_ENTRY
    producer.send_many(
        topic.name,
        mapper.slots(keys),
        payloads.data,
        payloads.bounds,
        keys=(names.data, names.bounds),
        tombstones=too_large,
    )


def send_evictions(
    producer: Producer, topic: Topic, mapper: Mapper, keys: JoinKeys, *, int_key: bool
) -> None:
    """Delete these keys from the topic: a cache that loads it need not know them."""
    names = names_of(keys, int_key=int_key)
    nothing = Column.empty_values(len(keys))
    producer.send_many(
        topic.name,
        mapper.slots(keys),
        nothing.data,
        nothing.bounds,
        keys=(names.data, names.bounds),
        tombstones=np.ones(len(keys), np.bool_),
    )


def _same(keys: JoinKeys, others: JoinKeys) -> bool:
    """Whether these are the same keys in the same order, each with texts of its own."""
    return all(
        np.array_equal(one, other)
        for one, other in (
            (keys.values, others.values),
            (keys.texts.bounds, others.texts.bounds),
            (keys.texts.data, others.texts.data),
        )
    )
