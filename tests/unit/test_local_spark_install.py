"""Spark comes beside a run that does not need it yet, and is waited for by one that does."""

from __future__ import annotations

import sys
import time

import pytest

from deploy.local import install, spark_install
from deploy.local.home import Home
from deploy.local.spark_install import SparkInstall
from dovetail.errors import StackError
from dovetail.pipeline.spec import Pipeline


def pipeline(engine):
    return Pipeline.model_validate(
        {
            "name": "sales",
            "engine": engine,
            "source": {"fields": {"id": "int"}},
            "key": "id",
            "master": {"table": "goods", "columns": ["name"]},
        }
    )


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """One without Spark, where installing it is a program of the test's."""
    there = tmp_path / "there"
    monkeypatch.setattr(spark_install, "is_installed", there.exists)

    def installs(program):
        words = [sys.executable, "-c", program.format(there=str(there))]
        monkeypatch.setattr(install, "command", lambda extras: words)
        return there

    return installs


def until_told(spark, reports):
    while not reports:
        spark.watch()
        time.sleep(0.01)
    return reports.pop()


def test_a_pipeline_of_services_starts_without_spark_and_has_it_later(tmp_path, machine):
    there = machine("open({there!r}, 'w')")
    reports = []
    with SparkInstall(Home(tmp_path), pipeline("services"), reports.append) as spark:
        spark.wait()
        assert not there.exists()
        spark.start()
        assert until_told(spark, reports) == "Spark is installed"
    assert there.exists()


def test_a_pipeline_on_spark_waits_for_it(tmp_path, machine):
    there = machine("import time; time.sleep(0.5); open({there!r}, 'w')")
    reports = []
    with SparkInstall(Home(tmp_path), pipeline("spark"), reports.append) as spark:
        spark.wait()
        assert there.exists()
    assert "waiting for Spark" in reports[0]


def test_a_failure_ends_a_pipeline_on_spark_and_is_told_to_another(tmp_path, machine):
    machine("raise SystemExit(1)")
    reports = []
    with SparkInstall(Home(tmp_path), pipeline("services"), reports.append) as spark:
        spark.start()
        assert "no cache is planned" in until_told(spark, reports)
    with (
        SparkInstall(Home(tmp_path), pipeline("spark"), reports.append) as spark,
        pytest.raises(StackError, match=r"install-spark\.log says why"),
    ):
        spark.wait()


def test_it_ends_with_the_run(tmp_path, machine):
    there = machine("import time; time.sleep(600)")
    with SparkInstall(Home(tmp_path), pipeline("spark"), print):
        pass
    assert not there.exists()


def test_here_it_is_installed():
    assert spark_install.is_installed()
