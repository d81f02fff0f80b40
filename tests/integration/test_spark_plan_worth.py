"""What a plan is worth: a cache that starts warm, and one that is ready before a known peak.

All events go through the whole pipeline on a real broker; the hits are those of its ledgers.
"""

from __future__ import annotations

import os
import time
import uuid

import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dovetail.demo.popularity import product_ids
from dovetail.demo.zipf import Zipf
from dovetail.plan.recency import hours_of_week
from dovetail.stream.topics import admin_of, ends
from dovetail.testing.threads import ThreadedPipeline
from services.cache_phase.handler import CacheHandler
from tests.integration.frequency_kit import Frequencies

pytestmark = [
    pytest.mark.skipif(not os.environ.get("DOVETAIL_SPARK"), reason="make test-spark runs it"),
    pytest.mark.timeout(900),
]

ROWS = 60_000
A_CHUNK = 20_000
HOUR_MS = 3_600_000
SPEC = {
    "source": {"partitions": 2, "fields": {"id": "int", "note": "text"}},
    "key": "id",
    "master": {"table": "goods", "columns": ["name", "price"], "refresh": "1h"},
    "slots": 2,
    "memory": "4MiB",
}
NOTE = "x" * 90


@pytest.fixture
def goods(database):
    with psycopg.connect(database) as connection:
        connection.execute("CREATE TABLE goods (id bigint PRIMARY KEY, name text, price float8)")
        connection.execute(
            "INSERT INTO goods SELECT i, 'a product with the number ' || i, i / 7.0"
            f" FROM generate_series(1, {ROWS}) i"
        )


@pytest.fixture
def start(bootstrap, database, goods, tmp_path):
    """Start a pipeline, whose cache is as its migrations topic has it."""

    def run(name):
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        return ThreadedPipeline(folder, bootstrap, database, {"name": name, **SPEC})

    return run


@pytest.fixture
def planner(spark, bootstrap, database, goods, tmp_path):
    def make(name):
        folder = tmp_path / f"{name}-plan"
        folder.mkdir()
        return Frequencies(spark, bootstrap, database, folder, {"name": name, **SPEC})

    return make


def new_name():
    return f"test-{uuid.uuid4().hex[:12]}"


def keys(hot_set, stream, count):
    """Keys by Zipf's law; which are the hot ones depends on the set."""
    return product_ids(Zipf(ROWS, 1.0).ranks(stream, 0, count), ROWS, hot_set)


def events(of):
    return [b'{"id":%d,"note":"%s"}' % (key, NOTE.encode()) for key in of.tolist()]


def write_archive(folder, name, of, times_ms):
    folder.mkdir(exist_ok=True)
    table = pa.table(
        {
            "value": pa.array(events(of), pa.binary()),
            "timestamp": pa.array(times_ms, pa.timestamp("ms", "UTC")),
        }
    )
    pq.write_table(table, folder / name)


def hit_rate(pipeline, of, piece=A_CHUNK):
    """The share of these events that the cache answers; it may learn from piece to piece."""
    before = pipeline._auditor.audit().hits
    for first in range(0, len(of), piece):
        pipeline.send(events(of[first : first + piece]))
        seen = pipeline.drain()
        assert seen.problems == []
    return (seen.hits - before) / len(of)


def wait_until_cached(pipeline, wanted):
    """Wait until the caches hold so many keys; pytest's limit ends a wait in vain."""
    caches = [loop._handler for loop in pipeline._loops if isinstance(loop._handler, CacheHandler)]
    while sum(cache.figures()["cache_keys"] for cache in caches) < wanted:
        assert pipeline._failures == []
        time.sleep(0.05)


def test_a_cache_that_starts_with_a_plan_is_warm_from_its_first_events(start, planner, tmp_path):
    name = new_name()
    with start(name) as pipeline:
        climb = [hit_rate(pipeline, keys(1, stream, A_CHUNK)) for stream in range(12)]
    steady = sum(climb[-3:]) / 3

    name = new_name()
    now_ms = time.time_ns() // 1_000_000
    history = keys(1, 1000, 300_000)
    times = now_ms - np.linspace(HOUR_MS, 0, len(history)).astype(np.int64)
    write_archive(tmp_path / "archive", "history.parquet", history, times)
    job = planner(name)
    figures = job.run("--archive", str(tmp_path / "archive"))
    (plan,) = job.tables.plans(1)
    with start(name) as pipeline:
        wait_until_cached(pipeline, figures["sent_keys"])
        first = hit_rate(pipeline, keys(1, 12, A_CHUNK))
        verdict = pipeline.verdict()

    late = next(n for n, rate in enumerate(climb) if rate >= 0.95 * steady)
    print(
        f"without a plan, hit rates of {A_CHUNK:,} events each: "
        + ", ".join(f"{rate:.1%}" for rate in climb)
        + f"; 95 % of the steady {steady:.1%} after {late * A_CHUNK:,} events; "
        f"with a plan: {first:.1%} of the first {A_CHUNK:,}, "
        f"{plan.facts['expected_hit_rate']:.1%} expected"
    )
    assert verdict.differences == []
    assert late > 0
    assert first >= 0.95 * steady
    assert plan.facts["expected_hit_rate"] == pytest.approx(first, abs=0.05)


def test_a_plan_by_hour_beats_the_adaptive_cache_when_the_hot_set_changes(start, planner, tmp_path):
    next_hour = time.time_ns() // 1_000_000 // HOUR_MS + 1
    hot_sets = [1, 2, 1, 2]
    """Of the coming hours, as they were in the weeks before."""
    streams = [keys(hot_set, 50 + number, A_CHUNK) for number, hot_set in enumerate(hot_sets)]
    with start(new_name()) as pipeline:
        alone = [hit_rate(pipeline, of, A_CHUNK // 4) for of in streams]

    name = new_name()
    job = planner(name)
    for week in (1, 2):
        for number, hot_set in enumerate(hot_sets):
            history = keys(hot_set, 1000 + 10 * week + number, 100_000)
            began = (next_hour + number - 168 * week) * HOUR_MS
            times = began + np.linspace(0, HOUR_MS - 1, len(history)).astype(np.int64)
            write_archive(tmp_path / "archive", f"{week}-{number}.parquet", history, times)
    job.run("--archive", str(tmp_path / "archive"), "--no-plan")
    planned = []
    with start(name) as pipeline:
        for number, of in enumerate(streams):
            hour = int(hours_of_week(np.array([(next_hour + number) * HOUR_MS]))[0])
            job.run("--hour", str(hour))
            wait_until_taken(pipeline, job)
            planned.append(hit_rate(pipeline, of, A_CHUNK // 4))
        verdict = pipeline.verdict()
    print(
        "hit rates by the hour, the adaptive cache alone: "
        + ", ".join(f"{rate:.1%}" for rate in alone)
        + "; with a plan for each hour: "
        + ", ".join(f"{rate:.1%}" for rate in planned)
    )
    assert verdict.differences == []
    assert all(with_plan > without for with_plan, without in zip(planned, alone, strict=True))
    # Also without the first hour, in which the adaptive cache had nothing to begin with.
    assert sum(planned[1:]) > 1.05 * sum(alone[1:])


def wait_until_taken(pipeline, job):
    """Wait until the caches have read the migrations topic to its end."""
    readers = [
        loop._handler._migrations._consumer
        for loop in pipeline._loops
        if isinstance(loop._handler, CacheHandler)
    ]
    wanted = dict(enumerate(ends(admin_of(job.settings), job.topology.migrations)))
    while True:
        assert pipeline._failures == []
        reached = {
            at.partition: max(at.offset, 0)
            for reader in readers
            for at in reader.position(reader.assignment())
        }
        # Behind the last message stands the mark of its transaction.
        if all(reached.get(slot, -1) >= end - 1 for slot, end in wanted.items()):
            return
        time.sleep(0.05)
