"""Events by HTTP through the running services: joined as SQL joins them, and each once."""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from contextlib import contextmanager
from http.client import RemoteDisconnected
from pathlib import Path

import pytest
from confluent_kafka import Producer

from deploy.local.home import CHECKOUT
from deploy.local.services import is_ready
from dovetail.demo.catalogue import load_catalogue
from dovetail.pipeline.spec import Engine
from tests.e2e import shop
from tests.e2e.conftest import ENGINE
from tests.e2e.test_kill import SALES

LINES, JSON = "application/x-ndjson", "application/json"
BLOCK = re.compile(r"```(?:sh|json)\n(.*?)```", re.DOTALL)
EXAMPLE, ANSWER = BLOCK.findall((CHECKOUT / "docs" / "http.md").read_text())
SHORT_EXAMPLE = next(
    found for found in BLOCK.findall((CHECKOUT / "README.md").read_text()) if "/v1/events" in found
)
PATIENCE_S = 60 if ENGINE is Engine.SERVICES else 300


def post(url, body, kind=LINES, key=None, **headers):
    """Give the answer's status, content and headers."""
    headers = {"Content-Type": kind, **headers, **({"Idempotency-Key": key} if key else {})}
    request = urllib.request.Request(f"{url}/v1/events", body, headers)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return answer.status, json.load(answer), answer.headers
    except urllib.error.HTTPError as error:
        return error.code, json.load(error), error.headers


def array(events):
    return b"[" + b",".join(events) + b"]"


def sales(first, count):
    """Sales as lines; of every tenth product there is no master row."""
    return b"".join(
        b'{"sale_id":%d,"product_id":%d,"quantity":1,"amount":9.5,"channel":"web",'
        b'"sold_at":"2026-01-31T09:00:00Z"}\n' % (number, number % 1100 + 1)
        for number in range(first, first + count)
    )


def transactions_of_a_user(pipeline, events):
    """Some committed, and, last of all on every partition, some aborted."""
    topic = pipeline.topology.source
    producer = Producer(pipeline.settings.client({"transactional.id": f"{topic.name}-user"}))
    producer.init_transactions()
    for commits in (True, False):
        producer.begin_transaction()
        for number, event in enumerate(events):
            producer.produce(topic.name, event, partition=number % topic.partitions)
        producer.flush()
        producer.commit_transaction() if commits else producer.abort_transaction()


@pytest.mark.timeout(600)
def test_events_by_http_are_joined_as_sql_joins_them(run_pipeline, database):
    shop.INT.fill(database)
    good = shop.INT.good_events()
    bad = [event for event in shop.INT.bad_events() if event and event.lstrip()[:1] == b"{"]
    bad = [event for event in bad if is_json(event)]
    with run_pipeline(shop.INT.spec("inner")) as pipeline:
        url = pipeline.url(pipeline.process_of("ingest"))
        status, answer, _ = post(url, array(good), JSON)
        assert (status, answer["accepted"]) == (202, len(good))
        assert answer["topic"] == pipeline.topology.source.name
        status, answer, _ = post(
            url, gzip.compress(array(bad)), JSON, **{"Content-Encoding": "gzip"}
        )
        assert (status, answer["accepted"]) == (202, len(bad))
        status, answer, _ = post(url, good[0], JSON)
        assert (status, answer["accepted"]) == (202, 1)

        # What is refused leaves nothing behind.
        status, problem, headers = post(url, good[0] + b"\n" + good[0] + b"\n{]\n")
        assert (status, problem["line"]) == (400, 3)
        assert headers["Content-Type"] == "application/problem+json"
        assert post(url, b"x" * (9 << 20))[0] == 413
        assert post(url, good[0], "text/csv")[0] == 415
        first = post(url, good[1], JSON, key="till-1")
        again = post(url, good[1], JSON, key="till-1")
        assert (first[0], first[1]) == (again[0], again[1])
        assert "Idempotent-Replayed" not in first[2]
        assert again[2]["Idempotent-Replayed"] == "true"
        assert post(url, good[2], JSON, key="till-1")[0] == 422

        transactions_of_a_user(pipeline, good[:10])
        final = pipeline.drain()
        assert final.waiting == 0
        assert not final.problems
        assert final.taken == len(good) + len(bad) + 1 + 1 + 10
        verdict = pipeline.verdict()
        assert verdict.differences == []
        assert verdict.events == final.taken
        assert verdict.dead_letters == len(bad)
        with urllib.request.urlopen(f"{url}/metrics", timeout=PATIENCE_S) as metrics:
            shown = metrics.read().decode()
        assert f"dovetail_http_events_total {len(good) + len(bad) + 2}.0" in shown
        assert 'dovetail_http_requests_total{status="202"} 5.0' in shown


def is_json(event):
    try:
        json.loads(event, parse_constant=lambda _: 1 / 0)
    except (ValueError, ZeroDivisionError):
        return False
    return b"\\ud800" not in event


def run_example(example, url, folder):
    assert "http://127.0.0.1:18081" in example
    script = example.replace("http://127.0.0.1:18081", url)
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, check=True, cwd=folder
    )
    return json.loads(done.stdout)


@contextmanager
def doomed(pipeline, moment):
    """Ingest in the place of the pipeline's own, which is killed, until it kills itself."""
    pipeline.kill(pipeline.process_of("ingest"))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environment = {
        "KAFKA_BOOTSTRAP": pipeline.settings.bootstrap,
        "DATABASE_URL": pipeline.settings.database_url,
        "DOVETAIL_PIPELINE": str(pipeline.settings.pipeline),
        "DOVETAIL_PORT": str(port),
        "DOVETAIL_LOCAL": "1",
        "PYTHONPATH": str(CHECKOUT),
    }
    process = subprocess.Popen(
        [
            *(sys.executable, str(Path(__file__).with_name("doomed_ingest.py"))),
            *(moment, pipeline.process_of("ingest")),
        ],
        env={**os.environ, **environment},
        cwd=CHECKOUT,
    )
    try:
        url = f"http://127.0.0.1:{port}"
        deadline = time.monotonic() + PATIENCE_S
        while not is_ready(url):
            assert process.poll() is None
            assert time.monotonic() < deadline, "the doomed ingest is not ready"
            time.sleep(0.1)
        yield url
        assert process.wait(PATIENCE_S) == -signal.SIGKILL
    finally:
        process.kill()
        process.wait()


@pytest.mark.timeout(600)
def test_a_request_is_sent_once_whenever_ingest_is_killed(run_pipeline, database, tmp_path):
    load_catalogue(database, rows=1_000, report=lambda _: None)
    timed = {**SALES, "source": {**SALES["source"], "event_time": "sold_at"}}
    with run_pipeline({**timed, "nodes": 1}) as pipeline:
        ingest = pipeline.process_of("ingest")
        # The documentation's own examples, as they stand; and once more, as if unanswered.
        (tmp_path / "sales.ndjson").write_bytes(sales(5_000, 7))
        answers = [
            run_example(example, pipeline.url(ingest), tmp_path)
            for example in (EXAMPLE, EXAMPLE, SHORT_EXAMPLE)
        ]
        assert answers[0] == answers[1]
        assert answers[0].keys() == json.loads(ANSWER).keys()
        assert answers[0]["topic"] == pipeline.topology.source.name
        assert [answer["accepted"] for answer in answers] == [2, 2, 7]
        sent = 2 + 7

        for number, moment in enumerate(("sent", "committed")):
            body, key = sales(1_000 * number, 500), f"killed-{moment}"
            with doomed(pipeline, moment) as url, pytest.raises((RemoteDisconnected, OSError)):
                post(url, body, key=key)
            pipeline.wait_until_ready()
            statuses = Counter()
            for _ in range(3):
                status, answer, headers = post(pipeline.url(ingest), body, key=key)
                assert (status, answer["accepted"]) == (202, 500)
                statuses[headers["Idempotent-Replayed"]] += 1
            # What was committed is known; what was only sent is not there, and is sent now.
            assert statuses == ({"true": 3} if moment == "committed" else {None: 1, "true": 2})
            sent += 500

        # What the doomed one took in before its end, its successor has not: one more, for its lag.
        assert post(pipeline.url(ingest), sales(2_000, 500), key="after")[0] == 202
        sent += 500

        final = pipeline.drain()
        assert not final.problems
        assert final.taken == sent
        verdict = pipeline.verdict()
        assert verdict.differences == []
        assert verdict.events == sent
        assert verdict.unmatched > 0
        with urllib.request.urlopen(f"{pipeline.url(ingest)}/metrics", timeout=5) as metrics:
            lag = re.search(r"dovetail_event_time_lag_seconds_count (\d+)", metrics.read().decode())
        assert int(lag[1]) > 0
