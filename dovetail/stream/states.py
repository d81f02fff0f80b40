"""Slots' states on a compacted topic: of each partition the latest committed message.

    enriched=790,in=812,outputs=801,unmatched=22,@0=1205,@1=1188

A partition for each slot (slot_state.py), and a last one for the number of the present run. They
are written in the transaction that carries the answers.

Not beside an offset, as the stages' ledgers are: a broker forgets the offsets of a group without
members after a week (`offsets.retention.minutes`), and who runs on Spark is a member of none,
however long it runs. A message has room for any number of source partitions, too.

A broker compacts only what is closed of a partition, and much may lie before the latest message:
so it is looked for from the end backwards.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from dovetail.errors import Unavailable
from dovetail.permissions import reads
from dovetail.stream.refusals import failure
from dovetail.stream.slot_state import SlotState
from dovetail.stream.topics import admin_of, ends, settled_ends
from dovetail.stream.whole import place_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from confluent_kafka.admin import AdminClient

    from dovetail.settings import Settings
    from dovetail.stream.rdkafka import Producer
    from dovetail.topology import Topic

KEY = b"latest"
"""Of every message: the latest one is kept."""
_TIMEOUT_S = 30.0
_LOOK_EVERY_S = 0.01
_BACK = 8
"""So many offsets before the end the latest message is looked for first: it has a marker of its
transaction behind it, and perhaps those of some that were aborted."""
_FURTHER_BACK = 32
_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class States:
    run: int = 0
    slots: dict[int, SlotState] = field(default_factory=dict)
    """Without those of which nothing was committed yet."""

    @property
    def counts(self) -> Counter[str]:
        return sum((state.counts for state in self.slots.values()), Counter())


def run_partition(topic: Topic) -> int:
    """Where the number of the present run stands."""
    return topic.partitions - 1


def write_run(producer: Producer, topic: Topic, run: int) -> None:
    producer.send(topic.name, b"%d" % run, run_partition(topic), key=KEY)


def write_slots(producer: Producer, topic: Topic, slots: Mapping[int, SlotState]) -> None:
    for slot, state in slots.items():
        producer.send(topic.name, state.message, slot, key=KEY)


class StatesReader:
    """Reads them again and again: no partition but those that have grown meanwhile."""

    def __init__(self, settings: Settings, topic: Topic, admin: AdminClient | None = None) -> None:
        self._settings = settings
        self._topic = topic
        self._admin = admin or admin_of(settings)
        self._is_there = False
        self._ends = [0] * topic.partitions
        self._latest: dict[int, bytes] = {}
        self._consumer: Consumer | None = None

    def read(self, slots: Collection[int] | None = None, *, settled: bool = False) -> States:
        """What is committed by now of these slots, or of all, and the run's number.

        `settled`: wait for the end of whatever is under way of them. Who does not ask for that may
        come before the topic was made.
        """
        run = run_partition(self._topic)
        asked = [*(range(run) if slots is None else slots), run]
        now = self._settled_ends(asked) if settled else self._ends_by_now(asked)
        grown = {number: end for number, end in now.items() if end != self._ends[number]}
        found = self._read_back(grown)
        for number, end in grown.items():
            self._ends[number] = end
            self._latest.pop(number, None)
        self._latest |= found
        there = {number: self._latest[number] for number in asked if number in self._latest}
        number_of_run = int(there.pop(run, b"0"))
        return States(number_of_run, {n: SlotState.of_message(one) for n, one in there.items()})

    def wrote(self, slots: Mapping[int, SlotState]) -> None:
        """Note what the reader's own transaction has committed, a message a slot.

        Where more was written meanwhile, a partition ends elsewhere, and is read again.
        """
        for slot, state in slots.items():
            # Behind the message stands the marker of its transaction's end.
            self._ends[slot] += 2
            self._latest[slot] = state.message

    def _ends_by_now(self, asked: Collection[int]) -> dict[int, int]:
        if not self._is_there and not self._exists():
            return {}
        self._is_there = True
        found = ends(self._admin, self._topic)
        return {number: found[number] for number in asked}

    def _exists(self) -> bool:
        """Whether there is the topic: not of a pipeline that no service has been started for."""
        try:
            return self._topic.name in self._admin.list_topics(timeout=_TIMEOUT_S).topics
        except KafkaException as error:
            raise Unavailable(f"{self._topic.name} cannot be read: {error}") from error

    def _settled_ends(self, asked: Collection[int]) -> dict[int, int]:
        until = time.monotonic() + _TIMEOUT_S
        while True:
            found = settled_ends(self._admin, self._topic)
            settled = {n: end for n in asked if (end := found[n]) is not None}
            if len(settled) == len(asked):
                return settled
            if time.monotonic() > until:
                raise Unavailable(f"a transaction on {self._topic.name} does not come to its end")
            time.sleep(_LOOK_EVERY_S)

    def _read_back(self, wanted: Mapping[int, int]) -> dict[int, bytes]:
        """The latest message of each of these partitions before its end, where there is one."""
        found: dict[int, bytes] = {}
        left = {number: end for number, end in wanted.items() if end > 0}
        back = _BACK
        while left:
            starts = {number: max(0, end - back) for number, end in left.items()}
            found |= self._last_from(starts)
            left = {n: end for n, end in left.items() if n not in found and starts[n] > 0}
            back *= _FURTHER_BACK
        return found

    def _last_from(self, starts: Mapping[int, int]) -> dict[int, bytes]:
        """The last message of each partition, of those from an offset on."""
        consumer = self._reading()
        until = time.monotonic() + _TIMEOUT_S
        last: dict[int, bytes] = {}
        reading = set(starts)
        consumer.assign([TopicPartition(self._topic.name, n, at) for n, at in starts.items()])
        try:
            while reading:
                # One by one: who asks for many waits for them, although the last has come.
                message = consumer.poll(_POLL_S)
                if message is None:
                    if time.monotonic() > until:
                        raise Unavailable(f"{self._topic.name} cannot be read: nothing comes")
                    continue
                error = message.error()
                number = place_of(message)[0] if message.partition() is not None else -1
                if error is None:
                    last[number] = message.value() or b""
                elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
                    reading.discard(number)
                else:
                    raise self._failure(error)
        finally:
            consumer.unassign()
        return last

    def _reading(self) -> Consumer:
        if self._consumer is None:
            self._consumer = Consumer(
                self._settings.client(
                    {
                        # Required, and never committed to.
                        "group.id": f"{self._topic.name}.{uuid.uuid4()}",
                        "enable.auto.commit": False,
                        "enable.partition.eof": True,
                        "isolation.level": "read_committed",
                        # Compaction leaves a partition's beginning where it is, but a broker may
                        # have been told to delete.
                        "auto.offset.reset": "earliest",
                        "fetch.wait.max.ms": 10,
                    }
                )
            )
        return self._consumer

    def _failure(self, error: KafkaError) -> Exception:
        text = f"{self._topic.name} cannot be read"
        return failure(self._settings, error, text, reads(self._topic.name))

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None
