"""The job `frequency`: counts that equal SQL's, plans that equal brute force, exactly once.

A Spark session takes ten seconds to start, so that `make test` has one of these, and
`make test-spark` all.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer, TopicPartition
from fastapi import FastAPI
from fastapi.testclient import TestClient

from deploy.local.home import CHECKOUT
from dovetail.errors import ConfigError
from dovetail.join.columns import Column, JoinKeys
from dovetail.join.entry import Entries
from dovetail.join.keys import hash_text_many
from dovetail.join.mapper import Mapper
from dovetail.join.pool import BYTES_A_BLOCK
from dovetail.pipeline.spec import KeyType, Pipeline
from dovetail.plan.ranking import Verdict
from dovetail.plan.recency import hours_of_week, watched_s
from dovetail.settings import Settings
from dovetail.stream.migration_codec import decode
from dovetail.stream.topics import admin_of, ensure_topics
from dovetail.topology import Topic
from dovetail.verify import read_all
from services.cache_phase.settings import budget
from services.control.plans import plan_routes
from services.disk_phase.build import FROM_POSTGRES
from services.disk_phase.settings import shares
from services.spark.frequency_source import Span, new_events
from services.spark.frequency_state import Counts, Version
from services.spark.plan import Horizon, purpose_of
from services.spark.runs import control_engine
from tests.integration.frequency_kit import DAY_MS, HALF_LIFE_S, Frequencies

pytestmark = pytest.mark.timeout(300)

COMPOSITE = {
    "source": {
        "partitions": 3,
        "fields": {"country": "text", "sku": "int", "sold_at": "timestamp?"},
        "event_time": "sold_at",
    },
    "key": ["country", "sku"],
    "master": {"table": "goods", "columns": ["name", "price"]},
    "slots": 4,
    "nodes": 2,
    "memory": "4MiB",
}
INT = {
    **COMPOSITE,
    "source": {"partitions": 2, "fields": {"sku": "int"}},
    "key": "sku",
    "master": {"table": "goods", "columns": ["name"]},
}


@pytest.fixture
def frequencies(spark, bootstrap, database, tmp_path, kafka_namespace):
    def make(spec):
        named = {"name": f"{kafka_namespace}{uuid.uuid4().hex[:4]}", **spec}
        return Frequencies(spark, bootstrap, database, tmp_path, named)

    return make


def fill(database, most_rows=4):
    """A table with keys of no, one and several rows of many sizes."""
    rng = random.Random(5)
    with psycopg.connect(database) as connection:
        connection.execute("CREATE TABLE goods (country text, sku bigint, name text, price float8)")
        with connection.cursor().copy("COPY goods FROM STDIN") as copy:
            for sku in range(400):
                for _ in range(rng.randrange(most_rows)):
                    name = "größe " * rng.randrange(1, 30)
                    copy.write_row((rng.choice(["de", "fr"]), sku, name, rng.random()))
        connection.execute("INSERT INTO goods VALUES (NULL, NULL, 'nobody', 1)")
        connection.execute("CREATE INDEX ON goods (country, sku)")


def composite_events(count, seed, now_ms):
    """Events of all kinds, and the (key, ms) of those that are good."""
    rng = random.Random(seed)
    events, good = [], []
    for number in range(count):
        country, sku = rng.choice(["de", "fr", "é"]), min(int(rng.paretovariate(0.6)), 500)
        ms = now_ms - rng.randrange(20 * DAY_MS)
        told = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(ms // 1000)) + f".{ms % 1000:03}Z"
        event = {"country": country, "sku": sku, "sold_at": told}
        if number % 17 == 0:
            event["sold_at"] = None  # then the record's own time counts
        if number % 23 == 0:
            events.append(json.dumps({**event, "more": 1}).encode())
        elif number % 29 == 0:
            events.append(None)
        else:
            events.append(json.dumps(event).encode())
            good.append((f"{country}\x1f{sku}".encode(), None if number % 17 == 0 else ms))
    return events, good


def assert_equal_counts(found, expected):
    assert found.keys() == expected.keys()
    assert {pair: events for pair, (events, _) in found.items()} == {
        pair: events for pair, (events, _) in expected.items()
    }
    assert [found[pair][1] for pair in expected] == pytest.approx(
        [weight for _, weight in expected.values()], rel=1e-9
    )


def planned(frequencies):
    """The latest plan's listed keys by name."""
    (plan,) = frequencies.tables.plans(1)
    return plan, {key.key: key for key in frequencies.tables.keys(plan.version, None, 10**6)}


def names(keys, spec):
    return [str(key).encode() if spec.key_type is KeyType.INT else key for key in keys]


def slots_of(keys, spec):
    if spec.key_type is KeyType.INT:
        columns = JoinKeys.of_ints(np.array(keys, np.int64))
    else:
        texts = Column.of(keys)
        columns = JoinKeys(hash_text_many(texts.data, texts.bounds), texts)
    return Mapper(spec.slots, int_key=spec.key_type is KeyType.INT).slots(columns).tolist()


def plan_by_hand(frequencies, hour=None, refresh_s=600.0):
    """The plan as plain Python makes it from what SQL says of the master table."""
    spec, counts = frequencies.spec, frequencies.version.counts
    weights = defaultdict(float)
    for (key, of_hour), (_, weight) in frequencies.pairs().items():
        if hour in (None, of_hour):
            weights[key] += weight
    with psycopg.connect(frequencies.settings.database_url) as connection:
        rows = connection.execute(
            "SELECT country, sku, octet_length(row_to_json(x)::text) FROM goods r, LATERAL"
            f" (SELECT {', '.join('r.' + column for column in spec.master.columns)}) x"
        ).fetchall()
    of_key = defaultdict(list)
    for country, sku, length in rows:
        if sku is not None:
            key = sku if spec.key_type is KeyType.INT else f"{country}\x1f{sku}".encode()
            of_key[key].append(length)
    seen_s = watched_s(counts.began_ms, counts.as_of_ms, HALF_LIFE_S, hour)
    event_blocks = 1 + max(0, -(-int(counts.event_bytes + 0.999 - 40) // 60))
    blocks_of_cache = (budget(spec) - budget(spec) // 32 - 1024) // BYTES_A_BLOCK
    left = Counter(dict.fromkeys(range(spec.slots), int(7 / 8 * blocks_of_cache) // 2))
    judged = []
    slots = dict(zip(weights, slots_of(list(weights), spec), strict=True))
    for key, weight in weights.items():
        text = 0 if spec.key_type is KeyType.INT else len(key)
        size = 24 + 4 * len(of_key[key]) + text + sum(of_key[key])
        size = -(-size // 8) * 8
        blocks = 1 + -(-text // 60) + -(-size // 60)
        judged.append((weight / seen_s * refresh_s, blocks, key))
    chosen = {}
    for events, blocks, key in sorted(judged, key=lambda one: -one[0] / one[1]):
        if blocks < events * event_blocks and blocks <= left[slots[key]]:
            left[slots[key]] -= blocks
            chosen[key] = (events, blocks)
    return chosen


def migrated(frequencies):
    """The entries on the migrations topic, by the message's key."""
    found = {}
    for message in read_all(frequencies.settings, frequencies.topology.migrations):
        arrived = decode(Column.of([message.value()]))
        entries = Entries.received(arrived.entries)
        found[message.key()] = (message.partition(), int(entries.rows_each()[0]), entries)
    return found


def test_counts_and_plan_equal_sql_run_after_run(frequencies, database):
    fill(database)
    job = frequencies(COMPOSITE)
    now_ms = time.time_ns() // 1_000_000
    sent = []
    for seed in range(2):
        events, good = composite_events(1500, seed, now_ms)
        record_ms = now_ms - 5 * DAY_MS
        job.send(events, [record_ms] * len(events))
        sent += [(key, record_ms if ms is None else ms) for key, ms in good]
        figures = job.run("--horizon", "30d")
        assert figures["new_records"] == len(events)
        assert figures["lost_records"] == 0
        assert job.version.number == seed + 1
        assert_equal_counts(job.pairs(), job.counted_by_sql(sent))

    plan, keys = planned(job)
    by_hand = plan_by_hand(job, refresh_s=30 * 86400.0)
    chosen = {name: key for name, key in keys.items() if key.verdict == Verdict.CHOSEN}
    assert chosen.keys() == set(by_hand)
    assert plan.facts["keys"]["chosen"] == len(chosen) > 50
    for name, (events, blocks) in by_hand.items():
        assert chosen[name].events == pytest.approx(events)
        assert chosen[name].bytes == blocks * BYTES_A_BLOCK

    held = migrated(job)
    assert held.keys() == chosen.keys()
    assert all(held[name][:2] == (key.slot, key.rows) for name, key in chosen.items())
    assert sum(one.sent for one in job.tables.plans(9)) == len(chosen)
    assert {key.rows for key in chosen.values()} >= {0, 1, 2}
    # Nothing is new, and the caches have it all.
    figures = job.run("--horizon", "30d")
    assert (figures["new_records"], figures["sent_keys"]) == (0, 0)
    assert job.version.number == 2
    assert len(list(job.state.glob("*/counts/*"))) == 2

    app = FastAPI()
    app.include_router(plan_routes(job.spec, control_engine(database)))
    client = TestClient(app)
    root = f"/v1/pipelines/{job.spec.name}/plans"
    assert [one["version"] for one in client.get(root).json()] == [3, 2, 1]
    latest = client.get(f"{root}/latest").json()
    assert latest["keys"] == plan.facts["keys"]
    best = latest["first_keys"][0]
    assert "events saved a KiB" in best["reason"]
    assert client.get(f"{root}/3/keys/{best['key']}").json() == best
    assert client.get(f"{root}/3/keys/none").status_code == 404
    assert client.get(f"{root}/99").status_code == 404
    assert client.get(f"{root}/3/keys", params={"verdict": "inequality"}).json()


def test_new_events_begin_where_counting_ended_and_what_is_gone_is_told(bootstrap, kafka_namespace):
    topic = Topic(f"{kafka_namespace}source", 2)
    settings = Settings(bootstrap, "none", Path())
    ensure_topics(settings, [topic])
    producer = Producer(settings.client())
    for number in range(20):
        producer.produce(topic.name, b"x", partition=number % 2)
    assert producer.flush(30) == 0

    def spans(**reached):
        counts = Counts(topic=topic.name, reached=dict(zip("01", reached.values(), strict=False)))
        return new_events(settings, topic, counts)

    assert spans().spans == {0: Span(0, 10), 1: Span(0, 10)}
    assert spans(first=4, second=10).spans == {0: Span(4, 10), 1: Span(10, 10)}
    assert not spans(first=10, second=10)
    assert spans(first=4).records == 16
    # A topic that was made anew is counted from its beginning.
    assert spans(first=11, second=10).spans[0] == Span(0, 10)
    admin = admin_of(settings)
    for deletion in admin.delete_records([TopicPartition(topic.name, 0, 7)]).values():
        deletion.result(30)
    assert spans(first=4, second=10).spans[0] == Span(7, 10, lost=3)
    assert spans(first=4, second=10).lost == 3
    other = new_events(settings, topic, Counts(topic="other", reached={"0": 9, "1": 9}))
    assert other.spans == {0: Span(7, 10), 1: Span(0, 10)}


def test_events_count_for_as_long_as_an_entry_answers_them_or_they_would_wait(database):
    fill(database)
    settings = Settings("none", database, Path())
    now_ms = time.time_ns() // 1_000_000
    counts = Counts(as_of_ms=now_ms, began_ms=now_ms - 7_200_000, events=36_000, bytes=3_600_000)
    version = Version(1, "", counts)

    def purpose(algorithm, hour=None, refresh="10m", **given):
        master = {**INT["master"], "refresh": refresh}
        spec = {"name": "sales", **INT, "master": master, "algorithm": algorithm}
        spec["memory"] = 4 << 20
        pipeline = Pipeline.model_validate(spec)
        return purpose_of(settings, pipeline, version, 86400.0, hour, given.get("horizon"))

    assert purpose("auto").horizon == Horizon(600.0, "until master rows are read anew")
    assert purpose("srj", refresh="never").horizon.seconds == 86400.0
    assert purpose("srj", horizon=5.0).horizon.seconds == 5.0
    with psycopg.connect(database) as connection:
        row = connection.execute("SELECT pg_relation_size('goods') / 8192").fetchone()
    assert purpose("ssbj").horizon.seconds == pytest.approx(row[0] / 2 * FROM_POSTGRES.page)
    # Five events a second fill what the disk phase has for them.
    spec = {"name": "sales", **INT, "algorithm": "ssbj-index", "memory": 4 << 20}
    waiting = shares(Pipeline.model_validate(spec)).join / (2 * BYTES_A_BLOCK)
    assert purpose("ssbj-index").horizon.seconds == pytest.approx(waiting / 5 / 2)
    assert purpose("auto").watched_s == pytest.approx(7200, rel=0.05)
    this_hour, yesterday = hours_of_week(np.array([now_ms, now_ms - DAY_MS])).tolist()
    assert 0 < purpose("auto", this_hour).watched_s <= 3600
    with pytest.raises(ConfigError, match="no event was counted in hour"):
        purpose("auto", yesterday)


def test_int_keys_without_a_time_of_their_own_are_counted_by_their_records(frequencies, database):
    fill(database)
    job = frequencies(INT)
    now_ms = time.time_ns() // 1_000_000
    rng = random.Random(3)
    keys = [rng.choice([0, -1, 2**63 - 1, -(2**63), *range(300)]) for _ in range(3000)]
    times = [now_ms - rng.randrange(9 * DAY_MS) for _ in keys]
    job.send([json.dumps({"sku": key}).encode() for key in keys], times)
    job.run("--horizon", "9d")
    sent = list(zip(keys, times, strict=True))
    assert_equal_counts(job.pairs(), job.counted_by_sql(sent))
    _, found = planned(job)
    chosen = [name for name, key in found.items() if key.verdict == Verdict.CHOSEN]
    by_hand = plan_by_hand(job, refresh_s=9 * 86400.0)
    assert sorted(chosen) == sorted(names(by_hand, job.spec))
    assert migrated(job).keys() == set(chosen)


def test_a_plan_for_an_hour_has_the_keys_of_that_hour(frequencies, database):
    fill(database)
    job = frequencies(INT)
    now_ms = time.time_ns() // 1_000_000
    coming = now_ms // 3_600_000 + 1  # the hours that follow have been a week ago, and two
    keys, times = [], []
    for week in (1, 2):
        for hours, first in ((0, 0), (9, 100)):
            for number in range(600):
                keys.append(first + number % 50)
                times.append((coming + hours - 168 * week) * 3_600_000 + number * 5000)
    job.send([json.dumps({"sku": key}).encode() for key in keys], times)
    for hours, expected in ((0, range(50)), (9, range(100, 150))):
        hour = int(hours_of_week(np.array([(coming + hours) * 3_600_000]))[0])
        job.run("--hour", str(hour), "--no-send", "--horizon", "10h")
        plan, found = planned(job)
        chosen = {int(name) for name, key in found.items() if key.verdict == Verdict.CHOSEN}
        assert chosen == set(expected) == plan_by_hand(job, hour, 36000.0).keys()
        assert plan.facts["expected_hit_rate"] == pytest.approx(1)
        assert plan.facts["events_a_second"] == pytest.approx(600 / 3600, rel=0.01)
        assert (plan.sent_at, migrated(job)) == (None, {})
    job.run("--hour", str((hour + 1) % 168), "--no-send")
    assert planned(job)[0].facts["keys"]["chosen"] == 0


def test_an_archive_is_counted_once_and_not_what_the_topic_has(frequencies, database, tmp_path):
    fill(database)
    job = frequencies(COMPOSITE)
    now_ms = time.time_ns() // 1_000_000
    events, good = composite_events(600, 7, now_ms)
    old, _ = composite_events(600, 8, now_ms)
    record_ms = now_ms - DAY_MS
    job.send(events, [record_ms] * len(events))
    archive = tmp_path / "archive"
    archive.mkdir()

    def write(name, values, partitions, offsets):
        table = pa.table(
            {
                "value": pa.array(values, pa.binary()),
                "timestamp": pa.array([record_ms] * len(values), pa.timestamp("ms", "UTC")),
                "partition": pa.array(partitions, pa.int32()),
                "offset": pa.array(offsets, pa.int64()),
            }
        )
        pq.write_table(table, archive / name)

    places = [(number % 3, number // 3) for number in range(len(events))]
    write("copy.parquet", events, *zip(*places, strict=True))
    write("old.parquet", old, [0] * len(old), range(-len(old), 0))
    _, old_good = composite_events(600, 8, now_ms)
    expected = [(key, record_ms if ms is None else ms) for key, ms in [*good, *old_good]]
    for _ in range(2):
        job.run("--archive", str(archive), "--no-plan")
        assert job.version.number == 1
        assert_equal_counts(job.pairs(), job.counted_by_sql(expected))
    older, older_good = composite_events(300, 9, now_ms)
    write("older.parquet", older, [1] * len(older), range(-len(older), 0))
    job.run("--archive", str(archive), "--no-plan")
    expected += [(key, record_ms if ms is None else ms) for key, ms in older_good]
    assert_equal_counts(job.pairs(), job.counted_by_sql(expected))


@pytest.mark.parametrize("spec", [INT, COMPOSITE], ids=["int", "composite"])
def test_beyond_the_limit_counts_are_off_by_the_stated_error_at_most(frequencies, database, spec):
    fill(database)
    job = frequencies(spec)
    now_ms = time.time_ns() // 1_000_000
    true = Counter()
    for seed in range(3):
        if spec is INT:
            rng = random.Random(seed)
            keys = [min(int(rng.paretovariate(0.5)), 10**6) for _ in range(4000)]
            job.send([json.dumps({"sku": key}).encode() for key in keys], [now_ms] * len(keys))
        else:
            events, good = composite_events(4000, seed, now_ms)
            job.send(events, [now_ms] * len(events))
            keys = [key for key, _ in good]
        true.update(keys)
        figures = job.run("--pairs", "600", "--tracked", "384", "--no-plan")
        counts = job.version.counts
        assert counts.events == sum(true.values())
        assert (counts.sketched > 0) == (counts.tracked > 0) == (figures["error"] > 0)
    assert counts.tracked == 384
    assert counts.pairs <= 600
    assert counts.error == pytest.approx(3.5 / 512)
    found = Counter()
    for (key, _), (events, _) in job.pairs().items():
        found[key] += events
    off = {key: abs(found[key] - true[key]) for key in true | found}
    assert max(off.values()) <= counts.error * counts.sketched
    assert found.most_common(5)[0][0] == true.most_common(1)[0][0]


@pytest.mark.timeout(900)
def test_killed_at_any_moment_it_counts_every_event_once(frequencies, database, tmp_path):
    fill(database)
    job = frequencies(COMPOSITE)
    now_ms = time.time_ns() // 1_000_000
    sent, killed = [], 0
    for seed, moment in enumerate(("starting", "writing", "planning")):
        events, good = composite_events(2000, seed, now_ms)
        record_ms = now_ms - DAY_MS
        job.send(events, [record_ms] * len(events))
        sent += [(key, record_ms if ms is None else ms) for key, ms in good]
        killed += kill_when(job, moment, tmp_path / f"{moment}.log")
    assert killed == 3
    counted = job.version.number
    assert counted == 1  # the third had counted everything before it was killed
    job.run("--horizon", "30d")
    assert job.version.number == 1
    assert_equal_counts(job.pairs(), job.counted_by_sql(sent))
    assert len(list(job.state.glob("*/counts/*"))) == 1
    plan, keys = planned(job)
    assert migrated(job).keys() == {
        name for name, key in keys.items() if key.verdict == Verdict.CHOSEN
    }
    assert plan.sent == plan.facts["keys"]["chosen"] > 0


def kill_when(job, moment, log):
    """Run the job as a process of its own and kill it at a moment; False if that never came."""
    folders = set(job.state.glob("*/counts/*"))
    version = job.version.number
    command = [sys.executable, "-m", "services.spark", "frequency", str(job.file)]
    options = ["--state", str(job.state), "--half-life", f"{HALF_LIFE_S:.0f}s"]
    environment = {
        **os.environ,
        "KAFKA_BOOTSTRAP": job.settings.bootstrap,
        "DATABASE_URL": job.settings.database_url,
    }
    with log.open("wb") as out:
        process = subprocess.Popen(
            [*command, *options],
            stdout=out,
            stderr=out,
            env=environment,
            cwd=CHECKOUT,
            start_new_session=True,
        )
    try:
        while process.poll() is None:
            if (
                (moment == "starting" and b"counting" in log.read_bytes())
                or (moment == "writing" and set(job.state.glob("*/counts/*")) - folders)
                or (moment == "planning" and job.version.number > version)
            ):
                return True
            time.sleep(0.02)
        return False
    finally:
        # The whole session: the JVM must not go on by itself.
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
