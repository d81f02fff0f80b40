"""Taking over a transactional id, and ending what the broker has forgotten to end of it.

A broker that is killed and started under load may write down that a transaction has ended, and not
end it where it had written (docs/decisions/0025). Its messages keep readers waiting, and become
visible with the next commit of the same id; its offsets let nobody read where the group stands. So
whoever takes an id over, or goes on after an abort, first ends one that writes wherever something
is open and is aborted.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException

from dovetail.permissions import Operation, Permission, Resource
from dovetail.stream.offsets import CommittedOffsets
from dovetail.stream.rdkafka import GroupMetadata, Producer
from dovetail.stream.rdkafka.producer import QUEUE_BYTES, QUEUE_MESSAGES
from dovetail.stream.refusals import failure
from dovetail.stream.topics import admin_of, unstable
from dovetail.topology import LARGEST_MESSAGE_BYTES

if TYPE_CHECKING:
    from dovetail.settings import Settings
    from dovetail.topology import Topic

_TIMEOUT_S = 30.0
RECONNECT_MS = 1_000
"""A broker that is back is found within this time."""
TRANSACTION_S = 20.0
"""After so long the broker ends a transaction, and within ten seconds more."""


@dataclass(frozen=True, slots=True)
class Written:
    """What the transactions of an id write: messages, and a group's offsets on a topic."""

    topics: tuple[Topic, ...]
    group: str = ""
    reads: Topic | None = None


def producer_of(settings: Settings, name: str, written: Written) -> Producer:
    """Take over a transactional id: settles whatever its last holder left open."""
    producer = Producer(
        settings.client(
            {
                "transactional.id": name,
                "client.id": name,
                "transaction.timeout.ms": int(TRANSACTION_S * 1000),
                # The broker is busy finishing the last transaction for some ms after
                # its commit; librdkafka asks again after this pause.
                "retry.backoff.ms": 5,
                "reconnect.backoff.max.ms": RECONNECT_MS,
                # A commit does not wait for it: the end of a step sends what is left.
                "linger.ms": 20,
                "message.max.bytes": LARGEST_MESSAGE_BYTES,
                "batch.size": 1 << 20,
                "queue.buffering.max.messages": QUEUE_MESSAGES,
                "queue.buffering.max.kbytes": QUEUE_BYTES >> 10,
            }
        ),
        compressed=[topic.name for topic in written.topics if topic.compressed],
    )
    try:
        take_over(settings, producer, written)
    except BaseException:
        producer.close()
        raise
    return producer


def take_over(settings: Settings, producer: Producer, written: Written) -> None:
    """Make the producer's id its own, with nothing of it open."""
    producer.init_transactions(_TIMEOUT_S)
    abort_forgotten(settings, producer, written)


def abort_forgotten(settings: Settings, producer: Producer, written: Written) -> None:
    """End what is still open of the producer's id, all of whose transactions should be over.

    What is open may as well be another's: that is not touched by it.
    """
    admin = admin_of(settings)
    found = [(topic, number) for topic in written.topics for number in unstable(admin, topic)]
    last = _last_offset(settings, written)
    if not found and not last:
        return
    producer.begin()
    for topic, number in found:
        # With a key, as a compacted topic takes no other; nobody will see it.
        producer.send(topic.name, None, number, key=b"aborted")
    if written.reads and last:
        # One is enough: all offsets of a group lie on one partition. As nobody in particular, for
        # it may not be a member yet.
        group = GroupMetadata.of_group(written.group)
        producer.send_offsets(written.reads.name, last, group, _TIMEOUT_S)
    # An abort drops what is queued still.
    producer.flush(_TIMEOUT_S)
    producer.abort(_TIMEOUT_S)


def members(settings: Settings, written: Written) -> set[str]:
    """Ids of the group's nodes that are members now."""
    admin = admin_of(settings)  # kept: its answers end with it
    try:
        told = admin.describe_consumer_groups([written.group], request_timeout=_TIMEOUT_S)
        found = told[written.group].result().members
    except KafkaException as error:
        needed = (Permission(Resource.GROUP, written.group, Operation.READ),)
        text = f"the members of {written.group} cannot be told"
        raise failure(settings, error, text, needed) from error
    return {member.group_instance_id for member in found if member.group_instance_id}


def absent(settings: Settings, written: Written) -> list[str]:
    """Ids of the group's nodes that are no members now, by the numbers that there may have been."""
    present = members(settings, written)
    most = written.reads.partitions if written.reads else 0
    # Nodes come and go under ever higher numbers.
    numbers = range(max((most, *(_number(name) + 1 for name in present))))
    names = [f"{written.group}.{number}" for number in numbers]
    return [name for name in names if name not in present]


def _number(name: str) -> int:
    number = name.rpartition(".")[2]
    return int(number) if number.isdecimal() else -1


def _last_offset(settings: Settings, written: Written) -> dict[int, tuple[int, str]]:
    """What the group has committed on some partition, if on any."""
    if written.reads is None:
        return {}
    with closing(CommittedOffsets(settings, written.group, written.reads)) as outside:
        found = outside.read()
    return {number: (at.offset, at.text) for number, at in list(found.items())[:1]}
