"""Reading a known range of a topic in columns, and the number that each event carries."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import numpy as np
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from numba import njit

from dovetail.stream.rdkafka import Consumer
from dovetail.stream.topics import admin_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from dovetail.settings import Settings
    from dovetail.stream.rdkafka import Records

NO_ID = -1
_PREFIX = np.frombuffer(b'{"sale_id":', np.uint8)
_BATCH = 20_000


def group_at(settings: Settings, topic: str, starts: list[int]) -> str:
    """Make a consumer group that begins to read exactly here."""
    group = f"bench.{uuid.uuid4().hex}"
    places = [TopicPartition(topic, number, start) for number, start in enumerate(starts)]
    wanted = [ConsumerGroupTopicPartitions(group, places)]
    admin = admin_of(settings)  # by name: a client that is gone answers no future
    for future in admin.alter_consumer_group_offsets(wanted).values():
        future.result(30)
    return group


def consumer_at(settings: Settings, topic: str, starts: list[int]) -> Consumer:
    return consumer_of(settings, topic, group_at(settings, topic, starts))


def consumer_of(
    settings: Settings,
    topic: str,
    group: str,
    on_assign: Callable[[list[int]], None] = lambda _: None,
) -> Consumer:
    return Consumer(
        settings.client(
            {
                "group.id": group,
                "isolation.level": "read_committed",
                "auto.offset.reset": "error",
                # As a reader would who cares for latency: the broker answers as soon as
                # there is a byte, and is asked again at the latest after this.
                "fetch.wait.max.ms": 50,
                "queued.max.messages.kbytes": 64 << 10,
            }
        ),
        topic,
        on_assign,
        lambda _: None,
    )


def read(
    settings: Settings, topic: str, starts: list[int], count: int, check: Callable[[], None]
) -> Iterator[Records]:
    """Give so many records from here on; `check` ends a wait that is in vain by raising."""
    with consumer_at(settings, topic, starts) as consumer:
        while count > 0:
            check()
            records = consumer.consume(min(_BATCH, count), 1.0)
            count -= len(records)
            if len(records):
                yield records


@njit(cache=True, nogil=True)
def sale_ids(data: NDArray[np.uint8], bounds: NDArray[np.int64]) -> NDArray[np.int64]:
    """Read each value's sale_id, its first member; NO_ID where it is cut off or is no event.

    An enriched event begins with the event's own bytes, so this is where both have it.
    """
    ids = np.full(len(bounds) - 1, NO_ID, np.int64)
    for i in range(len(ids)):
        at, end = bounds[i], bounds[i + 1]
        if end - at <= len(_PREFIX):
            continue
        same = True
        for j in range(len(_PREFIX)):
            same &= data[at + j] == _PREFIX[j]
        at += len(_PREFIX)
        number = 0
        while at < end and 48 <= data[at] <= 57:
            number = number * 10 + (data[at] - 48)
            at += 1
        if same and at < end and data[at] == 44:  # a comma, or the number may be cut short
            ids[i] = number
    return ids
