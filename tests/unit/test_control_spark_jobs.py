"""Which jobs on Spark control starts, and what it lets them be given."""

from __future__ import annotations

import argparse

import pytest

from dovetail.topology import ENRICH
from services.control import spark_jobs
from services.spark.jobs import JOBS


@pytest.mark.parametrize("job", JOBS)
def test_every_job_can_be_started_but_the_pipeline_itself(job, monkeypatch):
    monkeypatch.delenv(spark_jobs.SWITCH, raising=False)
    assert ("it is the pipeline itself" in spark_jobs.why_not(job)) == (job == ENRICH)
    assert bool(spark_jobs.why_not(job)) == (job == ENRICH)


@pytest.mark.parametrize("job", spark_jobs.ARGUMENTS)
def test_what_a_job_may_be_given_it_knows(job):
    parser = argparse.ArgumentParser()
    JOBS[job].load().add_arguments(parser)
    assert set(spark_jobs.ARGUMENTS[job]) <= parser._option_string_actions.keys()
