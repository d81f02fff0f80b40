"""Whatever arrives and however the phases serve, every event goes on or is shed."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.join.columns import JoinKeys
from dovetail.join.shedding.shedder import Shedder
from dovetail.join.shedding.strategies import TopW
from dovetail.testing.overload import SimulatedPhases

RATES = st.sampled_from([0, 1, 30, 1_000, 10**6])
STRETCHES = st.lists(
    st.tuples(
        st.integers(1, 40),  # ticks
        st.integers(0, 60),  # events a tick
        RATES,
        RATES,
        st.sampled_from([0.0, 0.1, 1.0]),
    ),
    min_size=1,
    max_size=6,
)


class KeyIsFrequency:
    def frequency(self, keys):
        return keys.values.astype(float)


@settings(deadline=None, max_examples=75)
@given(
    when_behind=st.sampled_from([1.0, 3.0, 30.0]),
    tick_s=st.sampled_from([0.05, 0.5, 3.0]),
    stretches=STRETCHES,
    seed=st.integers(0, 9),
)
def test_every_event_goes_on_or_is_shed_and_never_without_need(
    when_behind, tick_s, stretches, seed
):
    chance = np.random.default_rng(seed)
    shedder = Shedder(when_behind, TopW(KeyIsFrequency()))
    phases = SimulatedPhases(shedder, 1, 1)
    late = 0.0
    shed = 0
    for ticks, events, cache_rate, disk_rate, miss_share in stretches:
        phases.cache_rate, phases.disk_rate = cache_rate, disk_rate
        phases.miss_share = miss_share
        for _ in range(ticks):
            keys = JoinKeys.of_ints(chance.integers(0, 5, events))
            kept = phases.tick(tick_s, keys)
            late = max(late, shedder.behind)
            assert len(kept) == events
            lost = keys.values[~kept]
            shed += len(lost)
            if len(lost):
                assert shedder.shedding
                assert shedder.behind > when_behind / 4
                if kept.any():
                    assert keys.values[kept].min() >= lost.max()
            assert np.isfinite([shedder.behind, shedder.service_rate, shedder.arrival_rate]).all()
    assert phases.mapped + shed == phases.arrived
    if late <= when_behind:
        assert shed == 0


@settings(deadline=None, max_examples=30)
@given(
    when_behind=st.sampled_from([2.0, 10.0, 30.0]),
    rho=st.sampled_from([1.3, 2.0, 5.0]),
    miss_share=st.sampled_from([0.1, 0.5, 1.0]),
)
def test_under_any_lasting_overload_what_goes_on_is_what_can_be_served(
    when_behind, rho, miss_share
):
    served = 400.0
    shedder = Shedder(when_behind, TopW(KeyIsFrequency()))
    phases = SimulatedPhases(shedder, 1e6, served * miss_share, miss_share)
    keys = JoinKeys.of_ints(np.zeros(round(served * rho / 10), np.int64))
    # The longer it took to begin, the longer it takes to catch up, at half the service rate.
    begun = when_behind / (rho - 1) + shedder.patience + 2
    settling = round(10 * (begun + 2 * rho * begun + 10 * when_behind))
    for _ in range(settling):
        phases.tick(0.1, keys)
    before = phases.mapped
    for _ in range(300):
        phases.tick(0.1, keys)
    assert abs((phases.mapped - before) / (30 * served) - 1) < 0.05
    assert shedder.behind < when_behind
