"""Whether any record is left behind an offset.

Offsets alone do not say: a transaction leaves its marker on every partition it wrote to, and an
aborted one its records, too. Both have offsets, and no reader of committed messages gets to see
them; behind the last record they look like one that is never read.
"""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from dovetail.errors import Unavailable
from dovetail.permissions import reads
from dovetail.stream.refusals import failure, is_refused

if TYPE_CHECKING:
    from dovetail.errors import DovetailError
    from dovetail.settings import Settings
    from dovetail.topology import Topic

_WITHIN_S = 10.0
_A_LOOK_S = 0.05


class Unread:
    """Looks for committed records of one topic, taking as few bytes as it can."""

    def __init__(self, settings: Settings, topic: Topic) -> None:
        self._settings = settings
        self._topic = topic.name

    def behind(self, offsets: dict[int, int]) -> set[int]:
        """Give the partitions that have a record at or behind their offset, of those named.

        Where nothing is heard for some seconds, as on a machine that is too busy, there may be one.
        """
        if not offsets:
            return set()
        consumer = self._new_consumer()
        try:
            consumer.assign(
                [TopicPartition(self._topic, number, at) for number, at in offsets.items()]
            )
            return self._found(consumer, set(offsets))
        except KafkaException as error:
            raise self._failure(error) from error
        finally:
            consumer.close()

    def _found(self, consumer: Consumer, looking: set[int]) -> set[int]:
        found: set[int] = set()
        deadline = time.monotonic() + _WITHIN_S
        why = ""
        while looking:
            if time.monotonic() > deadline:
                if why:
                    raise Unavailable(f"{self._topic} cannot be read: {why}")
                return found | looking
            message = consumer.poll(_A_LOOK_S)
            if message is None:
                continue
            error, number = message.error(), message.partition()
            if error is None:
                found |= looking & {number}
            elif error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
                if is_refused(error.code()):
                    raise self._failure(error)
                why = error.str()  # it may pass: a leader moves, a broker restarts
                continue
            looking = looking - {number}
        return found

    def _failure(self, error: KafkaError | KafkaException) -> DovetailError:
        text = f"{self._topic} cannot be read"
        return failure(self._settings, error, text, reads(self._topic))

    def _new_consumer(self) -> Consumer:
        return Consumer(
            self._settings.client(
                {
                    "group.id": f"{self._topic}.{uuid.uuid4()}",  # required, and never committed to
                    "enable.auto.commit": False,
                    "enable.partition.eof": True,
                    "isolation.level": "read_committed",
                    "auto.offset.reset": "earliest",
                    "fetch.wait.max.ms": 10,
                    "fetch.message.max.bytes": 16 << 10,
                    "queued.min.messages": 1,
                    "log_level": 0,
                }
            )
        )
