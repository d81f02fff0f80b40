"""Auto gives what SQL gives, however its clock runs and whatever it therefore chooses."""

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dovetail.join.auto import Auto
from dovetail.join.pending import UNBOUNDED
from tests.property.engine_cases import Outputs, cases
from tests.property.test_engine_exact import check
from tests.unit.engine_kit import events_of, relation_of

MODEST = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


class Erratic:
    """A clock that runs at any speed, so that any algorithm may look best."""

    def __init__(self, seed):
        self._dice = np.random.default_rng(seed)
        self._now = 0.0

    def __call__(self):
        self._now += 10 ** self._dice.uniform(-7, 1)
        return self._now


@MODEST
@given(
    case=cases(),
    steps=st.lists(st.integers(0, 50), min_size=1, max_size=6).filter(any),
    seed=st.integers(0, 1000),
    distance=st.sampled_from([UNBOUNDED, 5, 60]),
)
def test_auto_gives_what_sql_gives_and_never_exceeds_its_budget(case, steps, seed, distance):
    relation = case.relation()
    auto = Auto(relation.facts, 60_000, Erratic(seed), distance=distance, patience=1)
    out = Outputs()
    events = case.events()
    at = step = 0
    while at < len(events) or auto.wants() is not None:
        size = steps[step % len(steps)]
        step += 1
        offered = auto.offer(events.slice(at, min(at + size, len(events))))
        at += offered.accepted
        out.take(offered.answers)
        assert auto.allocated <= auto.budget
        request = auto.wants()
        if request is not None:
            out.take(auto.feed(relation.read(request)))
        assert auto.pending == at - len(out.ids)
    check(out, case)


def test_an_erratic_clock_does_make_auto_change_its_mind():
    relation = relation_of(range(500), 10, unique=True)
    auto = Auto(relation.facts, 60_000, Erratic(7), patience=1)
    for batch in range(60):
        auto.offer(events_of(np.random.default_rng(batch).integers(0, 500, 200)))
        for _ in range(3):
            request = auto.wants()
            if request is not None:
                auto.feed(relation.read(request))
    assert len({choice.algorithm for choice in auto.choices}) > 1
