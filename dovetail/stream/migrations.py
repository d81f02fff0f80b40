"""Join keys on their way into the cache, by a compacted topic with a partition a slot.

Compaction keeps the latest message of a key, so a cache that starts, or takes over a
slot, reads the partition from its beginning and has all the keys its predecessor had.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition

from dovetail.contracts.migration_pb2 import Migration
from dovetail.errors import Unavailable
from dovetail.join.columns import Column, JoinKeys
from dovetail.join.entry import Entries
from dovetail.join.keys import hash_text_many
from dovetail.topology import LARGEST_MESSAGE_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dovetail.join.columns import Ints
    from dovetail.join.mapper import Mapper
    from dovetail.settings import Settings
    from dovetail.stream.rdkafka import Producer
    from dovetail.topology import Topic

_MOST_AT_ONCE = 20_000
_LOADING_S = 0.05
_LARGEST_ENTRY = LARGEST_MESSAGE_BYTES - (1 << 10)
"""The rest is for the message around it: its key and Kafka's own framing."""


@dataclass(frozen=True, slots=True)
class Change:
    """Keys to hold and keys to drop; no key is in both."""

    entries: Entries
    evictions: JoinKeys


class MigrationReader:
    """Follows the migrations of the slots that a node holds."""

    def __init__(self, settings: Settings, topic: Topic, mapper: Mapper, *, int_key: bool) -> None:
        self._topic = topic.name
        self._mapper = mapper
        self._int_key = int_key
        self._loading: set[int] = set()
        self._loaded = 0
        self._consumer = Consumer(
            settings.client(
                {
                    "group.id": f"{topic.name}.reader",  # required, and never committed to
                    "client.id": f"{topic.name}.{settings.node}",
                    "isolation.level": "read_committed",
                    "auto.offset.reset": "earliest",
                    "enable.auto.commit": False,
                    "enable.partition.eof": True,
                    "fetch.wait.max.ms": 50,
                }
            )
        )

    def follow(self, slots: list[int]) -> None:
        """Read these slots from their beginning, and on."""
        self._loading.update(slots)
        self._consumer.incremental_assign(
            [TopicPartition(self._topic, slot, OFFSET_BEGINNING) for slot in slots]
        )

    def forget(self, slots: list[int], held: Ints) -> Ints:
        """Stop following these slots; return which of the keys held belong to them."""
        self._loading.difference_update(slots)
        self._consumer.incremental_unassign([TopicPartition(self._topic, slot) for slot in slots])
        belongs = self._mapper.slots(JoinKeys.of_ints(held))
        return held[np.isin(belongs, slots)]

    def changes(self) -> Iterator[Change]:
        """Give what has arrived since the last call; while a slot is loading, all there is."""
        while messages := self._consumer.consume(
            _MOST_AT_ONCE, _LOADING_S if self._loading else 0.0
        ):
            arrived = [message for message in messages if message.error() is None]
            self._loaded += len(arrived)
            if arrived:
                yield self._change(arrived)
            # Only now: what came before an error is read and would not come again.
            for message in messages:
                self._note(message)
            if not self._loading:
                return

    def waiting_for(self) -> str:
        if not self._loading:
            return ""
        slots = len(self._loading)
        return f"loading the cache: {self._loaded} migrations read, {slots} slots to go"

    def close(self) -> None:
        self._consumer.close()

    def _note(self, message: Message) -> None:
        """A slot is loaded when its end is reached; any other error is one."""
        error = message.error()
        if error is None:
            return
        if error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - the constant's public name
            raise Unavailable(f"migrations cannot be read: {error.str()}")
        self._loading.discard(message.partition())

    def _change(self, messages: list[Message]) -> Change:
        # The latest of each key counts, whatever came before it in this batch.
        latest = {message.key() or b"": message.value() for message in messages}
        entries = Column.of(
            [Migration.FromString(value).entry for value in latest.values() if value is not None]
        )
        evicted = [key for key, value in latest.items() if value is None]
        return Change(Entries.received(entries), self._keys(evicted))

    def _keys(self, names: list[bytes]) -> JoinKeys:
        if self._int_key:
            return JoinKeys.of_ints(np.array([int(name) for name in names], np.int64))
        texts = Column.of(names)
        return JoinKeys(hash_text_many(texts.data, texts.bounds), texts)


def send_migrations(
    producer: Producer,
    topic: Topic,
    mapper: Mapper,
    keys: JoinKeys,
    entries: Entries,
    *,
    int_key: bool,
) -> None:
    """Send these keys, each with its entry, to the caches of their slots.

    A key whose entry is too large for a message is sent as its eviction: it cannot be
    cached, and what a cache may still hold of it is older.
    """
    read_at = time.time_ns() // 1_000_000
    too_large = np.diff(entries.bounds) > _LARGEST_ENTRY
    payloads = Column.of(
        [
            b"" if too_large[i] else Migration(entry=entry, read_at_ms=read_at).SerializeToString()
            for i, entry in enumerate(Column(entries.data, entries.bounds))
        ]
    )
    names = Column.of(
        [b"%d" % value for value in keys.values.tolist()] if int_key else list(keys.texts)
    )
    producer.send_many(
        topic.name,
        mapper.slots(keys),
        payloads.data,
        payloads.bounds,
        keys=(names.data, names.bounds),
        tombstones=too_large,
    )
