"""What one event costs at the edges: confluent-kafka against the columnar binding.

    python bench/rdkafka_edges.py --bootstrap 127.0.0.1:9092 [--events 200000]

Producing is measured inside the calls that queue the messages, with the queue large enough to
hold them all, and beside it until the last one is acknowledged. Consuming is measured with the
messages fetched ahead (the client's own cost), and while streaming from the broker. "CPU" is
what the calling thread used: on shared cores the steadier figure, since the broker and
librdkafka's own threads want the same cores. Medians of the rounds; the last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import uuid
from typing import TYPE_CHECKING

import confluent_kafka
import numpy as np
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from dovetail.stream.rdkafka import Consumer, Producer

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOST_EVENTS = 500_000
BATCH = 10_000
VALUE_BYTES = 120
AHEAD_S = 3.0
HEADER = (b"reason", b"no master row")


def values(events: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    data = np.random.default_rng(1).integers(32, 127, events * VALUE_BYTES, np.uint8)
    return data, np.arange(events + 1, dtype=np.int64) * VALUE_BYTES


def producer_config(bootstrap: str, events: int) -> dict[str, str | int | bool]:
    return {
        "bootstrap.servers": bootstrap,
        "enable.idempotence": True,
        "linger.ms": 5,
        "batch.size": 1_000_000,
        "queue.buffering.max.messages": 2 * events,
        "queue.buffering.max.kbytes": 1_000_000,
    }


def consumer_config(bootstrap: str) -> dict[str, str | int | bool]:
    return {
        "bootstrap.servers": bootstrap,
        "group.id": uuid.uuid4().hex,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "queued.min.messages": 1_000_000,
        "queued.max.messages.kbytes": 500_000,
        "fetch.max.bytes": 100_000_000,
        "max.partition.fetch.bytes": 50_000_000,
    }


class Clock:
    """Wall and calling thread's CPU seconds since it was made."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.thread_time()

    def read(self) -> tuple[float, float]:
        return time.perf_counter() - self._wall, time.thread_time() - self._cpu


def produce_theirs(bootstrap: str, topic: str, events: int, header: bool) -> dict[str, float]:
    producer = confluent_kafka.Producer(producer_config(bootstrap, events))
    data, bounds = values(events)
    rows = [data[bounds[i] : bounds[i + 1]].tobytes() for i in range(events)]
    headers: list[tuple[str, str | bytes | None]] = [(HEADER[0].decode(), HEADER[1])]
    producer.produce(topic, b"", partition=0)  # fetches the topic's metadata
    producer.flush()
    produce = producer.produce
    clock = Clock()
    if header:
        for row in rows:
            produce(topic, row, partition=0, headers=headers)
    else:
        for row in rows:
            produce(topic, row, partition=0)
    queued, cpu = clock.read()
    producer.flush()
    return {"queued": queued, "queued, CPU": cpu, "acknowledged": clock.read()[0]}


def produce_ours(bootstrap: str, topic: str, events: int, header: bool) -> dict[str, float]:
    data, bounds = values(events)
    headers = [HEADER] if header else []
    with Producer(producer_config(bootstrap, events)) as producer:
        producer.send(topic, b"", 0)  # fetches the topic's metadata
        producer.flush(30)
        clock = Clock()
        for first in range(0, events, BATCH):
            part = bounds[first : first + BATCH + 1]
            producer.send_many(topic, 0, data, part, headers=headers)
        queued, cpu = clock.read()
        producer.flush(60)
        return {"queued": queued, "queued, CPU": cpu, "acknowledged": clock.read()[0]}


def consume_theirs(bootstrap: str, topic: str, events: int, ahead: bool) -> dict[str, float]:
    consumer = confluent_kafka.Consumer(consumer_config(bootstrap))
    consumer.subscribe([topic])
    seen, size = 1, 0
    while not consumer.consume(1, 1):
        pass
    if ahead:
        time.sleep(AHEAD_S)
    clock = Clock()
    while seen < events:
        for message in consumer.consume(min(BATCH, events - seen), 1):
            size += len(message.value() or b"")
            message.partition()
            message.offset()
            message.timestamp()
            seen += 1
    wall, cpu = clock.read()
    consumer.close()
    return {"wall": wall, "CPU": cpu}


def consume_ours(bootstrap: str, topic: str, events: int, ahead: bool) -> dict[str, float]:
    def ignore(_partitions: list[int]) -> None:
        pass

    with Consumer(consumer_config(bootstrap), topic, ignore, ignore) as consumer:
        seen = 0
        while not seen:
            seen = len(consumer.consume(1, 1))
        if ahead:
            time.sleep(AHEAD_S)
        clock = Clock()
        while seen < events:
            seen += len(consumer.consume(BATCH, 1))
        wall, cpu = clock.read()
        return {"wall": wall, "CPU": cpu}


def fresh_topic(bootstrap: str) -> str:
    topic = f"bench-rdkafka-{uuid.uuid4().hex}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    return topic


def drop_topics(bootstrap: str, topics: list[str]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for deleted in admin.delete_topics(topics).values():
        deleted.result(30)


def measure(bootstrap: str, events: int, rounds: int) -> dict[str, dict[str, float]]:
    figures: dict[str, dict[str, list[float]]] = {}
    topics = [fresh_topic(bootstrap)]

    def note(what: str, whose: str, seconds: dict[str, float]) -> None:
        for how, spent in seconds.items():
            each = figures.setdefault(f"{what}, {how}", {}).setdefault(whose, [])
            each.append(spent / events * 1e9)

    produce_ours(bootstrap, topics[0], 1, header=True)  # compiles
    for _ in range(rounds):
        for header, name in ((False, "produce"), (True, "produce with a header")):
            for whose, produce in (("theirs", produce_theirs), ("ours", produce_ours)):
                topics.append(fresh_topic(bootstrap))
                note(name, whose, produce(bootstrap, topics[-1], events, header))
        for ahead, name in ((True, "consume, fetched ahead"), (False, "consume, streaming")):
            for whose, consume in (("theirs", consume_theirs), ("ours", consume_ours)):
                note(name, whose, consume(bootstrap, topics[-1], events, ahead))
    drop_topics(bootstrap, topics)
    return {
        what: {whose: round(statistics.median(each)) for whose, each in by.items()}
        for what, by in figures.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--events", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    events = min(asked.events, MOST_EVENTS)
    figures = measure(asked.bootstrap, events, asked.rounds)
    print(f"{'ns an event':36}{'confluent-kafka':>16}{'dovetail':>10}{'ratio':>7}")
    for what, by in figures.items():
        print(f"{what:36}{by['theirs']:16,}{by['ours']:10,}{by['theirs'] / by['ours']:6.1f}x")
    print(json.dumps({"events": events, "value_bytes": VALUE_BYTES, "ns": figures}))


if __name__ == "__main__":
    main()
