"""Schemas by id: from a folder, and over HTTP from a server that answers as a registry does."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from dovetail.errors import ConfigError, Unavailable
from dovetail.stream.events.avro.schema import parse
from dovetail.stream.events.avro.transcoder import AvroTranscoder
from dovetail.stream.events.reasons import Reason
from dovetail.stream.events.registry import SchemaFiles, SchemaRegistry, schemas_at
from dovetail.stream.events.transcode import Binary

NOT_FOUND = {"error_code": 40403, "message": "Schema 9 not found"}


def record(*fields):
    return {"type": "record", "name": "sale", "fields": list(fields)}


def field(name, kind, **more):
    return {"name": name, "type": kind, **more}


class Registry(ThreadingHTTPServer):
    """Serves `answers` (id: status and body) and counts what it is asked."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Answers)
        self.answers = {}
        self.asked = []

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Answers(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.asked.append(self.path)
        number = self.path.removeprefix("/schemas/ids/")
        status, body = self.server.answers.get(number, (404, NOT_FOUND))
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *_): ...


@pytest.fixture
def registry():
    with Registry() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def test_a_registry_gives_the_schema_of_an_id(registry):
    registry.answers["7"] = 200, {"schema": '"int"'}
    assert SchemaRegistry(registry.url + "/").schema(7) == '"int"'
    assert registry.asked == ["/schemas/ids/7"]


def test_an_id_that_a_registry_does_not_know_is_none(registry):
    assert SchemaRegistry(registry.url).schema(9) is None


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (404, b"<html>Not Found</html>"),
        (404, {"error_code": 404, "message": "HTTP 404 Not Found"}),
        (500, {"error_code": 50001, "message": "Error in the backend data store"}),
        (401, {"error_code": 401, "message": "Unauthorized"}),
        (200, b"hello"),
        (200, {"id": 7}),
    ],
)
def test_whatever_else_it_answers_is_no_verdict_on_the_event(registry, status, body):
    registry.answers["7"] = status, body
    with pytest.raises(Unavailable, match="registry"):
        SchemaRegistry(registry.url).schema(7)


def test_a_registry_that_is_not_there_is_unavailable(registry):
    registry.shutdown()
    registry.server_close()
    with pytest.raises(Unavailable, match="cannot be reached"):
        SchemaRegistry(registry.url).schema(7)


def test_a_schema_that_is_not_avro_or_refers_to_others_is_refused(registry):
    registry.answers["1"] = 200, {"schema": "message A {}", "schemaType": "PROTOBUF"}
    registry.answers["2"] = 200, {"schema": '"int"', "references": [{"name": "a"}]}
    for number in (1, 2):
        with pytest.raises(ConfigError):
            SchemaRegistry(registry.url).schema(number)


def test_a_folder_gives_the_schema_of_an_id(tmp_path):
    (tmp_path / "7.avsc").write_text('"int"')
    assert isinstance(schemas_at(str(tmp_path)), SchemaFiles)
    assert schemas_at(str(tmp_path)).schema(7) == '"int"'
    assert schemas_at(str(tmp_path)).schema(8) is None
    assert isinstance(schemas_at("https://registry:8081"), SchemaRegistry)


# --- framed events


def transcoded(transcoder, *events):
    bounds = np.cumsum([0, *map(len, events)], dtype=np.int64)
    data = np.frombuffer(b"".join(events) + bytes(8), np.uint8).copy()
    made = transcoder.transcode(Binary(data, bounds, np.ones(len(events), np.bool_)))
    return [
        (Reason(int(made.reasons[row])), made.details[row])
        if made.reasons[row]
        else made.data[made.bounds[row] : made.bounds[row + 1]].tobytes().decode()
        for row in range(len(events))
    ]


def framed(number, datum):
    return b"\0" + number.to_bytes(4, "big") + datum


def test_each_writer_s_schema_is_asked_for_once_and_read_as_the_pipeline_s(registry):
    old, new = record(field("id", "int")), record(field("note", "string"), field("id", "long"))
    registry.answers["1"] = 200, {"schema": json.dumps(old)}
    registry.answers["300"] = 200, {"schema": json.dumps(new), "schemaType": "AVRO"}
    reader = record(field("id", "long"), field("note", "string", default="none"))
    transcoder = AvroTranscoder(parse(json.dumps(reader)), 1000, SchemaRegistry(registry.url))
    events = framed(1, b"\x0a"), framed(300, b"\x04hi\x0a"), framed(1, b"\x0c")
    expected = ['{"id":5,"note":"none"}', '{"note":"hi","id":5}', '{"id":6,"note":"none"}']
    assert transcoded(transcoder, *events) == expected
    assert transcoded(transcoder, *events) == expected
    assert sorted(registry.asked) == ["/schemas/ids/1", "/schemas/ids/300"]


def test_events_of_unknown_or_unreadable_schemas_are_dead_letters(registry):
    registry.answers["1"] = 200, {"schema": json.dumps(record(field("id", "string")))}
    transcoder = AvroTranscoder(
        parse(json.dumps(record(field("id", "long")))), 1000, SchemaRegistry(registry.url)
    )
    found = transcoded(
        transcoder, framed(1, b"\x02a"), framed(9, b"\x02"), b"\x01\0\0\0\x01\x02", b""
    )
    assert found == [
        (
            Reason.UNKNOWN_SCHEMA,
            "schema 1 cannot be read as the pipeline's: sale.id: string cannot be read as long",
        ),
        (Reason.UNKNOWN_SCHEMA, "there is no schema with the id 9"),
        *[(Reason.INVALID_AVRO, "it has no header of a schema registry: 0x00 and 4 bytes")] * 2,
    ]


def test_an_id_that_is_registered_later_is_found_then(registry):
    schema = record(field("id", "long"))
    transcoder = AvroTranscoder(parse(json.dumps(schema)), 1000, SchemaRegistry(registry.url))
    assert transcoded(transcoder, framed(1, b"\x02"))[0][0] is Reason.UNKNOWN_SCHEMA
    registry.answers["1"] = 200, {"schema": json.dumps(schema)}
    assert transcoded(transcoder, framed(1, b"\x02")) == ['{"id":1}']
