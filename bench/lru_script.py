"""The baseline: what a competent engineer writes in an afternoon, at its best.

    python -m bench.lru_script FROM TO STARTS WARM EVENTS [LRU_ROWS] [--arrived]

One process: consume 5,000 events, parse them, look in an LRU of rows, ask PostgreSQL for all
missing keys at once, merge, encode, produce one message an event. At least once, which costs it
less than transactions would: offsets are committed every 50,000 events, after a flush. It checks
of an event only what it needs, and writes nothing for events without a master row.

With an LRU of 0 rows it is what many write first: tuple by tuple, one query an event.

It reads from STARTS on (offsets by partition, as JSON), WARM events first to fill the LRU, then
EVENTS whose time counts. In between it says `warm`, in the end one line of JSON. With --arrived a
batch of those is what has arrived, 5,000 at most: as little as there is, as soon as it is there.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
from itertools import islice
from typing import Any

import orjson
import psycopg
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from dovetail.settings import Settings

BATCH = 5_000
COMMIT_EVERY = 50_000
LRU_ROWS = 60_000
COLUMNS = ("name", "category", "vendor", "price", "weight", "active", "listed_on", "updated_at")
# As float8, because orjson writes that itself, but not a Decimal.
QUERY = (
    "SELECT product_id, name, category, vendor, price::float8, weight, active, listed_on, "
    "updated_at FROM products WHERE product_id = ANY(%s)"
)
QUERY_ONE = QUERY.replace("ANY(%s)", "%s")
Row = dict[str, Any]


class Script:
    def __init__(self, settings: Settings, target: str, lru_rows: int) -> None:
        self._target = target
        self._lru_rows = lru_rows
        self._rows: dict[int, Row | None] = {}  # in the order of use: the first is the oldest
        self.hits = self.joined = self.done = self.queries = 0
        self.consumer = Consumer(
            settings.client({"group.id": "bench.baseline", "enable.auto.commit": False})
        )
        self.producer = Producer(
            settings.client(
                {
                    "enable.idempotence": True,
                    "linger.ms": 5,
                    "batch.size": 1 << 20,
                    "queue.buffering.max.messages": 500_000,
                }
            )
        )
        self.database = psycopg.connect(settings.database_url, autocommit=True)

    def run(self, events: int, *, arrived: bool = False) -> None:
        end = self.done + events
        uncommitted = 0
        consume = self._arrived if arrived else self._full
        while self.done < end:
            messages = consume(min(BATCH, end - self.done))
            self.done += len(messages)
            self._enrich([message.value() for message in messages if message.error() is None])
            uncommitted += len(messages)
            if uncommitted >= COMMIT_EVERY or self.done == end:
                self.producer.flush()
                self.consumer.commit(asynchronous=True)
                uncommitted = 0

    def _full(self, most: int) -> list[Message]:
        """A whole batch, or what comes within a second."""
        return self.consumer.consume(most, 1.0)

    def _arrived(self, most: int) -> list[Message]:
        """Wait for the first, and take what is there with it."""
        messages = self.consumer.consume(1, 1.0)
        return messages + self.consumer.consume(most - 1, 0) if most > 1 else messages

    def _enrich(self, values: list[bytes | None]) -> None:
        rows, produce, target = self._rows, self.producer.produce, self._target
        events = []
        for value in values:
            try:
                event = orjson.loads(value or b"")
                events.append((event["product_id"] + 0, event))
            except (orjson.JSONDecodeError, KeyError, TypeError):
                continue
        if not self._lru_rows:
            self._enrich_one_by_one(events)
            return
        missing = {key for key, _ in events if key not in rows}
        self.hits += sum(key not in missing for key, _ in events)
        if missing:
            self.queries += 1
            rows.update(dict.fromkeys(missing))  # those without a row are remembered, too
            for found in self.database.execute(QUERY, (list(missing),), binary=True):
                rows[found[0]] = dict(zip(COLUMNS, found[1:], strict=True))
        for key, event in events:
            rows[key] = row = rows.pop(key)
            if row is not None:
                event.update(row)
                produce(target, orjson.dumps(event))
                self.joined += 1
        self.producer.poll(0)
        for key in list(islice(rows, max(0, len(rows) - self._lru_rows))):
            del rows[key]

    def _enrich_one_by_one(self, events: list[tuple[int, Row]]) -> None:
        for key, event in events:
            self.queries += 1
            found = self.database.execute(QUERY_ONE, (key,), binary=True).fetchone()
            if found is not None:
                event.update(zip(COLUMNS, found[1:], strict=True))
                self.producer.produce(self._target, orjson.dumps(event))
                self.joined += 1
        self.producer.poll(0)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument("starts", type=json.loads)
    parser.add_argument("warm", type=int)
    parser.add_argument("events", type=int)
    parser.add_argument("lru_rows", type=int, nargs="?", default=LRU_ROWS)
    parser.add_argument("--arrived", action="store_true")
    asked = parser.parse_args()
    # Its objects form no cycles: looking for them less often saves a sixth of its CPU time.
    gc.set_threshold(100_000, 50, 50)
    script = Script(Settings.from_environment(), asked.target, asked.lru_rows)
    script.consumer.assign(
        [TopicPartition(asked.source, number, at) for number, at in enumerate(asked.starts)]
    )
    script.run(asked.warm)
    print("warm", flush=True)
    hits, joined, queries = script.hits, script.joined, script.queries
    begun, used = time.monotonic(), time.process_time()
    script.run(asked.events, arrived=asked.arrived)
    seconds = time.monotonic() - begun
    result = {
        "events_per_s": asked.events / seconds,
        "seconds": seconds,
        "cpu_s": time.process_time() - used,
        "hit_rate": (script.hits - hits) / asked.events,
        "joined": script.joined - joined,
        "queries": script.queries - queries,
    }
    print(json.dumps(result), flush=True)
    script.consumer.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
