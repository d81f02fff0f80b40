"""A short run: faults of different kinds within half a minute, and the output is SQL's."""

from __future__ import annotations

import os
import shutil

import pytest

from tests.chaos.run import DOVETAIL, Run, run
from tests.chaos.schedule import Kind

SHORT = Run(
    seed=4,
    seconds=25,
    rate=2_000,
    large=(
        Kind.BROKER_KILL,
        Kind.DATABASE_IMMEDIATE,
        Kind.DATABASE_CUT,
        Kind.NODE_ADDED,
        Kind.NODE_REMOVED,
        Kind.TERMINATE,
    ),
    kills=5,
)


@pytest.mark.timeout(400)
def test_the_output_of_a_short_run_is_sqls_whatever_is_killed(stack_environ):
    folder = DOVETAIL / "chaos" / f"test-{os.getpid()}"
    outcome = run(SHORT, folder, environ=stack_environ)
    assert outcome.passed, "\n".join(outcome.lines())
    assert len(outcome.kills) == SHORT.kills
    assert sum(entry.is_fault for entry in outcome.timeline) == len(SHORT.large) + SHORT.kills
    shutil.rmtree(folder)
