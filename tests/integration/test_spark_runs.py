"""A row for every run, one run of a job at a time, and what a dead process leaves."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager

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


def end_connections(engine):
    """What a restart of the database does to whoever is connected."""
    with engine.begin() as connection:
        connection.execute(
            sa.text(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        )


def test_a_run_that_has_lost_its_connection_goes_on_and_has_the_lock_again(engine, monkeypatch):
    monkeypatch.setattr(runs, "BEAT_S", 600.0)
    with Run(engine, "sales", "snapshot") as run:
        for rows in (7, 8):
            end_connections(engine)
            run.figure("rows", rows)
            run.require()
            (row,) = last_runs(engine, "sales")
            assert (row.state, row.figures) == ("running", {"rows": rows})
            with pytest.raises(AlreadyRunsError), Run(engine, "sales", "snapshot"):
                pytest.fail("two at a time")
    (row,) = last_runs(engine, "sales")
    assert row.state == "done"


def test_a_heartbeat_connects_anew_by_itself(engine, monkeypatch):
    monkeypatch.setattr(runs, "BEAT_S", 0.05)
    with Run(engine, "sales", "snapshot") as run:
        end_connections(engine)
        run.figure("rows", 7)
        for _ in range(100):
            (row,) = last_runs(engine, "sales")
            if row.figures:
                break
            threading.Event().wait(0.05)
        assert row.figures == {"rows": 7}


def test_a_run_that_another_has_taken_the_place_of_is_told_before_anything_becomes_visible(
    engine, monkeypatch
):
    monkeypatch.setattr(runs, "BEAT_S", 600.0)
    with Run(engine, "sales", "snapshot") as run:
        end_connections(engine)
        with (
            Run(engine, "sales", "snapshot"),
            pytest.raises(AlreadyRunsError, match="another run of snapshot of sales"),
        ):
            run.require()
        with pytest.raises(AlreadyRunsError, match="this one is over"):
            run.require()
    assert {row.state for row in last_runs(engine, "sales", most=2)} == {"done"}


def test_while_the_database_is_away_a_run_is_told_so_and_goes_on_when_it_is_back(
    engine, monkeypatch
):
    monkeypatch.setattr(runs, "BEAT_S", 600.0)
    with Run(engine, "sales", "snapshot") as run:
        with monkeypatch.context() as away:
            away.setattr(run, "_engine", control_engine("postgresql://nobody@127.0.0.1:9/none"))
            end_connections(engine)
            for _ in range(2):
                with pytest.raises(Unavailable, match="control database cannot be used"):
                    run.require()
        run.require()


@contextmanager
def held_rows(engine):
    """Whoever writes to the rows has to wait, as for a network that swallows packets."""
    with engine.begin() as connection:
        connection.execute(sa.select(RUNS.c.id).with_for_update())
        yield


def test_a_figure_is_noted_while_the_database_does_not_answer(engine, monkeypatch):
    monkeypatch.setattr(runs, "BEAT_S", 600.0)
    with Run(engine, "sales", "enrich") as run:
        asking = threading.Thread(target=run.require)
        noting = threading.Thread(target=run.figure, args=("rows", 7), daemon=True)
        with held_rows(engine):
            asking.start()
            wait_for_a_lock(engine)
            noting.start()
            noting.join(10)
            assert not noting.is_alive()
            assert asking.is_alive()
        asking.join(10)


def wait_for_a_lock(engine):
    waiting = sa.text("SELECT count(*) FROM pg_locks WHERE NOT granted")
    for _ in range(200):
        with engine.connect() as connection:
            if connection.scalar(waiting):
                return
        threading.Event().wait(0.05)
    pytest.fail("nobody waits")


def test_a_network_that_swallows_packets_is_noticed_on_both_sides(engine):
    with Run(engine, "sales", "snapshot") as run:
        told = run._connection.connection.dbapi_connection.info.get_parameters()
        assert told["tcp_user_timeout"] == "30000"
        assert told["keepalives_idle"] == "10"
        with run._guard:
            shown = run._connection.scalar(sa.text("SHOW tcp_keepalives_idle"))
        assert shown == "10"


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
