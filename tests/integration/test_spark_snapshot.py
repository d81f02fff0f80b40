"""The snapshot job on a real Spark and a real PostgreSQL: what it writes is what SQL gives.

Of the variants `make test` runs one each, `make test-spark` all.
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
from pathlib import Path

import numpy as np
import psycopg
import pytest
import yaml

from deploy.local.home import CHECKOUT
from dovetail.errors import ConfigError
from dovetail.join.exchange import Pages
from dovetail.master.pipeline import key_of, queries_of, session_of
from dovetail.master.snapshot.slots import SlotsRelation
from dovetail.master.snapshot.versions import Content, Hold, versions_of
from dovetail.pipeline.spec import KeyType, Pipeline
from dovetail.testing.threads import ThreadedPipeline
from services.spark import snapshot
from services.spark.master import master_state
from services.spark.runs import Run, control_engine, last_runs
from services.spark.settings import SparkSettings
from tests.e2e import shop
from tests.integration.master_kit import pipeline

ROOM = 1 << 20
only_in_test_spark = pytest.mark.skipif(
    not os.environ.get("DOVETAIL_SPARK"), reason="make test-spark runs it"
)


@pytest.fixture
def write(spark, database, tmp_path):
    """Write a snapshot of a pipeline; gives its current version, held."""
    holds = []

    def written(of):
        settings = SparkSettings("none", database, tmp_path / "none")
        with Run(control_engine(database), of.name, "snapshot") as run:
            snapshot.run(settings, of, spark, run, argparse.Namespace(to=tmp_path))
        versions = versions_of(tmp_path, of.name)
        holds.append(Hold(versions.path(versions.current())))
        return holds[-1]

    yield written
    for hold in holds:
        hold.close()


def rows_of(hold):
    """Every slot's (key, row) pairs, read by its pages."""
    content = hold.version.content
    slots = []
    for slot in range(content.slots):
        relation = SlotsRelation({slot: hold.slot(slot)}, content.slots, content.key_type)
        read = []
        page, pages = 0, relation.facts.pages
        while page < pages:
            one = relation.read(Pages(page, pages - page, pages), ROOM)
            keys = one.rows.keys
            names = [text.decode() for text in keys.texts]
            names = keys.values.tolist() if content.key_type == "int" else names
            read += zip(names, (row.decode() for row in one.rows.rows), strict=True)
            page += one.covers
        relation.close()
        slots.append(sorted(read, key=str))
    return slots


def sql_rows(database, of):
    """What the services' own query gives, slot by slot."""
    query = queries_of(of, key_of(of)).split(of.slots, by_place=True)
    slots = [[] for _ in range(of.slots)]
    with session_of(database, of).connection() as connection:
        for _, slot, value, text, row in connection.execute(query):
            slots[slot].append((value if of.key_type is KeyType.INT else text, row))
    return [sorted(rows, key=str) for rows in slots]


def of_shape(shape, join="inner"):
    spec = shape.spec(join)
    return pipeline(
        "goods",
        spec["master"].get("columns", []),
        spec["source"]["fields"],
        spec["key"],
        join,
        spec["master"]["key"],
        slots=7,
    )


@pytest.mark.parametrize(
    "shape",
    [
        pytest.param(shop.INT, id="int", marks=only_in_test_spark),
        pytest.param(shop.TEXT, id="text", marks=only_in_test_spark),
        pytest.param(shop.COMPOSITE, id="composite"),
    ],
)
def test_every_slot_has_the_rows_that_sql_gives(shape, write, database):
    shape.fill(database)
    of = of_shape(shape)
    hold = write(of)
    rows = rows_of(hold)
    assert rows == sql_rows(database, of)
    assert [slot.rows for slot in hold.version.slots] == [len(slot) for slot in rows]
    assert hold.version.rows == sum(shape.rows.values())
    assert hold.version.content == Content.of(of)


@only_in_test_spark
def test_where_only_the_keys_are_asked_for_each_is_there_once(write, database):
    shop.TEXT.fill(database)
    hold = write(of_shape(shop.TEXT, "semi"))
    keys = [key for slot in rows_of(hold) for key, row in slot]
    assert sorted(keys) == sorted(key for (key,), rows in shop.TEXT.rows.items() if rows)
    assert {row for slot in rows_of(hold) for _, row in slot} == {""}


@only_in_test_spark
def test_a_view_is_read_too(write, database):
    shop.INT.fill(database)
    with psycopg.connect(database) as connection:
        connection.execute("CREATE VIEW seen AS SELECT * FROM goods")
    of = of_shape(shop.INT).model_copy(deep=True)
    of = of.model_copy(update={"master": of.master.model_copy(update={"table": "seen"})})
    assert rows_of(write(of)) == sql_rows(database, of_shape(shop.INT))


class Mover(threading.Thread):
    """Moves money between accounts, and with every update two rows to other places."""

    def __init__(self, database, accounts):
        super().__init__()
        self.database, self.accounts = database, accounts
        self.moves = 0
        self.stopped = threading.Event()

    def run(self):
        chance = np.random.default_rng(7)
        with psycopg.connect(self.database, autocommit=True) as connection:
            while not self.stopped.is_set():
                few = chance.choice(self.accounts, 400, replace=False).tolist()
                connection.execute(
                    "UPDATE accounts SET money = money + CASE WHEN id = ANY (%s) THEN 1 ELSE -1 END"
                    " WHERE id = ANY (%s)",
                    (few[:200], few),
                )
                self.moves += 1


def test_all_partitions_see_one_state_of_a_table_that_changes(write, database):
    accounts = 40_000
    with psycopg.connect(database) as connection:
        connection.execute("CREATE TABLE accounts (id bigint, money bigint, filler text)")
        connection.execute(
            "INSERT INTO accounts SELECT id, 100, repeat('x', 200) FROM generate_series(0, %s) id",
            (accounts - 1,),
        )
    of = pipeline("accounts", ["money"], slots=2)
    mover = Mover(database, accounts)
    mover.start()
    try:
        with master_state(database, of) as state:
            assert len(state.predicates(cores=2)) > 2
        before = mover.moves
        hold = write(of)
        assert mover.moves > before
    finally:
        mover.stopped.set()
        mover.join()
    rows = [row for slot in rows_of(hold) for row in slot]
    assert sorted(key for key, _ in rows) == list(range(accounts))
    money = sum(int(row.removeprefix('{"money":').removesuffix("}")) for _, row in rows)
    assert money == 100 * accounts


def test_a_partition_reads_its_blocks_alone(database):
    with psycopg.connect(database) as connection:
        connection.execute("CREATE TABLE wide (id bigint, name text)")
        connection.execute(
            "INSERT INTO wide SELECT id, repeat('x', 500) FROM generate_series(1, 5000) id"
        )
        connection.commit()
        with master_state(database, pipeline("wide", ["name"])) as state:
            first, *_ = state.predicates(cores=2)
            plan = connection.execute(
                f"EXPLAIN SELECT slot, row FROM ({state.query}) AS rows WHERE {first}"
            ).fetchall()
    assert "Tid Range Scan" in str(plan)


@only_in_test_spark
def test_versions_follow_each_other_and_the_run_has_its_row(write, database, tmp_path):
    shop.INT.fill(database)
    of = of_shape(shop.INT)
    assert [write(of).version.version for _ in range(3)] == [1, 2, 3]
    assert versions_of(tmp_path, of.name).numbers() == [1, 2, 3], "the first one is still held"
    (last,) = last_runs(control_engine(database), of.name)
    assert (last.job, last.state, last.error) == ("snapshot", "done", None)
    assert last.figures["rows"] == sum(shop.INT.rows.values())
    assert last.figures["version"] == 3


def test_a_failed_run_leaves_the_current_version(write, database, tmp_path):
    shop.INT.fill(database)
    of = of_shape(shop.INT)
    write(of)
    with psycopg.connect(database) as connection:
        connection.execute("DROP TABLE goods")
    with pytest.raises(Exception, match="goods"):
        write(of)
    versions = versions_of(tmp_path, of.name)
    assert (versions.current(), versions.numbers()) == (1, [1])
    assert not list(versions.folder.glob(".*.partial"))
    last, _ = last_runs(control_engine(database), of.name, most=2)
    assert last.state == "failed"
    assert "goods" in last.error


def test_a_pipeline_without_a_folder_is_told_to_name_one(spark, database, tmp_path):
    of = pipeline("goods", ["name"])
    settings = SparkSettings("none", database, tmp_path / "none")
    run = Run(control_engine(database), of.name, "snapshot")
    with run, pytest.raises(ConfigError, match=r"master\.snapshot"):
        snapshot.run(settings, of, spark, run, argparse.Namespace(to=None))


@pytest.fixture
def run_over_snapshot(stack, write, database, tmp_path):
    """Run a pipeline in this process, over a snapshot that is written first."""

    def run(spec):
        named = {"name": f"test-{uuid.uuid4().hex[:12]}", **spec}
        named["master"] = {**spec["master"], "snapshot": str(tmp_path)}
        pipeline = ThreadedPipeline(tmp_path, stack.bootstrap, database, named)
        write(pipeline.spec)
        return pipeline

    return run


@pytest.mark.parametrize(
    ("algorithm", "shape", "join"),
    [
        pytest.param("auto", shop.TEXT, "inner", id="auto"),
        pytest.param("meshjoin", shop.COMPOSITE, "left", id="scan", marks=only_in_test_spark),
        pytest.param("hybridjoin", shop.INT, "anti", id="index", marks=only_in_test_spark),
        pytest.param("srj", shop.COMPOSITE, "inner", id="lookup", marks=only_in_test_spark),
    ],
)
def test_a_pipeline_over_the_snapshot_gives_what_sql_gives(
    algorithm, shape, join, run_over_snapshot, database
):
    shape.fill(database)
    with run_over_snapshot({**shape.spec(join), "algorithm": algorithm}) as pipeline:
        events = shape.good_events()
        for _ in range(2):
            pipeline.send(events)
            final = pipeline.drain()
            assert not final.problems
        verdict = pipeline.verdict()
    assert verdict.differences == []
    assert final.taken == verdict.events == 2 * len(events)
    assert final.outputs == verdict.outputs == verdict.expected > 0


def test_a_new_version_is_taken_over_while_the_pipeline_runs(run_over_snapshot, write, database):
    with psycopg.connect(database) as connection:
        connection.execute("CREATE TABLE priced (id bigint, price int)")
        connection.execute("INSERT INTO priced SELECT id, 1 FROM generate_series(0, 99) id")
    spec = {
        "source": {"fields": {"id": "int", "sale": "int"}},
        "key": "id",
        "master": {"table": "priced", "columns": ["price"]},
        "algorithm": "meshjoin",
        "memory": "16MiB",
        "nodes": 2,
        "slots": 4,
    }
    with run_over_snapshot(spec) as pipeline:
        for sale in (1, 2, 3):
            pipeline.send(b'{"id":%d,"sale":%d}' % (id_, sale) for id_ in range(100))
            pipeline.drain()
            with psycopg.connect(database) as connection:
                connection.execute("UPDATE priced SET price = price + 1")
            write(pipeline.spec)
        found = [
            (row["id"], row["sale"], row["price"])
            for _, output in pipeline.messages(pipeline.topology.enriched)
            for row in [json.loads(output)]
        ]
    assert sorted(found) == sorted((id_, sale, sale) for id_ in range(100) for sale in (1, 2, 3))


@only_in_test_spark
def test_every_table_of_a_chain_has_versions_of_its_own(write, database, tmp_path):
    shop.INT.fill(database)
    with psycopg.connect(database) as connection:
        connection.execute("CREATE TABLE kinds (small int, kind text)")
        connection.execute("INSERT INTO kinds VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    chain = Pipeline.model_validate(
        {
            "name": "chained",
            "source": {"fields": {"id": "int"}},
            "key": "id",
            "master": {"table": "goods", "columns": {"c_small": "small"}},
            "then": [
                {
                    "key": "small",
                    "fields": {"small": "int"},
                    "master": {"table": "kinds", "columns": ["kind"]},
                }
            ],
        }
    )
    assert write(chain).version.rows == sum(shop.INT.rows.values())
    second = versions_of(tmp_path, "chained", 2)
    with Hold(second.path(second.current())) as hold:
        assert hold.version.content == Content.of(chain.link(2))
        assert sorted(row for slot in rows_of(hold) for row in slot) == [
            (1, '{"kind":"a"}'),
            (2, '{"kind":"b"}'),
            (3, '{"kind":"c"}'),
        ]


class Driver:
    """The job as a process of its own, started by the command line."""

    def __init__(self, database, folder, table="accounts"):
        self.folder = folder
        self.file = folder / "pipeline.yaml"
        spec = {
            "name": "killed",
            "source": {"fields": {"id": "int"}},
            "key": "id",
            "master": {"table": table, "columns": ["money"], "snapshot": "snapshots"},
            "slots": 2,
        }
        self.file.write_text(yaml.safe_dump(spec))
        self.environment = {**os.environ, "DATABASE_URL": database, "SPARK_DRIVER_MEMORY": "512m"}
        self.versions = versions_of(folder / "snapshots", "killed")

    def start(self):
        command = [sys.executable, "-m", "dovetail.cli", "spark", "snapshot", str(self.file)]
        log = (self.folder / "driver.log").open("a")
        with log:
            return subprocess.Popen(
                command, env=self.environment, stdout=log, stderr=log, start_new_session=True
            )

    def wait_for(self, process, seen):
        while not seen():
            assert process.poll() is None, (self.folder / "driver.log").read_text()
            time.sleep(0.02)

    def slots_being_written(self):
        return list(self.versions.folder.glob(".*.partial/*"))


@only_in_test_spark
def test_a_killed_driver_leaves_nothing_visible_and_the_next_run_cleans_up(database, tmp_path):
    with psycopg.connect(database) as connection:
        connection.execute("CREATE TABLE accounts (id bigint, money text)")
        connection.execute(
            "INSERT INTO accounts SELECT id, repeat('x', 100) FROM generate_series(1, 600000) id"
        )
    driver = Driver(database, tmp_path)
    process = driver.start()
    driver.wait_for(process, driver.slots_being_written)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert driver.versions.current() is None
    assert driver.versions.numbers() == []
    assert list(driver.versions.folder.glob(".*.partial"))
    assert driver.start().wait() == 0, (tmp_path / "driver.log").read_text()
    assert driver.versions.current() == 1
    assert sorted(path.name for path in driver.versions.folder.iterdir()) == ["00000001", "current"]
    with Hold(driver.versions.path(1)) as hold:
        assert hold.version.rows == 600_000
    last, killed = last_runs(control_engine(database), "killed", most=2)
    assert (last.state, killed.state) == ("done", "failed")
    assert "without a word" in killed.error


@only_in_test_spark
def test_what_the_database_has_against_it_is_told_in_a_line(database, tmp_path):
    with psycopg.connect(database) as connection:
        connection.execute("CREATE TABLE accounts (id bigint, money int)")
        connection.execute("INSERT INTO accounts VALUES (1, 1), (2, 0)")
        connection.execute("CREATE VIEW rich AS SELECT id, 1000 / money AS money FROM accounts")
    driver = Driver(database, tmp_path, table="rich")
    assert driver.start().wait() == 1
    said = (tmp_path / "driver.log").read_text().splitlines()
    assert said[-1].startswith("dovetail spark: Spark failed: Caused by:")
    assert said[-1].endswith("division by zero")
    assert driver.versions.current() is None


@only_in_test_spark
def test_spark_submit_runs_it_too(database, tmp_path):
    with psycopg.connect(database) as connection:
        connection.execute("CREATE TABLE accounts (id bigint, money text)")
        connection.execute("INSERT INTO accounts VALUES (1, 'a'), (2, 'b')")
    driver = Driver(database, tmp_path)
    submit = [Path(sys.executable).with_name("spark-submit"), "--master", "local[1]"]
    job = [CHECKOUT / "services" / "spark" / "__main__.py", "snapshot", driver.file]
    environment = {**driver.environment, "PYSPARK_PYTHON": sys.executable}

    def submitted(*options):
        return subprocess.run(
            [*submit, *options, *job], env=environment, capture_output=True, text=True, check=False
        )

    bare = submitted()
    assert bare.returncode == 1
    assert "dovetail spark jars" in bare.stdout
    listed = subprocess.run(
        [sys.executable, "-m", "dovetail.cli", "spark", "jars"], stdout=subprocess.PIPE, check=True
    )
    ended = submitted("--jars", listed.stdout.decode().strip())
    assert ended.returncode == 0, ended.stderr
    assert "rows 2" in ended.stdout
    assert driver.versions.current() == 1
