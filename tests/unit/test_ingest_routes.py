"""What `POST /v1/events` refuses, before a broker has anything to do with it."""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from dovetail.pipeline.spec import Pipeline
from dovetail.service.metrics import Metrics
from dovetail.service.stage import Context
from dovetail.settings import Settings
from dovetail.topology import INGEST, Topology
from services.access.gate import Gate, Rules
from services.access.roles import Role, Who
from services.ingest import settings
from services.ingest.inbox import Inbox, Receipt
from services.ingest.routes import EventsByHttp

LINES = {"content-type": "application/x-ndjson"}
JSON = {"content-type": "application/json"}


class Senders:
    """Tokens are called by their numbers."""

    def known(self, token):
        return Who(f"till-{token}", Role.SEND, int(token))


def client_of(**source):
    pipeline = Pipeline.model_validate(
        {
            "name": "sales",
            "source": {"fields": {"id": "int"}, **source},
            "key": "id",
            "master": {"table": "goods", "key": "id"},
            "join": "semi",
        }
    )
    # Nobody listens there, and the inbox is not started: it takes nothing.
    nowhere = Settings("127.0.0.1:1", "postgresql://nowhere/none", "pipeline.yaml")
    annex = EventsByHttp(Context(nowhere, pipeline, Topology(pipeline), Metrics(INGEST)))
    app, routes = FastAPI(), annex.routes()
    app.include_router(routes)
    rules = Rules(routes.routes, local=True, rate=1e6, most_body_bytes=None)
    app.add_middleware(Gate, known=Senders(), rules=rules)
    return TestClient(app, "http://127.0.0.1")


@pytest.fixture(scope="module")
def client():
    return client_of()


def refused(client, body, headers, status):
    """The problem in the answer, which has to be of its form."""
    answer = client.post("/v1/events", content=body, headers=headers)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["status"] == status
    assert problem["title"]
    return problem


def test_what_is_fit_to_be_sent_is_only_held_up_by_the_broker(client):
    for body, headers in [
        (b'{"id":1}', JSON),
        (
            b'[{"id":1},{"id":"breaks the schema"}]',
            {"content-type": "application/json;charset=UTF-8"},
        ),
        (b'{"id":1}\n\n{"other":2}\n', LINES),
        (gzip.compress(b'{"id":1}\n'), {**LINES, "content-encoding": "gzip"}),
        (gzip.compress(b'{"id"') + gzip.compress(b":1}"), {**JSON, "content-encoding": "gzip"}),
        (b'{"id":1}', {**JSON, "idempotency-key": "~" * 200}),
    ]:
        problem = refused(client, body, headers, 503)
        assert "broker" in problem["detail"]
        assert "send it again" in problem["detail"]


def test_a_503_says_when_to_come_again(client):
    answer = client.post("/v1/events", content=b'{"id":1}', headers=JSON)
    assert int(answer.headers["retry-after"]) > 0


def test_what_is_not_json_is_told_with_its_place(client):
    problem = refused(client, b'{"id":1}\n{"id":}\n', LINES, 400)
    assert problem["line"] == 2
    assert problem["detail"] == "line 2 is not a JSON object: '}' is wrong at byte 6"
    assert refused(client, b'[{"id":1},2]', JSON, 400)["event"] == 2
    assert "no event" in refused(client, b"", JSON, 400)["detail"]


@pytest.mark.parametrize(
    "headers",
    [
        *(
            {},
            {"content-type": "text/plain"},
            {"content-type": "application/json; charset=latin-1"},
        ),
        *(
            {**JSON, "content-encoding": "br"},
            {"content-type": "application/x-www-form-urlencoded"},
        ),
    ],
)
def test_other_types_and_encodings_are_refused_with_what_to_send(client, headers):
    detail = refused(client, b'{"id":1}', headers, 415)["detail"]
    assert "gzip" in detail or "application/x-ndjson" in detail


def test_a_body_too_large_is_refused(client):
    detail = refused(client, b" " * (settings.MOST_BODY_BYTES + 1), LINES, 413)["detail"]
    assert str(settings.MOST_BODY_BYTES) in detail


def test_a_gzip_bomb_is_not_inflated(client):
    bomb = gzip.compress(b" " * (50 * settings.MOST_BODY_BYTES))
    assert len(bomb) < settings.MOST_BODY_BYTES
    refused(client, bomb, {**LINES, "content-encoding": "gzip"}, 413)


class Counting:
    """A decompressor that says how much it was given, and how often one was made."""

    def __init__(self):
        self.made = self.given = 0
        self._real = zlib.decompressobj

    def __call__(self, bits):
        self.made += 1
        inner = self._real(bits)
        counting = self

        class One:
            def decompress(self, piece, room):
                counting.given += len(piece)
                return inner.decompress(piece, room)

            def __getattr__(self, name):
                return getattr(inner, name)

        return One()


EMPTY = gzip.compress(b"")


def test_many_tiny_gzip_files_cost_no_more_than_one(client, monkeypatch):
    counting = Counting()
    monkeypatch.setattr("services.ingest.body.zlib.decompressobj", counting)
    many = EMPTY * (settings.MOST_BODY_BYTES // len(EMPTY))
    detail = refused(client, many, {**LINES, "content-encoding": "gzip"}, 413)["detail"]
    assert "compress it as one" in detail
    assert counting.made <= settings.MOST_GZIP_FILES
    # What follows a file is handed over anew: never more than a piece of the body.
    assert counting.given < settings.MOST_BODY_BYTES


def test_as_many_gzip_files_as_are_allowed_are_taken(client):
    body = EMPTY * (settings.MOST_GZIP_FILES - 1) + gzip.compress(b'{"id":1}')
    refused(client, body, {**LINES, "content-encoding": "gzip"}, 503)
    refused(client, EMPTY + body, {**LINES, "content-encoding": "gzip"}, 413)


@pytest.mark.parametrize("body", [b"{}", b"", gzip.compress(b'{"id":1}')[:-1], b"\x1f\x8b\x08"])
def test_what_is_not_gzip_is_told(client, body):
    assert "gzip" in refused(client, body, {**JSON, "content-encoding": "gzip"}, 400)["detail"]


def test_too_many_events_are_refused(client):
    detail = refused(client, b"{}\n" * (settings.MOST_EVENTS + 1), LINES, 413)["detail"]
    assert str(settings.MOST_EVENTS) in detail


def test_an_event_too_large_for_a_message_is_refused(client):
    large = json.dumps({"id": "x" * settings.MOST_EVENT_BYTES}).encode()
    assert refused(client, b'{"id":1}\n' + large, LINES, 413)["event"] == 2


@pytest.mark.parametrize("key", ["", "x" * 201, "tab\there", b"gr\xfc\xdfe"])
def test_a_key_that_is_none_is_refused(client, key):
    detail = refused(client, b'{"id":1}', {**JSON, "idempotency-key": key}, 400)["detail"]
    assert "Idempotency-Key" in detail


def test_a_key_is_its_sender_s_own(client, monkeypatch):
    deliveries = []

    def deliver(_inbox, delivery):
        deliveries.append(delivery)
        delivery.receipt.set_result(Receipt(1, [0], repeated=False))

    monkeypatch.setattr(Inbox, "deliver", deliver)
    for token in ("4", "5", None, "4"):
        shown = {} if token is None else {"authorization": f"Bearer {token}"}
        headers = {**JSON, **shown, "idempotency-key": "0001"}
        assert client.post("/v1/events", content=b'{"id":1}', headers=headers).is_success
    first, another, local, again = (delivery.key for delivery in deliveries)
    assert first == again
    assert len({first, another, local}) == 3


def test_more_at_a_time_than_there_is_room_for_is_refused(monkeypatch):
    monkeypatch.setattr(settings, "MOST_REQUESTS", 0)
    refused(client_of(), b'{"id":1}', JSON, 429)
    monkeypatch.undo()
    monkeypatch.setattr(settings, "MOST_HELD_BYTES", 10)
    client = client_of()
    for _ in range(3):  # what a refused one held is free again
        refused(client, b"x" * 20, JSON, 429)
        refused(client, b"x" * 10, JSON, 400)
    answer = client.post("/v1/events", content=b"x" * 20, headers=JSON)
    assert answer.headers["retry-after"] == "1"


def test_a_body_that_does_not_arrive_is_given_up(monkeypatch, client):
    monkeypatch.setattr(settings, "BODY_WITHIN_S", 0.01)
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "POST",
        "path": "/v1/events",
        "query_string": b"",
        "headers": [(b"content-type", b"application/json"), (b"host", b"127.0.0.1")],
    }
    sent = []

    async def receive():
        if not sent:
            await asyncio.Event().wait()

    async def send(message):
        sent.append(message)

    asyncio.run(client.app(scope, receive, send))
    assert sent[0]["status"] == 408


def test_a_pipeline_of_another_format_takes_none(monkeypatch):
    client = client_of(format="avro", schema_file="sale.avsc")
    detail = refused(client, b'{"id":1}', JSON, 409)["detail"]
    assert "avro" in detail
    assert "Kafka topic sales" in detail
