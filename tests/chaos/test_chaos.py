"""A short run: eleven faults of different kinds within twenty seconds, and the output is SQL's."""

from __future__ import annotations

import os
import shutil

import pytest

from tests.chaos.run import DOVETAIL, Run, run
from tests.chaos.schedule import Kind

# A seed whose broker outage comes last: a node that leaves during one leaves its transaction to
# the broker's time-out, a minute.
LARGE = (
    Kind.BROKER_KILL,
    Kind.DATABASE_IMMEDIATE,
    Kind.DATABASE_CUT,
    Kind.NODE_ADDED,
    Kind.NODE_REMOVED,
    Kind.TERMINATE,
)
SHORT = Run(seed=323, seconds=20, rate=2_000, large=LARGE, kills=5)


@pytest.mark.timeout(400)
def test_the_output_of_a_short_run_is_sqls_whatever_is_killed(stack_environ):
    folder = DOVETAIL / "chaos" / f"test-{os.getpid()}"
    outcome = run(SHORT, folder, environ=stack_environ)
    assert outcome.passed, "\n".join(outcome.lines())
    assert len(outcome.kills) == SHORT.kills
    assert sum(entry.is_fault for entry in outcome.timeline) == len(LARGE) + len(outcome.kills)
    shutil.rmtree(folder)
