"""How far apart steps start, and when the next one need not wait."""

from __future__ import annotations

import numpy as np
import pytest

from dovetail.stream.handler import Step
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


def test_steps_start_further_apart_the_more_the_last_one_took() -> None:
    pauses = [STEP.pause(taken) for taken in (0, 1 << 20, 4 << 20, 64 << 20)]
    assert pauses == pytest.approx([0.1, 0.15, 0.3, 0.3])
