"""Taking over a transactional id, and ending what the broker has forgotten to end of it.

A broker that is killed and started under load may write down that a transaction has ended, and not
end it where it had written (docs/decisions/0025). Its messages then wait for the next end of a
transaction of the same id, whose commit would make them visible. So whoever takes an id over, or
goes on after an abort, first ends one that writes wherever something is open and is aborted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.stream.topics import admin_of, unstable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dovetail.settings import Settings
    from dovetail.stream.rdkafka import Producer
    from dovetail.topology import Topic

_TIMEOUT_S = 30.0


def take_over(settings: Settings, producer: Producer, topics: Iterable[Topic]) -> None:
    """Make the producer's id its own, with nothing of it open on the topics it writes to."""
    producer.init_transactions(_TIMEOUT_S)
    abort_forgotten(settings, producer, topics)


def abort_forgotten(settings: Settings, producer: Producer, topics: Iterable[Topic]) -> None:
    """End what is still open of the producer's id, all of whose transactions should be over.

    What is open may as well be another's: that is not touched by it.
    """
    admin = admin_of(settings)
    found = [(topic, number) for topic in topics for number in unstable(admin, topic)]
    if found:
        producer.begin()
        write_nothing(producer, found)
        producer.abort(_TIMEOUT_S)


def write_nothing(producer: Producer, partitions: Iterable[tuple[Topic, int]]) -> None:
    """Write to each of these, so that the end of the transaction under way is marked there."""
    for topic, number in partitions:
        # With a key, as a compacted topic takes no other; nobody will see it.
        producer.send(topic.name, None, number, key=b"aborted")
    # An abort drops what is queued still.
    producer.flush(_TIMEOUT_S)
