"""The jobs on Spark in a secured stack: each a user of its own, with what it needs and no more."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import psycopg
import pytest

from deploy.local.home import CHECKOUT
from dovetail.permissions import FREQUENCY, Resource, permissions_of
from dovetail.stream import acls
from dovetail.stream.topics import admin_of
from dovetail.topology import BACKFILL, ENRICH
from tests.e2e import shop
from tests.e2e.secured import database_of, secured_pipeline

SALES = 500
SPEC = {
    "source": {"partitions": 2, "fields": {"sale": "int", "product": "int"}},
    "key": "product",
    "master": {"table": "goods", "key": "id", "columns": ["name"]},
    "join": "inner",
    "algorithm": "cachejoin",
    "memory": "16MiB",
    "nodes": 1,
    "slots": 4,
}


@pytest.fixture(scope="module")
def ran(secured):
    """A pipeline that has run for some seconds, and left every tenth event unmatched; stopped."""
    with database_of(secured.stack) as database:
        with psycopg.connect(secured.stack.database.url_of(database)) as connection:
            connection.execute("CREATE TABLE goods (id int PRIMARY KEY, name text)")
            connection.execute(
                "INSERT INTO goods SELECT i, 'goods ' || i FROM generate_series(0, 8) i"
            )
        with secured_pipeline(secured.stack, database, SPEC, "secure-spark") as pipeline:
            with pipeline:
                for wave in range(3):
                    pipeline.send(sales(wave))
                    pipeline.pause(1.0)
                final = pipeline.drain()
                assert final.unmatched == 3 * SALES // 10
            yield pipeline


def sales(wave):
    for sale in range(wave * SALES, (wave + 1) * SALES):
        yield json.dumps({"sale": sale, "product": sale % 10}).encode()


def job(pipeline, name, *arguments):
    """Run a job as its own user."""
    folder = pipeline._home.folder
    return subprocess.run(
        [sys.executable, "-m", "services.spark", name, str(pipeline._file), *arguments],
        cwd=CHECKOUT,
        env={
            **os.environ,
            "KAFKA_BOOTSTRAP": pipeline.settings.bootstrap,
            "SPARK_LOCAL_DIRS": str(folder / "spark"),
            "DOVETAIL_FREQUENCIES": str(folder / "frequencies"),
            **pipeline.admission(name),
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


def without(pipeline, name, permission):
    """Run a job without one of its permissions."""
    admin, user = admin_of(pipeline.settings), pipeline.admission.users[name]
    acls.take(admin, user, [permission])
    try:
        return job(pipeline, name)
    finally:
        acls.give(admin, user, [permission])


@pytest.mark.timeout(900)
def test_a_plan_is_made_and_sent_with_no_more_than_is_derived(ran):
    # The caches have these keys: what they have is sent as well, so that anything is.
    ended = job(ran, FREQUENCY, "--all")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert re.search("sent_keys [1-9]", ended.stdout)


@pytest.mark.timeout(900)
def test_what_was_unmatched_is_completed_with_no_more_than_is_derived(ran):
    with psycopg.connect(ran.settings.database_url) as connection:
        connection.execute("INSERT INTO goods VALUES (9, 'goods 9')")
    ended = job(ran, BACKFILL)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    seen = ran.audit()
    assert seen.problems == []
    assert (seen.unmatched, seen.enriched) == (0, 3 * SALES)
    verdict = ran.verdict()
    assert verdict.differences == []
    assert verdict.outputs == verdict.expected == 3 * SALES


@pytest.mark.parametrize("name", [FREQUENCY, BACKFILL])
@pytest.mark.timeout(1800)
def test_a_job_without_one_of_its_permissions_ends_and_names_it(ran, name):
    needed = permissions_of(ran.topology, name)
    # On topics and groups it is asked before Spark starts: test_permissions.py has each of them.
    kinds = {one.resource: one for one in needed}
    assert set(kinds) == set(Resource)
    for permission in kinds.values():
        ended = without(ran, name, permission)
        told = ended.stderr.rstrip().splitlines()[-1]
        user = ran.admission.users[name]
        assert f"dovetail spark: user {user} lacks the Kafka ACL" in told, ended.stderr
        assert f"{permission.operation} on {permission.resource} {permission.name}" in told
        assert ended.returncode == 2


@pytest.mark.timeout(900)
def test_a_pipeline_on_spark_gives_what_sql_gives_with_no_more_than_it_needs(
    secured, database_name
):
    shape = shop.INT
    shape.fill(secured.stack.database.url_of(database_name))
    spec = {**shape.spec("inner"), "engine": "spark"}
    with secured_pipeline(secured.stack, database_name, spec, "secure-enrich") as pipeline:
        assert ENRICH in pipeline.admission.users
        with pipeline:
            for _ in range(2):
                pipeline.send([*shape.good_events(), b"no event"])
                assert not pipeline.drain().problems
            verdict = pipeline.verdict()
            assert verdict.differences == []
            assert verdict.outputs == verdict.expected > 0
