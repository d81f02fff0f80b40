"""A row for every run, one run of a job at a time, and what a dead process leaves."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys

import pytest
import sqlalchemy as sa
from fastapi import FastAPI
from fastapi.testclient import TestClient
from prometheus_client import CollectorRegistry, generate_latest

from dovetail.errors import ConfigError, Unavailable
from services.control.metrics import RunsCollector
from services.control.problems import tell_problems
from services.control.routes.spark import run_routes
from services.spark import runs
from services.spark.runs import RUNS, AlreadyRunsError, Run, control_engine, last_runs


@pytest.fixture
def engine(database):
    return control_engine(database)


def test_a_run_has_its_row_from_beginning_to_end(engine):
    assert last_runs(engine, "sales") == []
    with Run(engine, "sales", "snapshot") as run:
        run.figure("rows", 7)
        run.require()
        (row,) = last_runs(engine, "sales")
        assert (row.state, row.figures, row.ended_at) == ("running", {"rows": 7}, None)
        assert row.process.endswith(f":{os.getpid()}")
        run.figure("version", "new")
    (row,) = last_runs(engine, "sales")
    assert (row.id, row.job, row.state, row.error) == (run.id, "snapshot", "done", None)
    assert row.figures == {"rows": 7, "version": "new"}
    assert row.ended_at >= row.started_at


def test_a_run_that_fails_says_why(engine):
    with pytest.raises(ValueError, match="no room"), Run(engine, "sales", "snapshot"):
        raise ValueError("no room")
    (row,) = last_runs(engine, "sales")
    assert (row.state, row.error) == ("failed", "no room")


def test_one_run_of_a_job_a_pipeline_at_a_time(engine):
    with Run(engine, "sales", "snapshot"):
        mine = re.escape(f":{os.getpid()} since")
        with pytest.raises(AlreadyRunsError, match=mine), Run(engine, "sales", "snapshot"):
            pytest.fail("two at a time")
        with Run(engine, "sales", "frequency"), Run(engine, "returns", "snapshot"):
            pass
    with Run(engine, "sales", "snapshot"):
        pass
    assert [row.state for row in last_runs(engine, "sales", most=9)] == ["done"] * 3


DOOMED = """
import sys, time
from services.spark.runs import Run, control_engine
with Run(control_engine(sys.argv[1]), "sales", "snapshot"):
    print("running", flush=True)
    time.sleep(600)
"""


def test_a_killed_run_is_recognised_and_does_not_block_the_next(engine, database):
    process = subprocess.Popen(
        [sys.executable, "-c", DOOMED, database], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "running\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    with engine.begin() as connection:
        connection.execute(sa.update(RUNS).values(heard_at=sa.text("now() - interval '1 hour'")))
    (row,) = last_runs(engine, "sales")
    assert row.state == "lost", "nobody has heard of it for long"
    with Run(engine, "sales", "snapshot"):
        _, row = last_runs(engine, "sales", most=2)
        assert row.state == "failed"
        assert "without a word" in row.error


def test_a_run_that_loses_its_lock_is_told_before_anything_becomes_visible(engine, monkeypatch):
    monkeypatch.setattr(runs, "BEAT_S", 600.0)
    with Run(engine, "sales", "snapshot") as run:
        with engine.begin() as connection:
            connection.execute(
                sa.text(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
                )
            )
        with pytest.raises(Unavailable, match="start the job again"):
            run.require()
    (row,) = last_runs(engine, "sales")
    assert row.state == "done", "its end is written all the same"


def test_a_database_that_cannot_be_reached_is_unavailable():
    lost = control_engine("postgresql://nobody@127.0.0.1:9/none")
    with pytest.raises(Unavailable, match="control database"):
        last_runs(lost, "sales")
    with pytest.raises(Unavailable, match="control database"), Run(lost, "sales", "snapshot"):
        pytest.fail("it has begun")


def test_a_url_that_cannot_be_read_is_not_repeated():
    with pytest.raises(ConfigError, match="percent-encoded") as told:
        control_engine("secret@/:x:y://")
    assert "secret" not in str(told.value)


def test_the_control_service_shows_the_runs(engine):
    with Run(engine, "sales", "snapshot") as run:
        run.figure("rows", 7)
        run.figure("version", "new")
    registry = CollectorRegistry()
    registry.register(RunsCollector("sales", engine))
    shown = generate_latest(registry).decode()
    assert (
        'dovetail_spark_run_state{pipeline="sales",spark_job="snapshot",state="done"} 1.0' in shown
    )
    assert (
        'dovetail_spark_run_state{pipeline="sales",spark_job="snapshot",state="failed"} 0.0'
        in shown
    )
    assert 'dovetail_spark_run_rows{pipeline="sales",spark_job="snapshot"} 7.0' in shown
    assert "dovetail_spark_run_version{" not in shown, "a gauge is a number"
    app = FastAPI()
    app.include_router(run_routes("sales", engine))
    (row,) = TestClient(app).get("/v1/spark/runs").json()
    assert (row["state"], row["figures"]) == ("done", {"rows": 7, "version": "new"})


def test_without_the_database_the_other_figures_are_shown_all_the_same():
    lost = control_engine("postgresql://nobody@127.0.0.1:9/none")
    assert list(RunsCollector("sales", lost).collect()) == []
    app = FastAPI()
    app.include_router(run_routes("sales", lost))
    tell_problems(app)
    assert TestClient(app).get("/v1/spark/runs").status_code == 503
