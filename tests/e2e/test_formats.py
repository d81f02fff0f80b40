"""Avro and Protobuf through the real broker: the output is the one that SQL gives.

The oracle reads the events a second, independent way (dovetail/verify/{avro,protobuf}.py).
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from itertools import pairwise

import pytest
from google.protobuf.message_factory import GetMessageClass
from grpc_tools import protoc

from dovetail.stream.events.protobuf.schema import message_of
from dovetail.stream.events.reasons import Reason
from tests.e2e import shop
from tests.property.avro_reference import encode
from tests.unit.test_events_registry import Registry

KEYS = [key for (key,) in shop.INT.keys]
REASONS = {Reason.INVALID_AVRO, Reason.INVALID_PROTOBUF, Reason.UNKNOWN_SCHEMA}
FIELDS = {
    "order.product": "int",
    "order.note": "text?",
    "amount": "decimal",
    "weight": "float?",
    "day": "date?",
    "at": "timestamp?",
    "raw": "text?",
    "tags": "json?",
}


def spec(**source):
    return {
        "source": {"partitions": 2, "max_event_bytes": 2_000, "fields": FIELDS, **source},
        "key": "order.product",
        "master": {"table": "goods", "key": "id", "columns": shop.COLUMNS},
        "memory": "16MiB",
        "slots": 4,
    }


def assert_the_pipeline_gives_what_sql_gives(pipeline, good, bad, reasons):
    """`bad` has a tombstone among its events."""
    pipeline.send([*good, *bad])
    final = pipeline.drain()
    assert not final.problems
    verdict = pipeline.verdict()
    assert verdict.differences == []
    assert verdict.events == final.taken == len(good) + len(bad)
    assert verdict.outputs == verdict.expected > len(good)
    assert verdict.unmatched > 0
    counted = Counter(
        headers["reason"] for headers, _ in pipeline.messages(pipeline.topology.dead_letter)
    )
    assert sum(counted.values()) == verdict.dead_letters == len(bad)
    assert counted.keys() == {reason.label for reason in reasons}


# --- Avro, by a registry

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "product", "type": "long"}, {"name": "note", "type": ["null", "string"]}],
}
WRITER = {
    "type": "record",
    "name": "Sale",
    "fields": [
        {"name": "weight", "type": "float"},
        {"name": "dropped", "type": {"type": "array", "items": "string"}},
        {"name": "order", "type": ORDER},
        {
            "name": "amount",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2},
        },
        {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "tags", "type": {"type": "map", "values": ["null", "int", "string"]}},
    ],
}
READER = {
    **WRITER,
    "fields": [
        {"name": "raw", "type": "bytes", "default": "\u00ff"},
        *(field for field in WRITER["fields"] if field["name"] != "dropped"),
    ],
}
READER["fields"][1] = {"name": "weight", "type": "double"}


def avro_sale(key, number):
    return b"\0\0\0\0\x07" + encode(
        WRITER,
        {
            "weight": 0.1 * number,
            "dropped": ["x"] * (number % 3),
            "order": {"product": key, "note": (number % 2, "größe \n" if number % 2 else None)},
            "amount": (number - 3).to_bytes(5, "big", signed=True),
            "day": (1, 19_000 + number) if number % 2 else (0, None),
            "at": 1_700_000_000_000_000 + number,
            "tags": [("a", (0, None)), ("b", (1, number)), ('"', (2, "😀"))][: number % 4],
        },
        {},
    )


def test_avro_events_that_name_their_schema_are_joined_as_sql_joins_them(
    run_pipeline, database, tmp_path
):
    shop.INT.fill(database)
    (tmp_path / "sale.avsc").write_text(json.dumps(READER))
    good = [avro_sale(key, number) for key in KEYS for number in range(5)]
    whole = avro_sale(1, 1)
    bad = [
        *(None, whole[:-1], whole + b"\0", b"{}", b"", b"\0\0\0\0\x08" + whole[5:], bytes(3_000)),
        whole.replace("größe".encode(), b"gr\xff\xff\xff\xffe"),
    ]
    with Registry() as registry:
        threading.Thread(target=registry.serve_forever, daemon=True).start()
        registry.answers["7"] = 200, {"schema": json.dumps(WRITER)}
        source = {
            "format": "avro",
            "framing": "registry",
            "schema_file": str(tmp_path / "sale.avsc"),
            "registry": registry.url,
        }
        try:
            with run_pipeline(spec(**source)) as pipeline:
                assert_the_pipeline_gives_what_sql_gives(
                    *(pipeline, good, bad),
                    {
                        *(Reason.TOMBSTONE, Reason.OVERSIZED),
                        *(Reason.INVALID_AVRO, Reason.UNKNOWN_SCHEMA),
                    },
                )
        finally:
            registry.shutdown()


# --- Protobuf, plain

PROTO = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
message Sale {
  Order order = 1;
  string amount = 2;
  optional float weight = 3;
  optional string day = 4;
  google.protobuf.Timestamp at = 5;
  bytes raw = 6;
  repeated Tag tags = 7;
}
message Order { int64 product = 1; string note = 2; }
message Tag { string name = 1; Kind kind = 2; enum Kind { NONE = 0; RED = 1; } }
"""


@pytest.fixture
def sale(tmp_path):
    (tmp_path / "sale.proto").write_text(PROTO)
    out = tmp_path / "sale.desc"
    flags = ["--include_imports", f"--descriptor_set_out={out}"]
    assert not protoc.main(["", f"-I{tmp_path}", f"-I{INCLUDES}", *flags, "sale.proto"])
    return out, GetMessageClass(message_of(out.read_bytes(), "shop.Sale"))


INCLUDES = protoc.__file__.replace("protoc.py", "_proto")


def protobuf_sale(message, key, number):
    made = message(amount=f"{number}.50", raw=bytes(range(number)))
    made.order.product = key
    made.order.note = "größe \n" * (number % 2)
    if number % 2:
        made.weight, made.day = 0.1 * number, "2024-02-29"
        made.at.seconds, made.at.nanos = 1_700_000_000, number * 1_000
    for nth in range(number % 3):
        made.tags.add(name="😀", kind=nth)
    return made.SerializeToString()


def test_protobuf_events_are_joined_as_sql_joins_them(run_pipeline, database, sale):
    shop.INT.fill(database)
    file, message = sale
    good = [protobuf_sale(message, key, number) for key in KEYS for number in range(5)]
    good += [first + last for first, last in pairwise(good)]
    whole = protobuf_sale(message, 1, 1)
    bad = [
        *(None, whole[:-1], whole + b"\0", b"{}", bytes(3_000), b""),
        whole.replace("größe".encode(), b"gr\xff\xff\xff\xffe"),
        message(amount="1").SerializeToString(),
    ]
    source = {"format": "protobuf", "schema_file": str(file), "message": "shop.Sale"}
    with run_pipeline(spec(**source)) as pipeline:
        assert_the_pipeline_gives_what_sql_gives(
            *(pipeline, good, bad),
            {
                *(Reason.TOMBSTONE, Reason.OVERSIZED, Reason.INVALID_PROTOBUF),
                *(Reason.MISSING_KEY, Reason.WRONG_TYPE),
            },
        )
