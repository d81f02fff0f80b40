"""What is fuzzed: everything that takes bytes from outside a process.

A target takes any bytes and says in a few words what became of them. Inputs whose words are new
are kept, as coverage would have it: most of what is fuzzed is compiled. It raises what must not be.
"""

from __future__ import annotations

import json
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.text_format import Parse

from dovetail.contracts.control_pb2 import Command, Heartbeat
from dovetail.contracts.migration_pb2 import Migration
from dovetail.contracts.progress_pb2 import Progress
from dovetail.contracts.request_pb2 import Request
from dovetail.errors import ConfigError
from dovetail.join.columns import Column
from dovetail.join.entry import Entries
from dovetail.node.answers import takes_anything
from dovetail.node.intake import schema_of
from dovetail.pipeline.load import parse_pipeline
from dovetail.service.metrics import Latency
from dovetail.service.orders import Ordered
from dovetail.settings import Settings
from dovetail.stream.batch import EventBatch
from dovetail.stream.envelope import ForeignError
from dovetail.stream.events.formats import decoder_of
from dovetail.stream.events.splitting import NotEventsError, TooManyError, split
from dovetail.stream.ledger import Ledger
from dovetail.stream.migration_codec import decode
from dovetail.stream.progress import read_progress
from dovetail.testing.fakes import RecordingProducer, event_batch, records_with
from dovetail.topology import Topology
from dovetail.verify.judge import Judge
from services.cache_phase.handler import CacheHandler
from services.control.monitor import Monitor
from services.ingest.markers import answered_at
from services.mapper.handler import MapperHandler
from services.warm import MemoryMigrations
from tests.property.avro_reference import encode

if TYPE_CHECKING:
    from collections.abc import Callable

    from dovetail.pipeline.spec import Pipeline

FIELDS = 'id: int, name: "text?", price: "decimal?", at: "timestamp?", more.deep: "json?"'
SALES = f"""
name: sales
source: {{partitions: 1, max_event_bytes: 20000, fields: {{{FIELDS}}}}}
key: id
master: {{table: products, columns: [vendor]}}
slots: 4
memory: 16MiB
"""
EVENT = (
    b'{"id":7,"name":"gr\\u00fcn","price":"1.50","at":"2026-01-31T09:00:00Z","more":{"deep":[1]}}'
)
AVRO = {
    "type": "record",
    "name": "Sale",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"]},
        {"name": "tags", "type": {"type": "map", "values": {"type": "array", "items": "double"}}},
    ],
}
# No map: of an entry with an unknown field Google's library, by which is judged, drops what it is.
PROTOBUF = """
name: "sale.proto" package: "shop" syntax: "proto3"
message_type {
  name: "Sale"
  field { name: "id" number: 1 type: TYPE_INT64 label: LABEL_OPTIONAL }
  field { name: "name" number: 2 type: TYPE_STRING label: LABEL_OPTIONAL }
  field { name: "tags" number: 3 type: TYPE_DOUBLE label: LABEL_REPEATED }
  field { name: "more" number: 4 type: TYPE_MESSAGE type_name: ".shop.More" label: LABEL_REPEATED }
}
message_type {
  name: "More"
  field { name: "deep" number: 1 type: TYPE_SINT32 label: LABEL_OPTIONAL }
  field { name: "more" number: 2 type: TYPE_MESSAGE type_name: ".shop.More" label: LABEL_OPTIONAL }
}
"""


@cache
def _pipeline(text: str = SALES) -> Pipeline:
    return parse_pipeline(text.encode(), "pipeline.yaml", {})


def _with_schema(schema: bytes, settings: str, fields: str) -> Pipeline:
    folder = Path(tempfile.mkdtemp(prefix="dovetail-fuzz-"))
    (folder / "schema").write_bytes(schema)
    text = SALES.replace("partitions: 1,", f"partitions: 1, schema_file: schema, {settings},")
    return parse_pipeline(text.replace(FIELDS, fields).encode(), folder / "pipeline.yaml", {})


@cache
def _avro() -> Pipeline:
    return _with_schema(
        json.dumps(AVRO).encode(), "format: avro", 'id: int, name: "text?", tags: "json?"'
    )


@cache
def _protobuf() -> Pipeline:
    schema = FileDescriptorSet(file=[Parse(PROTOBUF, FileDescriptorProto())])
    return _with_schema(
        schema.SerializeToString(),
        "format: protobuf, message: shop.Sale",
        'id: int, name: "text?", tags: "json?", more: "json?"',
    )


@cache
def _decoders(pipeline_of: Callable[[], Pipeline]) -> tuple[object, Judge]:
    pipeline = pipeline_of()
    return decoder_of(pipeline.source, schema_of(pipeline)), Judge(pipeline)


def _event(pipeline_of: Callable[[], Pipeline], value: bytes) -> str:
    """The kernels say of an event what the judge says, who shares nothing with them."""
    decoder, judge = _decoders(pipeline_of)
    bounds = np.array([0, len(value)], np.int64)
    data = np.frombuffer(bytearray(value) or bytearray(1), np.uint8)
    decoded = decoder.decode(data, bounds, np.zeros(1, np.bool_))  # type: ignore[attr-defined]
    text = judge.text_of(value)
    good = text is not None and judge.key_of(text) is not None
    assert bool(decoded.valid[0]) == good, (bool(decoded.valid[0]), good)
    if good:
        (key,) = decoded.join_keys(np.zeros(1, np.int64)).values.tolist()
        assert (key,) == judge.key_of(text)
        return "good"
    assert decoded.details[0]
    return f"reason {decoded.reasons[0]} {decoded.details[0].split(':')[0][:30]}"


def event_json(value: bytes) -> str:
    return _event(_pipeline, value)


def event_avro(value: bytes) -> str:
    return _event(_avro, value)


def event_protobuf(value: bytes) -> str:
    return _event(_protobuf, value)


def events_by_http(value: bytes) -> str:
    """What is split out of a body stands in it, in its order."""
    told = ""
    for lines in (True, False):
        try:
            events = split(bytearray(value), lines=lines, most=100)
        except (NotEventsError, TooManyError) as error:
            told += f" {type(error).__name__} {str(error)[:25]}"
        else:
            at = 0
            for event in events:
                at = value.index(event, at) + len(event)
            told += f" {min(len(events), 3)} events"
    return told


def pipeline_file(value: bytes) -> str:
    """A document is a pipeline, or wrong with a reason."""
    try:
        parse_pipeline(value, "pipeline.yaml", {})
    except ConfigError as error:
        return " ".join(word for word in str(error).split() if word.isalpha())[:60]
    return "a pipeline"


def batch(value: bytes) -> str:
    """A message is refused, or can be worked with by whoever reads it."""
    pipeline = _pipeline()
    topology = Topology(pipeline)
    told = []
    cache = CacheHandler(topology, MemoryMigrations(), 1 << 20, Latency(), takes_anything)
    for handler, partition in ((MapperHandler(pipeline, topology), 0), (cache, 3)):
        producer = RecordingProducer()
        handler.handle(records_with([(partition, value)]), producer, Ledger())
        told.append("refused" if producer.sent.get("sales.foreign") else "taken")
    try:
        head, opened = EventBatch.opened(value)
    except ForeignError as error:
        return f"{told} {str(error)[:60]}"
    again = EventBatch.from_message(opened.to_message(head.pipeline, head.slot))
    assert list(again.events) == list(opened.events)
    return f"{told} {len(opened)}"


def migration(value: bytes) -> str:
    """An entry that is taken is whole: its key and rows can be read."""
    try:
        entries = Entries.received(decode(Column.of([value])).entries)
    except ValueError as error:
        return str(error)[:40]
    assert len(entries.keys()) == 1
    return f"rows {min(int(entries.rows_each()[0]), 3)}"


def control(value: bytes) -> str:
    """Whatever stands on dovetail.control, dovetail.stats, progress or requests stops nobody."""
    ordered = Ordered("sales", "mapper")
    heard = ordered.hear(value)
    monitor = Monitor(Settings("127.0.0.1:9", "postgresql://", Path("none")), Topology(_pipeline()))
    monitor._hear(value)
    json.dumps(monitor.stats(), allow_nan=False)
    progress = read_progress(value, 3)
    return (
        f"{heard} {len(monitor.members())} {progress is not None} {answered_at(value) is not None}"
    )


TARGETS: dict[str, Callable[[bytes], str]] = {
    target.__name__: target
    for target in (
        *(event_json, event_avro, event_protobuf, events_by_http, pipeline_file),
        *(batch, migration, control),
    )
}


def seeds(name: str) -> list[bytes]:
    """What a target's inputs are made from: at least one that it takes."""
    two = event_batch([(7, EVENT), (8, b'{"id":8}')])
    entry = Entries.without_rows().data.tobytes()
    return {
        "event_json": [
            EVENT,
            b'{"id":7}',
            b" {}",
            b'{"id":null}',
            b'{"id":1,"more":{"deep":{"a":1}}}',
        ],
        "event_avro": [
            encode(AVRO, {"id": 7, "name": (1, "x"), "tags": [("a", [1.5])]}, {}),
            encode(AVRO, {"id": -1, "name": (0, None), "tags": []}, {}),
        ],
        "event_protobuf": [
            b"\x08\x07\x12\x01x\x1a\x08" + bytes(8) + b"\x22\x04\x08\x01\x12\x00",
            b"\x08" + b"\xff" * 9 + b"\x01",
        ],
        "events_by_http": [EVENT + b"\n" + EVENT, b"[" + EVENT + b"," + EVENT + b"]", b"[]", b"{}"],
        "pipeline_file": [SALES.encode(), Path("pipeline.yaml").read_bytes()],
        "batch": [two.to_message("sales", 3), two.to_message("sales"), two.to_message("other", 3)],
        "migration": [Migration(entry=entry, read_at_ms=5, events=3, cycle=1).SerializeToString()],
        "control": [
            Command(pipeline="sales", action=Command.ACTION_PAUSE, number=3).SerializeToString(),
            Heartbeat(
                pipeline="sales", service="mapper", state=2, figures={"lag": 1.0}
            ).SerializeToString(),
            Progress(slot=3, number=4).SerializeToString(),
            Request(digest=b"x", accepted=3, at_ms=5).SerializeToString(),
        ],
    }[name]


WORDS: dict[str, list[bytes]] = {
    "event_json": [
        *b'{ } [ ] " : , \\u00 \\ud83d -0 1e999 null true "id": "more":{ "id":7 \xff'.split()
    ],
    "event_avro": [b"\x00", b"\x02", b"\x80" * 9, b"\xff" * 10, b"\x01", b"\xc3\x28"],
    "event_protobuf": [
        *(b"\x08", b"\x12", b"\x1a", b"\x19", b"\x22", b"\x23", b"\x24", b"\x2a\x00"),
        *(b"\xff" * 10, b"\x80\x00", b"\xc3\x28", bytes(7) + b"\x7f"),
    ],
    "events_by_http": [b"\n", b"\r\n", b"[", b"]", b",", b"{}", b'"', b"\\", EVENT],
    "pipeline_file": [
        *(
            b"\n",
            b": ",
            b"- ",
            b"&a ",
            b"*a",
            b"!!python/object:os.system",
            b"\t",
            b"then:",
            b"{",
            b"}",
        ),
        *(b"memory: 1", b"order: source", b"${HOME}", b"\xef\xbb\xbf", b"<<: *a", b"1e400"),
    ],
    "batch": [b"\xff\xff\xff\xff", b"ARROW1", bytes(8), b"\x7a", b"{}", b"\x80" * 12],
    "migration": [b"\x0a", b"\x10", bytes(8), b"\xff\xff\xff\x7f", b"\x80" * 11],
    "control": [
        b"\x0a\x05sales",
        b"\x12\x06mapper",
        b"\x00\x00\x00\x00\x00\x00\xf8\x7f",
        b"\x20\x63",
    ],
}
