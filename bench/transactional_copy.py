"""The least that an exactly-once hop can take: a copy that commits whatever has arrived, at once.

    python -m bench.transactional_copy FROM TO GROUP WARM EVENTS

One process and no work on events: consume what is there, send it to the same partition of TO,
commit output and offsets in one Kafka transaction, with a stage's own client settings.

It goes on where GROUP stands, for WARM events, then for EVENTS. In between it says `warm`, in the
end one line of JSON.
"""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING

import numpy as np

from bench.ranges import consumer_of
from dovetail.settings import Settings
from dovetail.stream.takeover import Written, producer_of

if TYPE_CHECKING:
    from dovetail.stream.rdkafka import Consumer, Producer

_MOST = 20_000
_TIMEOUT_S = 30.0


def copy(consumer: Consumer, producer: Producer, target: str, events: int) -> int:
    """Copy so many events; return in how many transactions."""
    transactions = 0
    while events > 0:
        records = consumer.consume(min(_MOST, events), 1.0)
        if not len(records):
            continue
        producer.begin()
        producer.send_many(
            target,
            records.partitions.astype(np.int32),
            records.data,
            records.bounds,
            tombstones=records.tombstones,
        )
        offsets = {number: (offset, "") for number, offset in consumer.positions().items()}
        producer.send_offsets(consumer.topic, offsets, consumer.group_metadata(), _TIMEOUT_S)
        producer.commit()
        events -= len(records)
        transactions += 1
    return transactions


def main() -> int:
    source, target, group, warm, events = sys.argv[1:]
    settings = Settings.of_kafka()
    with (
        consumer_of(settings, source, group) as consumer,
        producer_of(settings, group, Written(())) as producer,
    ):
        copy(consumer, producer, target, int(warm))
        print("warm", flush=True)
        begun, used = time.monotonic(), time.process_time()
        transactions = copy(consumer, producer, target, int(events))
        seconds = time.monotonic() - begun
        result = {
            "events_per_s": int(events) / seconds,
            "seconds": seconds,
            "cpu_s": time.process_time() - used,
            "transactions": transactions,
        }
    print(json.dumps(result), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
