"""The ceiling: the same events through the same broker, in and out, with no work in between."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from bench.ranges import read
from dovetail.stream.rdkafka import Producer

if TYPE_CHECKING:
    from collections.abc import Callable

    from dovetail.settings import Settings
    from dovetail.topology import Topic


def pass_through(
    settings: Settings,
    source: Topic,
    target: Topic,
    starts: list[int],
    events: int,
    check: Callable[[], None],
) -> float:
    """Consume events and produce them again, one message each; return events a second.

    One hop without a transaction, until the last one is acknowledged.
    """
    with Producer(
        settings.client(
            {
                "linger.ms": 5,
                "batch.size": 1 << 20,
                "queue.buffering.max.messages": 500_000,
                "queue.buffering.max.kbytes": 256 << 10,
            }
        )
    ) as producer:
        begun, uncounted = 0.0, 0
        for turn, records in enumerate(read(settings, source.name, starts, events, check)):
            if not begun:  # not before: joining the group is no work of the broker's on events
                begun, uncounted = time.monotonic(), len(records)
            producer.send_many(
                target.name,
                turn % target.partitions,
                records.data,
                records.bounds,
                tombstones=records.tombstones,
            )
        producer.flush(60)
        return (events - uncounted) / (time.monotonic() - begun)
