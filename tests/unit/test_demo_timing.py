from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

from dovetail.demo.timing import STREAMS, bursty, maximal, steady


def counts(timing, steps):
    return np.array([step.events for step in islice(timing, steps)])


def hurst(series):
    """The Hurst exponent by variance over time: means of m steps vary as m^(2H - 2)."""
    sizes = 2 ** np.arange(0, 9)
    variances = [
        series[: len(series) // size * size].reshape(-1, size).mean(axis=1).var() for size in sizes
    ]
    slope = np.polyfit(np.log(sizes), np.log(variances), 1)[0]
    return 1 + slope / 2


@pytest.mark.parametrize("rate", [0.5, 7, 1_000, 333_333.3])
def test_a_steady_stream_never_drifts_from_its_rate(rate):
    total = np.cumsum(counts(steady(rate), 5_000))
    due = rate * 0.01 * np.arange(1, 5_001)
    assert np.all((total <= due + 1e-6) & (total > due - 1 - 1e-6))


def test_steps_are_evenly_spaced():
    for timing in (steady(10), bursty(10, seed=1)):
        offsets = [step.offset for step in islice(timing, 50)]
        assert np.allclose(np.diff(offsets), 0.01)


def test_at_full_speed_everything_is_due_at_once():
    assert {step.offset for step in islice(maximal(), 10)} == {0.0}


def test_a_bursty_stream_keeps_its_mean_rate():
    assert counts(bursty(100_000, seed=3), 500_000).mean() == pytest.approx(1_000, rel=0.05)


def test_a_bursty_stream_starts_at_its_mean_and_not_with_a_burst():
    firsts = [next(bursty(100_000, seed)).events for seed in range(2_000)]
    assert np.mean(firsts) == pytest.approx(1_000, rel=0.05)


def test_a_bursty_stream_goes_from_silence_to_twice_the_mean():
    events = counts(bursty(100_000, seed=3), 100_000)
    assert events.min() == 0
    assert events.max() == pytest.approx(2_000, rel=0.01)


def test_each_virtual_stream_adds_its_own_power_of_two():
    rate = (2 ** (STREAMS + 1) - 2) / 2 * 100  # unscaled: an event of the figure is an event
    events = counts(bursty(rate, seed=3), 50_000)
    assert set(np.unique(events % 2)) == {0}
    assert len(np.unique(events)) > 900


def test_a_bursty_stream_is_self_similar_and_a_poisson_stream_is_not():
    poisson = np.random.default_rng(3).poisson(1_000, 200_000)
    assert hurst(poisson) == pytest.approx(0.5, abs=0.03)
    assert hurst(counts(bursty(100_000, seed=3), 200_000)) > 0.8


def test_the_same_seed_bursts_alike():
    assert np.array_equal(counts(bursty(500, 1), 2_000), counts(bursty(500, 1), 2_000))
    assert not np.array_equal(counts(bursty(500, 1), 2_000), counts(bursty(500, 2), 2_000))
