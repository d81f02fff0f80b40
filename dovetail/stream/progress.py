"""What a slot's last owner had answered above its committed offset, read back from its topic.

Offset and progress are written in one transaction, and its end reaches their two partitions one
after the other: whoever has read the offset may have to wait for the progress. So both carry the
same number, and the progress of exactly that number is looked for, from the topic's end back. A
number may come again, after the offsets were set anew by hand: the last one of it counts.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaException, TopicPartition
from google.protobuf.message import DecodeError

from dovetail.contracts.progress_pb2 import Progress
from dovetail.errors import Unavailable
from dovetail.permissions import reads
from dovetail.stream.refusals import failure

if TYPE_CHECKING:
    from collections.abc import Iterator

    from confluent_kafka import Message

    from dovetail.settings import Settings
    from dovetail.topology import Topic

_FIRST_LOOK = 64
"""Records from the end in which the newest progress usually stands; markers count as well."""
_TIMEOUT_S = 30.0


class ProgressReader:
    def __init__(self, settings: Settings, topic: Topic) -> None:
        self._settings = settings
        self._topic = topic.name
        self._partitions = topic.partitions
        self._consumer = Consumer(
            settings.client(
                {
                    "group.id": f"{topic.name}.reader",  # required, and never committed to
                    "isolation.level": "read_committed",
                    "enable.auto.commit": False,
                    "enable.partition.eof": True,
                    "auto.offset.reset": "earliest",
                    "fetch.wait.max.ms": 10,
                }
            )
        )

    def read(self, slot: int, number: int) -> Progress:
        """Give the slot's progress of this number; wait for it if it is not there yet."""
        deadline = time.monotonic() + _TIMEOUT_S
        look_back = _FIRST_LOOK
        while True:
            try:
                low, high = self._consumer.get_watermark_offsets(
                    TopicPartition(self._topic, slot % self._partitions), timeout=_TIMEOUT_S
                )
                found = None
                for progress in self._from(slot, max(low, high - look_back)):
                    if progress.number == number:
                        found = progress
                if found is not None:
                    return found
            except KafkaException as error:
                raise failure(
                    self._settings,
                    error,
                    f"progress of slot {slot} cannot be read",
                    reads(self._topic),
                ) from error
            if time.monotonic() > deadline:
                raise Unavailable(
                    f"progress {number} of slot {slot} is not on {self._topic}: is the topic kept "
                    f"by compaction, and was nothing of it deleted?"
                )
            look_back *= 4

    def close(self) -> None:
        self._consumer.close()

    def _from(self, slot: int, offset: int) -> Iterator[Progress]:
        """What stands between this offset and the end."""
        self._consumer.assign([TopicPartition(self._topic, slot % self._partitions, offset)])
        try:
            while (message := self._consumer.poll(_TIMEOUT_S)) is not None:
                if _is_end(message):
                    return
                progress = read_progress(message.value(), slot)
                if progress is not None:
                    yield progress
        finally:
            self._consumer.unassign()


def read_progress(message: bytes | None, slot: int) -> Progress | None:
    """A slot's progress; None if the message is none of ours, which then counts for nothing."""
    try:
        progress = Progress.FromString(message or b"")
    except DecodeError:
        return None
    return progress if message and progress.slot == slot else None


def _is_end(message: Message) -> bool:
    error = message.error()
    if error is None:
        return False
    if error.name() != "_PARTITION_EOF":
        raise KafkaException(error)
    return True
