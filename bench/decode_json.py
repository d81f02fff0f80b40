"""Nanoseconds an event for decoding a batch of JSON sales events, beside msgspec and orjson.

    python bench/decode_json.py [events]

Ours validates fully and gives keys as columns; msgspec decodes into typed structs (dates, decimals
and all), orjson into dicts with nothing but the syntax checked, both event by event. The last line
is JSON.
"""

from __future__ import annotations

import json
import random
import sys
import time
from datetime import datetime  # noqa: TC003 - msgspec reads the struct's types at run time
from decimal import Decimal  # noqa: TC003 - as above
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import orjson

from dovetail.stream.events.decode import JsonDecoder
from dovetail.stream.events.schema import EventSchema, Field, FieldType

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDS = 7
FIELDS = {
    "event_id": Field(FieldType.INT),
    "product_id": Field(FieldType.INT),
    "store": Field(FieldType.TEXT),
    "quantity": Field(FieldType.INT),
    "price": Field(FieldType.DECIMAL),
    "sold_at": Field(FieldType.TIMESTAMP),
    "online": Field(FieldType.BOOLEAN, optional=True),
}
BAD = [
    b"",
    b'{"event_id":1,',
    b'{"event_id":1,"product_id":null}',
    b'{"event_id":1.5,"product_id":2,"store":"s","quantity":1,"price":1,"sold_at":"2025-01-01T00:00:00Z"}',
    b'{"event_id":1,"product_id":2,"store":{"id":7},"quantity":1,"price":1}',
]


class Sale(msgspec.Struct):
    event_id: int
    product_id: int
    store: str
    quantity: int
    price: Decimal
    sold_at: datetime
    online: bool | None = None


def sale(dice: random.Random, nth: int) -> bytes:
    return (
        f'{{"event_id":{10**9 + nth},"product_id":{dice.randrange(10**6)},'
        f'"store":"S-{dice.randrange(500):03}","quantity":{dice.randrange(1, 9)},'
        f'"price":{dice.randrange(99)}.{dice.randrange(100):02},'
        f'"sold_at":"2025-11-{dice.randrange(1, 31):02}T{dice.randrange(24):02}:15:42Z",'
        f'"online":{dice.choice(["true", "false"])}}}'
    ).encode()


def batch_of(events: list[bytes]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    bounds = np.cumsum([0, *map(len, events)], dtype=np.int64)
    return np.frombuffer(b"".join(events), np.uint8), bounds, np.zeros(len(events), np.bool_)


def nanoseconds(work: Callable[[], object], events: int) -> float:
    """Give the fastest round's nanoseconds an event: the others only met other processes."""
    work()
    elapsed = []
    for _ in range(ROUNDS):
        began = time.perf_counter_ns()
        work()
        elapsed.append(time.perf_counter_ns() - began)
    return round(min(elapsed) / events, 1)


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    dice = random.Random(7)
    good = [sale(dice, nth) for nth in range(count)]
    mixed = [dice.choice(BAD) if dice.random() < 0.01 else event for event in good]
    int_key = JsonDecoder(EventSchema(FIELDS, ("product_id",), 4096))
    text_key = JsonDecoder(EventSchema(FIELDS, ("store",), 4096))
    composite = JsonDecoder(EventSchema(FIELDS, ("store", "product_id"), 4096))
    struct = msgspec.json.Decoder(Sale)
    works: dict[str, Callable[[], object]] = {
        "int_key": lambda: int_key.decode(*good_batch),
        "int_key_1pct_bad": lambda: int_key.decode(*mixed_batch),
        "text_key": lambda: text_key.decode(*good_batch),
        "composite_key": lambda: composite.decode(*good_batch),
        "msgspec_struct": lambda: [struct.decode(event) for event in good],
        "orjson_dict": lambda: [orjson.loads(event) for event in good],
    }
    good_batch, mixed_batch = batch_of(good), batch_of(mixed)
    assert int_key.decode(*good_batch).valid.all()
    began = time.perf_counter()
    figures = {name: nanoseconds(work, count) for name, work in works.items()}
    print(f"{count} events of {len(good_batch[0]) / count:.0f} bytes, best of {ROUNDS} rounds")
    for name, each in figures.items():
        print(f"{name:18} {each:8.1f} ns/event {1e3 / each:6.2f} M events/s")
    print(f"in all {time.perf_counter() - began:.1f} s")
    print(json.dumps({"bench": "decode_json", "events": count, "ns_per_event": figures}))


if __name__ == "__main__":
    main()
