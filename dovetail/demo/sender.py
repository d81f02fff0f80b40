"""How a batch of events gets into Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from dovetail.errors import ConfigError, Unavailable
from dovetail.stream.rdkafka import KafkaFailure, Producer
from dovetail.stream.refusals import client_of

if TYPE_CHECKING:
    from dovetail.demo.events import EventBatch

# Uncompressed, because the bytes on the wire are part of what is measured; a queue short enough
# that a slow broker is felt at once.
_PRODUCER_CONFIG: dict[str, Any] = {
    "compression.type": "none",
    "linger.ms": 5,
    "queue.buffering.max.messages": 200_000,
}
# Events in a row to one partition: a client works less if it need not change it for each.
_TURN = 100
_METADATA_SECONDS = 10.0
_FLUSH_SECONDS = 30.0


class Sender(Protocol):
    def send(self, batch: EventBatch) -> None:
        """Take the batch over, waiting while there is no room for it."""

    def flush(self) -> None:
        """Return when every event is in Kafka; raise Unavailable if one cannot get there."""


class KafkaSender:
    """Idempotent, and to each partition in turn: a repeated run fills each one alike."""

    def __init__(
        self, client_config: dict[str, Any], topic: str, patience_s: float = _FLUSH_SECONDS
    ) -> None:
        """`patience_s` is how long the broker may take for what it was sent."""
        self._patience_s = patience_s
        self._topic = topic
        self._partitions = _count_partitions(client_config, topic)
        self._producer = Producer(_PRODUCER_CONFIG | client_config)
        self._sent = 0

    def send(self, batch: EventBatch) -> None:
        turns = np.arange(self._sent, self._sent + len(batch)) // _TURN % self._partitions
        self._producer.send_many(
            self._topic,
            turns.astype(np.int32),
            batch.data,
            batch.bounds,
            tombstones=batch.tombstones,
        )
        self._sent += len(batch)

    def flush(self) -> None:
        try:
            self._producer.flush(self._patience_s)
        except KafkaFailure as failure:
            raise Unavailable(
                f"Kafka has not taken all events within {self._patience_s:.0f} s: {failure}"
            ) from failure


def _count_partitions(client_config: dict[str, Any], topic: str) -> int:
    """Fail before the first event if Kafka or the topic is not there."""
    client = client_of(AdminClient, client_config)
    try:
        topics = client.list_topics(timeout=_METADATA_SECONDS).topics
    except KafkaException as error:
        raise Unavailable(f"Kafka cannot be reached: {error.args[0].str()}") from error
    if topic not in topics:
        raise ConfigError(f"Kafka has no topic {topic}: create it, or name another one")
    return len(topics[topic].partitions)
