"""backfill completes what was shed, unmatched or parked, and all of it is what SQL gives, once.

A Spark session takes ten seconds to start, so that `make test` has one of these, and
`make test-spark` all.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from contextlib import contextmanager

import numpy as np
import psycopg
import pytest

from dovetail.demo.catalogue import load_catalogue
from dovetail.demo.generate import MAX_RATE, GenerateSettings, generate
from dovetail.errors import Unavailable
from dovetail.stream.late import read_late
from dovetail.testing.threads import ThreadedPipeline
from services.mapper import main as mapper
from services.spark import snapshot
from services.spark.backfill import backfill, require_completable
from services.spark.runs import AlreadyRunsError, Run, control_engine, last_runs
from services.spark.settings import SparkSettings
from tests.e2e import shop, test_shedding
from tests.e2e.test_kill import KEYS, SALES
from tests.e2e.test_spark_enrich import watch_for_writes

goods = test_shedding.goods
SHAPES = {"int": shop.INT, "text": shop.TEXT, "composite": shop.COMPOSITE}
LARGE = 3
"""The key that has more rows than a node's memory holds."""
only_in_test_spark = pytest.mark.skipif(
    not os.environ.get("DOVETAIL_SPARK"), reason="make test-spark runs it"
)


class Sheds:
    """A mapper that sheds every third key, overloaded or not."""

    strategy = "topw"

    def look(self):
        pass

    def admit(self, keys):
        return np.asarray(keys.values % 3 != 0)

    def figures(self):
        return {}

    def close(self):
        pass


@pytest.fixture
def run_services(stack, kernels, database, tmp_path, monkeypatch):
    """Run the services' stages over the test's own database; the mapper sheds."""
    monkeypatch.setattr(mapper, "guard_of", lambda *_: Sheds())

    def run(spec):
        named = {"name": f"test-{uuid.uuid4().hex[:12]}", **spec}
        return ThreadedPipeline(tmp_path, stack.bootstrap, database, named)

    return run


@pytest.fixture
def complete(spark, database):
    """Run the job on a pipeline; gives its figures."""

    def run(pipeline, most=1_000):
        require_completable(pipeline.settings, pipeline.spec)
        with Run(control_engine(database), pipeline.spec.name, "backfill") as row:
            backfill(pipeline.settings, pipeline.spec, spark, row, most)
        runs = last_runs(control_engine(database), pipeline.spec.name)
        # Where Spark runs the pipeline, that is a run as well.
        (last,) = (one for one in runs if one.job == "backfill")
        assert last.state == "done"
        assert last.figures == row.figures
        return last.figures

    return run


def assert_all_completed(pipeline):
    """Nothing is left aside, the sum is zero, and the output is SQL's."""
    seen = pipeline.audit()
    assert seen.problems == []
    assert seen.drained
    assert (seen.shed, seen.parked) == (0, 0)
    assert seen.taken == seen.enriched + seen.unmatched + seen.dead_lettered
    verdict = pipeline.verdict()
    assert verdict.differences == []
    assert (verdict.shed, verdict.parked) == (0, 0)
    assert seen.taken == verdict.events
    assert seen.outputs == verdict.outputs == verdict.expected > 0
    assert seen.unmatched == verdict.unmatched
    return seen


def vias(pipeline):
    return {headers["via"] for headers, _ in pipeline.messages(pipeline.topology.enriched)}


def large_spec(**master):
    return {
        "source": {"partitions": 3, "fields": {"sale": "int", "product": "int"}},
        "key": "product",
        "master": {"table": "goods", "key": "id", "columns": ["name"], **master},
        "algorithm": "srj",
        "memory": "4MiB",
        "nodes": 2,
        "slots": 4,
    }


def fill_with_a_large_key(database):
    with psycopg.connect(database) as connection:
        connection.execute("CREATE TABLE goods (id int, name text)")
        connection.execute("CREATE INDEX ON goods (id)")
        connection.execute("INSERT INTO goods SELECT n, 'one' FROM generate_series(0, 49) n")
        # Shed events have it, too: 3 mod 3 is 0; and others have a key with as many, 1.
        for key in (1, LARGE):
            connection.execute(
                "INSERT INTO goods SELECT %s, repeat('x', 300) || n"
                " FROM generate_series(1, 12000) n",
                (key,),
            )


def some_sales():
    """Keys with a row, without one, and with too many."""
    products = [*range(60), *range(60), 1, LARGE]
    return [
        json.dumps({"sale": sale, "product": product}).encode()
        for sale, product in enumerate(products)
    ]


def add_late_rows(database):
    with psycopg.connect(database) as connection:
        connection.execute("INSERT INTO goods SELECT n, 'late' FROM generate_series(50, 54) n")


@pytest.mark.timeout(900)
def test_what_was_set_aside_is_completed_once_and_equals_sql(run_services, complete, database):
    fill_with_a_large_key(database)
    with run_services(large_spec()) as pipeline:
        events = some_sales()
        pipeline.send(events)
        before = pipeline.drain()
        assert before.problems == []
        assert min(before.shed, before.unmatched, before.parked) > 0
        assert pipeline.verdict().differences == []

        add_late_rows(database)
        figures = complete(pipeline, most=30)
        after = assert_all_completed(pipeline)
        assert "late" in vias(pipeline)
        assert figures["of_shed"] == before.shed
        assert figures["of_parked"] == before.parked
        assert figures["completed"] == after.enriched - before.enriched > 0
        assert figures["still_unmatched"] > 0
        assert (
            after.unmatched
            == before.unmatched - figures["of_unmatched"] + figures["newly_unmatched"]
        )

        # Again: what is missing still is looked at, and nothing changes.
        again = complete(pipeline)
        assert (again["completed"], again["outputs"]) == (0, 0)
        assert again["still_unmatched"] == after.unmatched
        assert assert_all_completed(pipeline) == after


@only_in_test_spark
@pytest.mark.timeout(900)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("join", ["inner", "left", "semi", "anti"])
def test_every_kind_of_join_and_key(join, shape, run_services, complete, database):
    of = SHAPES[shape]
    of.fill(database)
    key = f"hashtext(row({', '.join(of.columns)})::text) % 2 = 0"
    held = f"CREATE TABLE held AS SELECT * FROM goods WHERE {key}"
    less = f"DELETE FROM goods WHERE {key}"
    more = "INSERT INTO goods SELECT * FROM held"
    # Rows that come later complete an inner or a semi join; for an anti join they go.
    first, then = {
        "inner": ((held, less), (more,)),
        "semi": ((held, less), (more,)),
        "anti": ((), (less,)),
        "left": ((), ()),
    }[join]
    change(database, first)
    with run_services(of.spec(join)) as pipeline:
        pipeline.send([*of.good_events(), *of.bad_events()])
        before = pipeline.drain()
        assert before.shed > 0
        assert (before.unmatched > 0) == (join != "left")
        change(database, then)
        figures = complete(pipeline)
        after = assert_all_completed(pipeline)
        assert figures["of_shed"] == before.shed
        assert (figures["of_unmatched"] > 0) == (join != "left")
        assert (after.unmatched > 0) == (join != "left")


def change(database, statements):
    with psycopg.connect(database) as connection:
        for statement in statements:
            connection.execute(statement)


@only_in_test_spark
@pytest.mark.timeout(900)
def test_a_run_goes_on_with_what_has_come_since(run_services, complete, database):
    fill_with_a_large_key(database)
    with run_services(large_spec()) as pipeline:
        for _ in range(2):
            pipeline.send(some_sales())
            pipeline.drain()
            assert complete(pipeline)["still_unmatched"] > 0
            assert_all_completed(pipeline)
        with psycopg.connect(database) as connection:
            connection.execute("INSERT INTO goods SELECT n, 'last' FROM generate_series(50, 59) n")
        assert complete(pipeline)["still_unmatched"] == 0
        assert assert_all_completed(pipeline).unmatched == 0


@only_in_test_spark
@pytest.mark.timeout(900)
def test_over_a_snapshot_parked_events_included(run_services, complete, database, spark, tmp_path):
    fill_with_a_large_key(database)
    spec = large_spec(snapshot=str(tmp_path / "snapshots"))
    pipeline = run_services(spec)
    settings = SparkSettings("none", database, tmp_path / "none")

    def write():
        with Run(control_engine(database), "other", "snapshot") as row:
            snapshot.run(settings, pipeline.spec, spark, row, argparse.Namespace(to=None))

    write()
    with pipeline:
        pipeline.send(some_sales())
        before = pipeline.drain()
        assert min(before.shed, before.unmatched, before.parked) > 0
        add_late_rows(database)
        write()
        complete(pipeline)
        assert_all_completed(pipeline)


@only_in_test_spark
@pytest.mark.timeout(900)
def test_an_overload_is_made_good(run_pipeline, goods, complete, database):
    overload = {"shed": "auto", "when_behind": test_shedding.WHEN_BEHIND}
    spec = {**test_shedding.SPEC, "overload": overload}
    with run_pipeline(spec) as pipeline:
        sales, held_up = test_shedding.Sales(pipeline), test_shedding.HeldUp(pipeline, database)
        sales.flow_until(
            lambda seen: (
                seen.hits > test_shedding.WAVE
                and pipeline.figures(pipeline.process_of("mapper"))["service_rate"]
            ),
            "both phases answer",
        )
        held_up.begin()
        sales.flow_until(lambda seen: seen.shed > 5 * test_shedding.WAVE, "events are shed")
        held_up.end()
        sales.flow_until(lambda _: not test_shedding.sheds(pipeline), "shedding ends")
        before = pipeline.drain()
        assert min(before.shed, before.unmatched) > 0
        change(
            database, ["INSERT INTO goods SELECT 4 * n, 'late' FROM generate_series(0, 50000) n"]
        )
        figures = complete(pipeline, most=100_000)
        assert figures["of_shed"] == before.shed
        assert figures["of_unmatched"] > 0
        assert_all_completed(pipeline)


class Driver:
    """The job as a process of its own, started by the command line."""

    def __init__(self, pipeline, folder):
        self._log = folder / "driver.log"
        settings = pipeline.settings
        job = [sys.executable, "-m", "dovetail.cli", "spark", "backfill", str(settings.pipeline)]
        self._command = [*job, "--portion", "1000"]
        self._environment = {
            **os.environ,
            "KAFKA_BOOTSTRAP": settings.bootstrap,
            "DATABASE_URL": settings.database_url,
            "SPARK_DRIVER_MEMORY": "512m",
        }

    def start(self):
        with self._log.open("a") as log:
            return subprocess.Popen(
                self._command, env=self._environment, stdout=log, stderr=log, start_new_session=True
            )

    @contextmanager
    def until(self, seen):
        """Start it and wait; it is running within, and no more afterwards."""
        process = self.start()
        try:
            while not seen():
                assert process.poll() is None, self.said()
                time.sleep(0.01)
            yield process
        finally:
            process.kill()
            process.wait()

    def said(self):
        return self._log.read_text()


def latest_run(pipeline, database):
    """The number of the job's latest run."""
    return max(run.id for run in last_runs(control_engine(database), pipeline.spec.name))


@only_in_test_spark
@pytest.mark.timeout(900)
def test_the_driver_is_killed_at_several_points_and_everything_is_there_once(
    run_services, complete, database, tmp_path
):
    load_catalogue(database, rows=KEYS, report=lambda _: None)
    hidden = "product_id % 2 = 0"
    change(
        database,
        [
            f"CREATE TABLE held AS SELECT * FROM products WHERE {hidden}",
            f"DELETE FROM products WHERE {hidden}",
        ],
    )
    with run_services({**SALES, "nodes": 2}) as pipeline:
        sales = GenerateSettings(rate=MAX_RATE, skew=0.5, seed=7, keys=KEYS, count=60_000, first=1)
        topic = pipeline.topology.source.name
        generate(sales, pipeline.settings.client(), topic, lambda _: None, threading.Event())
        before = pipeline.drain()
        assert before.shed + before.unmatched > 30_000
        change(database, ["INSERT INTO products SELECT * FROM held"])
        driver = Driver(pipeline, tmp_path)

        def late():
            return read_late(pipeline.settings, pipeline.topology)

        writes = watch_for_writes(pipeline)
        # In the middle of a transaction: the driver and all it has started.
        with driver.until(writes) as process:
            os.killpg(process.pid, signal.SIGKILL)
        killed = pipeline.audit()
        assert killed.problems == []
        # The driver alone, after some portion: what it has started may go on for a while.
        with driver.until(lambda: late().counts["late"] > killed.late["late"]) as process:
            os.kill(process.pid, signal.SIGKILL)
        assert pipeline.audit().problems == []
        # Again in the middle, and while somebody else is told to wait. What the last driver has
        # started may still write when the next has not begun.
        last = latest_run(pipeline, database)
        with driver.until(lambda: latest_run(pipeline, database) > last and writes()) as process:
            with pytest.raises(AlreadyRunsError, match=r"backfill of .* is being run by process"):
                complete(pipeline)
            os.killpg(process.pid, signal.SIGKILL)
        partly = pipeline.audit()
        assert partly.problems == []
        assert partly.shed > 0, "it was killed too late"
        if len(late().positions(pipeline.topology)[pipeline.topology.shed.name]) > 1:
            with pytest.raises(Unavailable, match="was interrupted"):
                pipeline.verdict()

        assert driver.start().wait() == 0, driver.said()
        assert "completed" in driver.said().splitlines()[-1]
        after = assert_all_completed(pipeline)
        complete(pipeline, most=100_000)
        assert assert_all_completed(pipeline) == after
