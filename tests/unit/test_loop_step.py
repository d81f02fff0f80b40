"""How far apart steps start, for how long they take, and when the next one need not wait."""

from __future__ import annotations

import numpy as np
import pytest

from dovetail.stream.handler import Pace, Step
from dovetail.stream.rdkafka import Records

STEP = Step(max_records=100, max_bytes=1_000, linger_s=0.1)


def records(count: int, size: int) -> Records:
    return Records(
        np.zeros(count, np.int32),
        np.arange(count),
        np.zeros(count, np.int64),
        np.zeros(size, np.uint8),
        np.linspace(0, size, count + 1).astype(np.int64),
        np.zeros(count, np.bool_),
    )


@pytest.mark.parametrize(
    ("count", "size", "full"),
    [(0, 0, False), (99, 750, False), (100, 10, True), (3, 751, True), (1, 5_000, True)],
)
def test_a_step_is_full_by_its_records_or_by_their_bytes(
    count: int, size: int, *, full: bool
) -> None:
    assert STEP.is_full(records(count, size)) is full


def test_a_step_goes_on_taking_for_longer_the_more_it_has_taken() -> None:
    longest = [STEP.longest(taken) for taken in (0, 1 << 20, 4 << 20, 64 << 20)]
    assert longest == pytest.approx([0.1, 0.15, 0.3, 0.3])


def test_an_idle_stages_transactions_take_no_more_than_their_share() -> None:
    assert STEP.pause(Pace(overhead_s=0.002)) == pytest.approx(0.002 / 0.05)


def test_who_works_more_gathers_for_longer_but_not_beyond_the_longest_step() -> None:
    pauses = [STEP.pause(Pace(0.001, busy)) for busy in (0.0, 0.2, 0.5, 0.9, 1.0)]
    assert pauses == pytest.approx([0.02, 0.03125, 0.08, 0.1, 0.1])
    assert STEP.pause(Pace(5.0, 0.0, taken=64 << 20)) == pytest.approx(0.3)


def test_before_the_first_step_nothing_is_waited_for() -> None:
    assert STEP.pause(Pace()) == 0


def test_a_pace_follows_its_steps() -> None:
    pace = Pace()
    for _ in range(50):
        pace.note(taken=1_000, worked_s=0.01, step_s=0.03, since_last_s=0.1)
    assert pace == Pace(pytest.approx(0.02), pytest.approx(0.1), 1_000)
    # What came after a while of nothing says that it is idle.
    pace.note(taken=10, worked_s=0.01, step_s=0.03, since_last_s=10.0)
    assert pace.busy == pytest.approx(0.001)
