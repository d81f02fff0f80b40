"""What a message costs producer and broker, by its headers and by compression.

    python -m bench.broker_cost [EVENTS]

One message an event, as the phases send them, in transactions of 20,000 to four partitions of a
broker of its own. CPU seconds a million messages, of this process and of the broker; the last line
is JSON.
"""

from __future__ import annotations

import json
import sys
import time

import numpy as np
import psutil

from bench.measure import running
from deploy.local.home import Home
from deploy.local.stack import Stack
from dovetail.demo.generate import GenerateSettings
from dovetail.join.columns import Column
from dovetail.settings import Settings
from dovetail.stream.provenance import ORIGIN, VIA, origins
from dovetail.stream.rdkafka import Producer
from dovetail.stream.topics import ensure_topics
from dovetail.topology import Topic

BATCH, PARTITIONS = 20_000, 4
ROW = b',"name":"Espresso machine 4711","category":"kitchen","vendor":"Vendor 17","price":249.90}'


def outputs() -> Column:
    """The demo's events, each continued by a row."""
    events = GenerateSettings(bad=0.0).events().batch(1, np.zeros(BATCH, np.int64))
    values = Column(events.data, events.bounds)
    return Column.of([value.rstrip()[:-1] + ROW for value in values])


def cpu_of(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def measure(
    settings: Settings, broker: int, events: int, headers: int, compression: str
) -> dict[str, float]:
    topic = Topic(f"cost-{headers}-{compression}", PARTITIONS)
    ensure_topics(settings, [topic])
    producer = Producer(
        settings.client(
            {
                "transactional.id": topic.name,
                "linger.ms": 20,
                "batch.size": 1 << 20,
                "compression.type": compression,
                "queue.buffering.max.messages": 500_000,
            }
        )
    )
    producer.init_transactions(30)
    values = outputs()
    identity = origins("sales", np.zeros(BATCH, np.int32), np.arange(BATCH))
    chosen = [(ORIGIN, (identity.data, identity.bounds)), (VIA, b"cache")][:headers]
    began, mine, its = time.perf_counter(), time.process_time(), cpu_of(broker)
    for number in range(events // BATCH):
        producer.begin()
        producer.send_many(
            topic.name, number % PARTITIONS, values.data, values.bounds, headers=chosen
        )
        producer.commit(30)
    seconds = time.perf_counter() - began
    million = 1e6 / events
    found = {
        "producer_s": (time.process_time() - mine) * million,
        "broker_s": (cpu_of(broker) - its) * million,
        "seconds": seconds * million,
    }
    producer.close()
    return {name: round(value, 2) for name, value in found.items()}


def main() -> None:
    events = int(sys.argv[1]) if len(sys.argv) > 1 else 400_000
    checkout = Home.of_checkout()
    home = Home(checkout.folder / "bench-cost", downloads=checkout.folder)
    result = {}
    with Stack(home, report=print) as stack:
        settings = Settings(stack.bootstrap, stack.database_url, home.folder)
        broker = next(pid for name, pid in running(home).items() if "kafka" in name)
        measure(settings, broker, events, 0, "none")  # warms the broker up
        for compression in ("none", "lz4", "zstd"):
            for headers in (0, 1, 2):
                found = measure(settings, broker, events, headers, compression)
                result[f"{headers}-{compression}"] = found
                print(f"{compression:5} {headers} headers  {found}", flush=True)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
