"""When `make run` starts the job that plans the caches."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from deploy.local.home import Home
from deploy.local.planning import FIRST_S, NEEDED, Planning, planning
from deploy.local.processes import Managed
from dovetail.errors import ConfigError
from dovetail.pipeline.spec import Pipeline

EVERY_S = 600.0


class Demo:
    """A job that does as told, and a clock moved by hand."""

    def __init__(self, folder, job):
        self.now = 0.0
        self.available = NEEDED
        self.installed = True
        self.reports = []
        self.marks = folder / "marks"
        self.marks.touch()
        marking = f"open({str(self.marks)!r}, 'a').write('x'); {job}"
        self.job = Managed(Home(folder), "frequency", [sys.executable, "-c", marking])
        self.planning = Planning(
            self.job,
            EVERY_S,
            self.reports.append,
            clock=lambda: self.now,
            available=lambda: self.available,
            installed=lambda: self.installed,
        )

    def at(self, now):
        self.now = now
        self.planning.watch()

    def until_told(self):
        while not self.reports:
            self.planning.watch()
            time.sleep(0.01)
        return self.reports.pop()

    @property
    def runs(self):
        return len(self.marks.read_text())


@pytest.fixture
def demo(tmp_path):
    demos = []

    def make(job="pass"):
        demos.append(Demo(tmp_path, job))
        return demos[-1]

    yield make
    for one in demos:
        one.planning.stop()


def test_a_short_demo_starts_no_spark(demo):
    short = demo()
    short.at(EVERY_S - 1)
    assert short.job.pid is None
    assert EVERY_S > FIRST_S


def test_it_runs_again_and_again_and_tells(demo):
    long = demo()
    long.at(EVERY_S)
    assert "new plan" in long.until_told()
    long.at(2 * EVERY_S - 1)
    assert long.job.pid is None
    long.at(2 * EVERY_S)
    assert "new plan" in long.until_told()
    assert long.runs == 2


def test_it_is_not_started_twice_at_a_time(demo):
    slow = demo("import time; time.sleep(60)")
    slow.at(EVERY_S)
    first = slow.job.pid
    slow.at(3 * EVERY_S)
    assert slow.job.pid == first
    slow.planning.stop()
    assert slow.job.pid is None


def test_a_failure_is_told_and_another_try_follows(demo):
    failing = demo("raise SystemExit(1)")
    failing.at(EVERY_S)
    assert "frequency.log says why" in failing.until_told()
    failing.at(2 * EVERY_S)
    assert failing.until_told()


def test_without_memory_to_spare_it_waits(demo):
    full = demo()
    full.available = NEEDED - 1
    full.at(EVERY_S)
    assert "memory" in full.reports.pop()
    assert full.job.pid is None


def test_it_waits_until_spark_is_installed(demo):
    fresh = demo()
    fresh.installed = False
    fresh.at(EVERY_S)
    fresh.at(EVERY_S + 1)
    assert fresh.job.pid is None
    fresh.installed = True
    fresh.at(EVERY_S + 2)
    assert "new plan" in fresh.until_told()


def pipeline(algorithm):
    return Pipeline.model_validate(
        {
            "name": "sales",
            "algorithm": algorithm,
            "source": {"fields": {"id": "int"}},
            "key": "id",
            "master": {"table": "goods", "columns": ["name"]},
        }
    )


@pytest.mark.parametrize(("algorithm", "every"), [("auto", "off"), ("meshjoin", "5m")])
def test_where_nothing_is_to_be_planned_there_is_no_planning(tmp_path, algorithm, every):
    of = planning(Home(tmp_path), pipeline(algorithm), Path("p.yaml"), every, {}, print)
    assert of is None


@pytest.mark.parametrize("every", ["often", "5", "10s"])
def test_a_wrong_interval_is_told(tmp_path, every):
    with pytest.raises(ConfigError, match="--plan-every"):
        planning(Home(tmp_path), pipeline("auto"), Path("p.yaml"), every, {}, print)
