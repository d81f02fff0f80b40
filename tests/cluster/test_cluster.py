"""The snapshot job on a standalone cluster of one master and two workers, all on this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import psutil
import psycopg
import pytest
import yaml

from deploy.local.spark_cluster import SparkCluster
from dovetail.master.snapshot.versions import Hold, versions_of
from services.spark.runs import control_engine, last_runs
from tests.integration.test_spark_snapshot import rows_of

ROWS = 400_000
SLOTS = 6


@pytest.fixture(scope="module")
def cluster(stack):
    with SparkCluster(stack.home) as running:
        yield running


@pytest.fixture
def job(cluster, database, tmp_path):
    """Start the job on the cluster; gives its process, and the versions that it writes."""
    with psycopg.connect(database) as connection:
        connection.execute("CREATE TABLE accounts (id bigint, money int)")
        connection.execute(
            "INSERT INTO accounts SELECT id, id %% 97 FROM generate_series(1, %s) id", (ROWS,)
        )
    spec = {
        "name": "clustered",
        "source": {"fields": {"id": "int"}},
        "key": "id",
        "master": {"table": "accounts", "columns": ["money"], "snapshot": "snapshots"},
        "slots": SLOTS,
    }
    file = tmp_path / "pipeline.yaml"
    file.write_text(yaml.safe_dump(spec))
    environment = {
        **os.environ,
        "DATABASE_URL": database,
        "SPARK_MASTER": cluster.url,
        "SPARK_DRIVER_MEMORY": "512m",
        "SPARK_EXECUTOR_MEMORY": "512m",
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    log = (tmp_path / "driver.log").open("wb")
    command = [sys.executable, "-m", "dovetail.cli", "spark", "snapshot", str(file)]
    with log, subprocess.Popen(command, env=environment, stdout=log, stderr=log) as process:
        try:
            yield process, versions_of(tmp_path / "snapshots", "clustered")
        finally:
            process.kill()


def assert_whole(process, versions, database, tmp_path):
    assert process.wait() == 0, (tmp_path / "driver.log").read_text()
    with Hold(versions.path(versions.current())) as hold:
        rows = [row for slot in rows_of(hold) for row in slot]
    assert sorted(rows) == [(id_, f'{{"money":{id_ % 97}}}') for id_ in range(1, ROWS + 1)]
    (run,) = last_runs(control_engine(database), "clustered")
    assert (run.state, run.figures["rows"]) == ("done", ROWS)


def test_the_job_runs_on_both_workers(job, cluster, database, tmp_path):
    process, versions = job
    assert_whole(process, versions, database, tmp_path)
    for folder in cluster.folders:
        assert list(folder.glob("app-*/*/stderr")), f"no executor has run in {folder}"


def test_an_executor_that_is_killed_while_it_writes_costs_nothing(job, cluster, database, tmp_path):
    process, versions = job
    while not list(versions.folder.glob(".*.partial/*")):
        assert process.poll() is None, (tmp_path / "driver.log").read_text()
        time.sleep(0.02)
    executors = [
        child
        for pid in cluster.pids
        for child in psutil.Process(pid).children(recursive=True)
        if "CoarseGrainedExecutorBackend" in " ".join(child.cmdline())
    ]
    executors[0].send_signal(signal.SIGKILL)
    assert_whole(process, versions, database, tmp_path)
