"""What a consumer group has committed, read from outside the group.

Not by AdminClient.list_consumer_group_offsets: on a broker that has just started, and whose
group coordinator is not there yet, that call brings the whole process down (librdkafka 2.16).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from dovetail.permissions import looks_at
from dovetail.stream.refusals import failure, is_refused
from dovetail.stream.topics import partitions_of

if TYPE_CHECKING:
    from dovetail.errors import DovetailError
    from dovetail.settings import Settings
    from dovetail.topology import Topic

_TIMEOUT_S = 30
_PAUSE_S = 0.1
_MOVING = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)
"""A group's coordinator goes to another broker, or is only being made: it is asked again."""


@dataclass(frozen=True, slots=True)
class Committed:
    offset: int
    text: str
    """The ledger beside it."""


class CommittedOffsets:
    """Asks for a group's offsets on one topic, without ever joining it."""

    def __init__(self, settings: Settings, group: str, topic: Topic) -> None:
        self._settings = settings
        self._group = group
        self._topic = topic
        self._consumer = Consumer(
            settings.client(
                {
                    "group.id": group,
                    "enable.auto.commit": False,
                    # The last committed ones, without waiting for a transaction under way.
                    "isolation.level": "read_uncommitted",
                    "log_level": 0,
                }
            )
        )

    def read(self) -> dict[int, Committed]:
        """By partition, without those of which nothing is committed."""
        found = self._found()
        for at in found:
            if at.error is not None and is_refused(at.error.code()):
                raise self._failure(at.error)
        return {
            at.partition: Committed(at.offset, at.metadata or "") for at in found if at.offset >= 0
        }

    def _found(self) -> list[TopicPartition]:
        numbers = range(partitions_of(self._consumer, self._topic))
        asked = [TopicPartition(self._topic.name, number) for number in numbers]
        until = time.monotonic() + _TIMEOUT_S
        while True:
            try:
                return self._consumer.committed(asked, timeout=_TIMEOUT_S)
            except KafkaException as error:
                if error.args[0].code() not in _MOVING or time.monotonic() > until:
                    raise self._failure(error) from error
            time.sleep(_PAUSE_S)

    def _failure(self, error: KafkaError | KafkaException) -> DovetailError:
        text = f"offsets of {self._group} cannot be read"
        return failure(self._settings, error, text, looks_at(self._group, self._topic.name))

    def close(self) -> None:
        self._consumer.close()
