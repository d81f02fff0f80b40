"""All that is on a topic: every committed message, once, from its beginning to its end now."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from dovetail.permissions import reads
from dovetail.stream.refusals import failure
from dovetail.stream.topics import partitions_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from confluent_kafka import Message

    from dovetail.settings import Settings
    from dovetail.topology import Topic

Identity = tuple[int, int]
"""A message's partition and offset."""

_AT_ONCE = 10_000


def read_all(settings: Settings, topic: Topic, begin: list[int] | None = None) -> Iterator[Message]:
    """Every committed message of a topic, from its beginning or these offsets to its end now."""
    consumer = Consumer(
        settings.client(
            {
                "group.id": f"{topic.name}.{uuid.uuid4()}",  # required, and never committed to
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 50,
            }
        )
    )
    try:
        reading = set(range(partitions_of(consumer, topic)))
        # Partitions that came later are read from their beginning.
        starts = dict(enumerate(begin or ()))
        consumer.assign(
            [
                TopicPartition(topic.name, number, starts.get(number, OFFSET_BEGINNING))
                for number in reading
            ]
        )
        while reading:
            for message in consumer.consume(_AT_ONCE, 0.1):
                error = message.error()
                if error is None:
                    yield message
                elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
                    reading.discard(place_of(message)[0])
                else:
                    raise failure(
                        settings, error, f"{topic.name} cannot be read", reads(topic.name)
                    )
    finally:
        consumer.close()


def place_of(message: Message) -> Identity:
    partition, offset = message.partition(), message.offset()
    assert partition is not None  # a consumed message has both
    assert offset is not None
    return partition, offset
