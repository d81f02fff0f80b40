"""Nanoseconds an event for decoding the same sale as flat JSON, JSON with a path, Avro, Protobuf.

    python bench/decode_formats.py [events]

Each figure is for a whole batch from the bytes on the topic to validated JSON spans and keys. For
the binary formats, `…_transcode` is the part of it that makes the text. The last line is JSON.
"""

from __future__ import annotations

import json
import random
import struct
import sys
import time
from typing import TYPE_CHECKING

from google.protobuf import descriptor_pb2, message_factory

from bench.decode_json import batch_of, nanoseconds
from dovetail.stream.events.avro.schema import parse
from dovetail.stream.events.avro.transcoder import AvroTranscoder
from dovetail.stream.events.decode import JsonDecoder
from dovetail.stream.events.protobuf.schema import message_of
from dovetail.stream.events.protobuf.transcoder import ProtobufTranscoder
from dovetail.stream.events.schema import EventSchema, Field, FieldType
from dovetail.stream.events.transcode import TranscodingDecoder, _binary

if TYPE_CHECKING:
    from collections.abc import Callable

    from google.protobuf.descriptor import Descriptor

MOST_BYTES = 4096
TYPES = {
    "event_id": FieldType.INT,
    "product_id": FieldType.INT,
    "store": FieldType.TEXT,
    "quantity": FieldType.INT,
    "price": FieldType.DECIMAL,
    "sold_at": FieldType.TIMESTAMP,
    "online": FieldType.BOOLEAN,
}
FLAT = EventSchema({name: Field(kind) for name, kind in TYPES.items()}, ("product_id",), MOST_BYTES)
NESTED = EventSchema(
    {name.replace("product_id", "order.product_id"): Field(kind) for name, kind in TYPES.items()},
    ("order.product_id",),
    MOST_BYTES,
)
AVRO = {
    "type": "record",
    "name": "Sale",
    "fields": [
        {"name": "event_id", "type": "long"},
        {"name": "product_id", "type": "long"},
        {"name": "store", "type": "string"},
        {"name": "quantity", "type": "int"},
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        },
        {"name": "sold_at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "online", "type": ["null", "boolean"]},
    ],
}
Sale = tuple[int, int, str, int, int, int, bool]


def sales(count: int) -> list[Sale]:
    dice = random.Random(7)
    return [
        (
            *(10**9 + nth, dice.randrange(10**6), f"S-{dice.randrange(500):03}"),
            *(dice.randrange(1, 9), dice.randrange(9_900)),
            *(1_762_000_000 + dice.randrange(2_500_000), dice.random() < 0.5),
        )
        for nth in range(count)
    ]


def as_json(sale: Sale, nested: bool) -> bytes:
    event, product, store, quantity, cents, second, online = sale
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(second))
    key = f'"order":{{"product_id":{product}}}' if nested else f'"product_id":{product}'
    return (
        f'{{"event_id":{event},{key},"store":"{store}","quantity":{quantity},'
        f'"price":{cents / 100:.2f},"sold_at":"{stamp}","online":{json.dumps(online)}}}'
    ).encode()


def as_avro(sale: Sale) -> bytes:
    event, product, store, quantity, cents, second, online = sale
    price = cents.to_bytes(2, "big")
    return b"".join(
        [
            *(varint(event * 2), varint(product * 2), varint(len(store) * 2), store.encode()),
            *(varint(quantity * 2), varint(len(price) * 2), price),
            *(varint(second * 2_000), b"\2", bytes([online])),
        ]
    )


def varint(number: int) -> bytes:
    made = bytearray()
    while number > 0x7F:
        made.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*made, number])


def as_protobuf(sale: Sale) -> bytes:
    event, product, store, quantity, cents, second, online = sale
    price = struct.pack("<d", cents / 100)
    moment = b"\x08" + varint(second)
    return b"".join(
        [
            *(b"\x08", varint(event), b"\x10", varint(product)),
            *(b"\x1a", varint(len(store)), store.encode(), b"\x20", varint(quantity)),
            *(b"\x29", price, b"\x32", varint(len(moment)), moment, b"\x38", bytes([online])),
        ]
    )


def protobuf_message() -> Descriptor:
    kind = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="sale.proto", syntax="proto3", dependency=["google/protobuf/timestamp.proto"]
    )
    message = file.message_type.add(name="Sale")
    types = (kind.TYPE_INT64, kind.TYPE_INT64, kind.TYPE_STRING, kind.TYPE_INT32)
    for number, (name, of) in enumerate(
        zip(TYPES, (*types, kind.TYPE_DOUBLE, kind.TYPE_MESSAGE, kind.TYPE_BOOL), strict=True), 1
    ):
        field = message.field.add(name=name, number=number, type=of, label=kind.LABEL_OPTIONAL)
        if of == kind.TYPE_MESSAGE:
            field.type_name = ".google.protobuf.Timestamp"
    return message_of(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString(), "Sale")


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    made = sales(count)
    avro = AvroTranscoder(parse(json.dumps(AVRO)), MOST_BYTES)
    message = protobuf_message()
    protobuf = ProtobufTranscoder(message, MOST_BYTES)
    library = message_factory.GetMessageClass(message)
    batches = {
        "json_flat": [as_json(sale, nested=False) for sale in made],
        "json_path": [as_json(sale, nested=True) for sale in made],
        "avro": [as_avro(sale) for sale in made],
        "protobuf": [as_protobuf(sale) for sale in made],
    }
    decoders = {
        "json_flat": JsonDecoder(FLAT),
        "json_path": JsonDecoder(NESTED),
        "avro": TranscodingDecoder(FLAT, avro),
        "protobuf": TranscodingDecoder(FLAT, protobuf),
    }
    columns = {name: batch_of(events) for name, events in batches.items()}
    works: dict[str, Callable[[], object]] = {}
    for name, decoder in decoders.items():
        decoded = decoder.decode(*columns[name])
        assert decoded.valid.all(), decoded.details
        assert decoded.keys.tolist() == [sale[1] for sale in made]
        works[name] = lambda decoder=decoder, name=name: decoder.decode(*columns[name])
    for name, transcoder in (("avro", avro), ("protobuf", protobuf)):
        data, bounds, tombstones = columns[name]
        events = _binary(data, bounds, ~tombstones)
        works[f"{name}_transcode"] = lambda code=transcoder, events=events: code.transcode(events)
    works["google_protobuf"] = lambda: [library.FromString(event) for event in batches["protobuf"]]
    figures = {name: nanoseconds(work, count) for name, work in works.items()}
    sizes = {name: round(len(data) / count) for name, (data, _, _) in columns.items()}
    print(f"{count} events; bytes an event: {sizes}")
    for name, each in figures.items():
        print(f"{name:20} {each:8.1f} ns/event {1e3 / each:6.2f} M events/s")
    print(json.dumps({"bench": "decode_formats", "events": count, "ns_per_event": figures}))


if __name__ == "__main__":
    main()
