"""What is on the topics: every committed message, once, with the event it came from."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from dovetail.errors import Unavailable
from dovetail.stream.topics import admin_of, ends

if TYPE_CHECKING:
    from collections.abc import Iterator

    from confluent_kafka import Message

    from dovetail.settings import Settings
    from dovetail.topology import Topic, Topology

Identity = tuple[int, int]
"""An event's partition and offset in the source topic."""

Ends = dict[str, list[int]]
"""For each topic the offset at which each of its partitions ended."""

_AT_ONCE = 10_000


def ends_of(settings: Settings, topology: Topology) -> Ends:
    """Where the topics that are compared end now."""
    admin = admin_of(settings)
    outputs = (topology.enriched, topology.unmatched, topology.dead_letter)
    aside = (topology.shed, topology.parked)
    return {topic.name: ends(admin, topic) for topic in (topology.source, *outputs, *aside)}


class Reader:
    """Reads a pipeline's topics, from where the comparison begins."""

    def __init__(self, settings: Settings, topology: Topology, begin: Ends) -> None:
        self._settings = settings
        self._source = topology.source
        self._begin = begin

    def source(self) -> Iterator[tuple[Identity, bytes | None]]:
        for message in self._read(self._source):
            yield place_of(message), message.value()

    def outputs(self, topic: Topic) -> Iterator[tuple[Identity | None, bytes | None]]:
        """Outputs with their event's identity (None: it names none), but for earlier events'."""
        first = self._begin.get(self._source.name)
        for message in self._read(topic):
            identity = origin_of(message, self._source)
            if first is None or identity is None or identity[1] >= first[identity[0]]:
                yield identity, message.value()

    def _read(self, topic: Topic) -> Iterator[Message]:
        return read_all(self._settings, topic, self._begin.get(topic.name))


def read_all(settings: Settings, topic: Topic, begin: list[int] | None = None) -> Iterator[Message]:
    """Every committed message of a topic, from its beginning or these offsets to its end now."""
    starts = begin or [OFFSET_BEGINNING] * topic.partitions
    consumer = Consumer(
        settings.client(
            {
                "group.id": f"verify.{uuid.uuid4()}",  # required, and never committed to
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 50,
            }
        )
    )
    try:
        consumer.assign(
            [TopicPartition(topic.name, number, start) for number, start in enumerate(starts)]
        )
        reading = set(range(topic.partitions))
        while reading:
            for message in consumer.consume(_AT_ONCE, 0.1):
                error = message.error()
                if error is None:
                    yield message
                elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
                    reading.discard(place_of(message)[0])
                else:
                    raise Unavailable(f"{topic.name} cannot be read: {error.str()}")
    finally:
        consumer.close()


def place_of(message: Message) -> Identity:
    partition, offset = message.partition(), message.offset()
    assert partition is not None  # a consumed message has both
    assert offset is not None
    return partition, offset


def origin_of(message: Message, source: Topic) -> Identity | None:
    """Return which event the message says it came from; None if it names none of the source."""
    topic, _, place = headers_of(message).get("origin", "").partition("/")
    partition, _, offset = place.partition("/")
    if topic != source.name or not (partition.isdecimal() and offset.isdecimal()):
        return None
    return (int(partition), int(offset)) if int(partition) < source.partitions else None


def headers_of(message: Message) -> dict[str, str]:
    return {
        name: value.decode(errors="replace")
        for name, value in dict(message.headers() or ()).items()
        if isinstance(value, bytes)
    }
