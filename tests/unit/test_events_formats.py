"""Avro and Protobuf from the pipeline file to decoded batches, and what is refused on the way."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from grpc_tools import protoc

from dovetail.errors import ConfigError
from dovetail.node.intake import schema_of
from dovetail.pipeline.load import load_pipeline
from dovetail.stream.events.avro.compile import compile_avro
from dovetail.stream.events.avro.schema import parse
from dovetail.stream.events.formats import decoder_of
from dovetail.stream.events.program import Writer
from dovetail.stream.events.reasons import Reason
from dovetail.verify import Judge

SALE = {
    "type": "record",
    "name": "Sale",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {
            "name": "order",
            "type": {
                "type": "record",
                "name": "Order",
                "fields": [{"name": "sku", "type": "string"}, {"name": "n", "type": "int"}],
            },
        },
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        },
        {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
        {"name": "tags", "type": {"type": "map", "values": "double"}},
    ],
}
AVRO = """\
name: sales
source:
  format: avro
  schema_file: sale.avsc
  max_event_bytes: 200
  fields:
    id: int
    order.sku: text
    order.n: int
    price: decimal
    at: timestamp?
    tags: json
key: order.sku
master:
  table: items
  columns: [name]
"""
PROTO = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
message Sale {
  int64 id = 1;
  Order order = 2;
  string price = 3;
  google.protobuf.Timestamp at = 4;
  map<string, double> tags = 5;
}
message Order { string sku = 1; int32 n = 2; }
"""
PROTOBUF = AVRO.replace("format: avro", "format: protobuf\n  message: shop.Sale").replace(
    "sale.avsc", "sale.desc"
)
GOOD_AVRO = (
    b"\x0e" + b"\x06A-1" + b"\x04" + b"\x04\x03\xde" + b"\x02\x02" + b"\x02\x02a" + bytes(8) + b"\0"
)
AVRO_TEXT = (
    b'{"id":7,"order":{"sku":"A-1","n":2},"price":9.90,"at":"1970-01-01T00:00:00.001Z",'
    b'"tags":{"a":0.0}}'
)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "sale.avsc").write_text(json.dumps(SALE))
    (tmp_path / "sale.proto").write_text(PROTO)
    includes = Path(protoc.__file__).parent / "_proto"
    assert not protoc.main(
        [
            *("", f"-I{tmp_path}", f"-I{includes}", "--include_imports"),
            *(f"--descriptor_set_out={tmp_path / 'sale.desc'}", "sale.proto"),
        ]
    )
    return tmp_path


def load(folder, text):
    (folder / "pipeline.yaml").write_text(text)
    return load_pipeline(folder / "pipeline.yaml", {})


def told(folder, text):
    with pytest.raises(ConfigError) as caught:
        load(folder, text)
    return [line.removeprefix(f"{folder}/") for line in str(caught.value).splitlines()]


def decode(pipeline, *events):
    bounds = np.cumsum([0, *map(len, events)], dtype=np.int64)
    data = np.frombuffer(b"".join(events), np.uint8)
    decoder = decoder_of(pipeline.source, schema_of(pipeline))
    return decoder.decode(data, bounds, np.zeros(len(events), np.bool_))


def text_of(decoded, row=0):
    return decoded.data[decoded.start[row] : decoded.end[row]].tobytes()


def test_avro_events_are_decoded_by_the_schema_beside_the_pipeline(folder):
    pipeline = load(folder, AVRO)
    truncated, trailing, long = GOOD_AVRO[:-1], GOOD_AVRO + b"\0", GOOD_AVRO + bytes(200)
    not_text = GOOD_AVRO.replace(b"A-1", b"A\xff1")
    null_key = GOOD_AVRO.replace(b"A-1", b"A\0\x01")
    decoded = decode(pipeline, GOOD_AVRO, truncated, trailing, long, not_text, null_key)
    assert text_of(decoded) == AVRO_TEXT
    assert decoded.key_data[: decoded.key_bounds[1]].tobytes() == b"A-1"
    assert [Reason(int(reason)).label for reason in decoded.reasons] == [
        *("good", "invalid-avro", "invalid-avro", "oversized", "invalid-avro", "invalid-key"),
    ]
    assert decoded.valid.tolist() == [True] + [False] * 5
    assert decoded.details[1] == "not a datum of its schema: it breaks off at byte 22"
    assert decoded.details[4] == "not a datum of its schema: a string is not UTF-8 at byte 5"


def test_protobuf_events_are_decoded_by_the_message_of_a_descriptor_set(folder):
    pipeline = load(folder, PROTOBUF)
    order = b"\x12\x07\x0a\x03A-1\x10\x02"
    decoded = decode(pipeline, b"\x08\x07\x1a\x049.90" + order, order[:-1], b"\x1a\x011")
    assert text_of(decoded) == b'{"id":7,"order":{"sku":"A-1","n":2},"price":"9.90","tags":{}}'
    assert [Reason(int(reason)).label for reason in decoded.reasons] == [
        *("good", "invalid-protobuf", "missing-key"),
    ]


def test_an_event_whose_text_is_too_long_is_oversized(folder):
    event = GOOD_AVRO.replace(b"\x06A-1", bytes([2 * 50]) + b"\x01" * 50)
    assert len(event) < 200
    decoded = decode(load(folder, AVRO), event)
    assert decoded.reasons[0] == Reason.OVERSIZED


def test_the_judge_reads_avro_and_protobuf_too(folder):
    avro, protobuf = Judge(load(folder, AVRO)), Judge(load(folder, PROTOBUF))
    assert avro.text_of(GOOD_AVRO) == AVRO_TEXT
    assert avro.key_of(avro.text_of(GOOD_AVRO)) == ("A-1",)
    assert avro.text_of(GOOD_AVRO[:-1]) is None
    event = b"\x08\x07\x12\x07\x0a\x03A-1\x10\x02"
    text = protobuf.text_of(event)
    assert text == b'{"id":7,"order":{"sku":"A-1","n":2},"price":"","tags":{}}'
    assert protobuf.key_of(text) is None
    assert protobuf.text_of(event[:-1]) is None


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        (
            "    order.n: int\n",
            "",
            "pipeline.yaml:6: source.fields: sale.avsc has 'order.n' too; add order.n: int",
        ),
        (
            "    id: int\n",
            "    id: text\n",
            (
                "pipeline.yaml:7: source.fields: 'id' is text, but sale.avsc makes it int;"
                " write int or decimal or float or json"
            ),
        ),
        (
            "    tags: json\n",
            "    tags: json\n    tag: int\n",
            "pipeline.yaml:13: source.fields: 'tag' is not in sale.avsc; did you mean 'tags'?",
        ),
        (
            "sale.avsc",
            "sales.avsc",
            "pipeline.yaml:4: source.schema_file: sales.avsc: there is no such file in ",
        ),
        (
            "  schema_file: sale.avsc\n",
            "",
            "pipeline.yaml:2: source.schema_file: format: avro needs one; e.g. schema_file: ",
        ),
        (
            "format: avro",
            "format: json",
            (
                "pipeline.yaml:4: source.schema_file: format: json has none; remove it, or set"
                " source.format"
            ),
        ),
        (
            "format: avro",
            "format: avro\n  framing: registry",
            (
                "pipeline.yaml:2: source.registry: framing: registry needs one to look up schemas"
                " by their ids; e.g. registry: http://localhost:8081,"
                " or a folder with <id>.avsc files"
            ),
        ),
        (
            "format: avro",
            "format: avro\n  framing: registry\n  registry: ftp://x",
            (
                "pipeline.yaml:5: source.registry: 'ftp://x' is no registry's URL; write"
                " http://host:8081 or https://…"
            ),
        ),
        (
            "format: avro",
            "format: avro\n  framing: registry\n  registry: schemas",
            "pipeline.yaml:5: source.registry: there is no folder 'schemas'; create it there",
        ),
        (
            "format: avro",
            "format: avro\n  registry: http://x",
            (
                "pipeline.yaml:4: source.registry: only Avro events with framing: registry name"
                " schemas; remove it"
            ),
        ),
        (
            "format: avro",
            "format: protobuf",
            "pipeline.yaml:2: source.message: format: protobuf needs one; e.g. message: shop.Sale",
        ),
        (
            "    order.n: int\n",
            "    order.n: int\n    order: json\n",
            (
                "pipeline.yaml:8: source.fields: 'order.sku' makes 'order' an object, but 'order'"
                " is a field by itself; remove one of them"
            ),
        ),
        (
            "key: order.sku",
            "key: sku",
            "pipeline.yaml:13: key: 'sku' is not a field of the event; did you mean 'order.sku'?",
        ),
        (
            "    order.n: int\n",
            "    order.n: int\n    order.: int\n",
            (
                "pipeline.yaml:10: source.fields.order.: 'order.' is not a path: a dot stands"
                " between two names, as in order.id; a dot that belongs to a name is doubled, as in"
                " net..price"
            ),
        ),
        (
            "columns: [name]",
            "columns: [order]",
            (
                "pipeline.yaml:16: master.columns: 'order' is also a field of the event; rename it"
                " in the output, e.g. order: items_order"
            ),
        ),
    ],
)
def test_what_cannot_work_is_told_with_its_line_and_a_cure(folder, old, new, line):
    assert old in AVRO
    assert any(found.startswith(line) for found in told(folder, AVRO.replace(old, new)))


@pytest.mark.parametrize(
    ("raw", "line"),
    [
        (b"{", "sale.avsc: it is not JSON"),
        (b'"int"', "sale.avsc: it is int, but an event is a record"),
        (b'{"type":"record","name":"a","fields":[{"name":"x","type":"a"}]}', "contains itself"),
        (b'{"type":"record","name":"a","fields":[{"name":"x","type":"b"}]}', "'b' is not defined"),
        (b'{"type":"record","name":"a-b","fields":[]}', "cannot be a name in Avro"),
    ],
)
def test_a_schema_that_cannot_be_used_is_told(folder, raw, line):
    (folder / "sale.avsc").write_bytes(raw)
    (found,) = told(folder, AVRO)
    assert found.startswith("pipeline.yaml:4: source.schema_file: sale.avsc: ")
    assert line in found


def test_a_descriptor_set_that_cannot_be_used_is_told(folder):
    (found,) = told(folder, PROTOBUF.replace("shop.Sale", "shop.Sales"))
    assert found.endswith("sale.desc: it has no message 'shop.Sales'; did you mean 'shop.Sale'?")
    (folder / "sale.desc").write_bytes(b"\xff")
    (found,) = told(folder, PROTOBUF)
    assert "it is not a descriptor set; make one with protoc --include_imports" in found


def test_the_column_of_a_path_is_called_as_its_last_name(folder):
    assert load(folder, AVRO).master.key == ("sku",)


@pytest.mark.parametrize(
    ("writer", "reader", "message"),
    [
        ("string", "long", "string cannot be read as long"),
        ("double", "float", "double cannot be read as float"),
        (["null", "int"], "string", "null cannot be read as string"),
        ("int", ["null", "string"], r"int is none of \[null, string\]"),
    ],
)
def test_schemas_that_do_not_go_together_are_refused(writer, reader, message):
    def record(kind):
        fields = [{"name": "x", "type": kind}]
        return parse(json.dumps({"type": "record", "name": "a", "fields": fields}))

    with pytest.raises(ConfigError, match=message):
        compile_avro(record(writer), record(reader), Writer())


def test_a_reader_s_field_without_a_default_must_be_written():
    empty = parse('{"type":"record","name":"a","fields":[]}')
    reader = parse('{"type":"record","name":"a","fields":[{"name":"x","type":"int"}]}')
    with pytest.raises(ConfigError, match=r"a\.x is not in the writer's schema and has no default"):
        compile_avro(empty, reader, Writer())
