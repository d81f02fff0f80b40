from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.demo.zipf import Zipf
from dovetail.errors import ConfigError

unhurried = settings(deadline=None)  # the first call compiles

EXPONENTS = [0.0, 0.5, 1.0, 1.5]


def surprise(observed, expected):
    """How many standard deviations a chi-square sum lies off (Wilson and Hilferty)."""
    freedom = len(observed) - 1
    ratio = ((observed - expected) ** 2 / expected).sum() / freedom
    spread = 2 / (9 * freedom)
    return (ratio ** (1 / 3) - (1 - spread)) / spread**0.5


def binned(keys):
    """Every early rank by itself, later ones in ranges that double."""
    return np.unique(np.r_[np.arange(min(20, keys)), np.geomspace(20, keys, 30).astype(int)])


@pytest.mark.parametrize("exponent", EXPONENTS)
@pytest.mark.parametrize("keys", [2, 50, 100_000])
def test_frequencies_follow_the_law(keys, exponent):
    law = Zipf(keys, exponent)
    draws = 400_000
    counts = np.bincount(law.ranks(seed=7, first=0, count=draws), minlength=keys + 1)[1:]
    starts = binned(keys)
    starts = starts[starts < keys]
    observed = np.add.reduceat(counts, starts)
    expected = np.add.reduceat(law.pmf() * draws, starts)
    assert abs(surprise(observed, expected)) < 4


def test_the_check_notices_a_law_that_is_slightly_off():
    draws = 400_000
    counts = np.bincount(Zipf(50, 1.0).ranks(7, 0, draws), minlength=51)[1:]
    assert surprise(counts, Zipf(50, 1.02).pmf() * draws) > 4


@unhurried
@given(
    keys=st.integers(1, 10**9),
    exponent=st.floats(0, 5),
    seed=st.integers(0, 2**64),
    first=st.integers(0, 2**40),
)
def test_ranks_stay_within_the_keys(keys, exponent, seed, first):
    ranks = Zipf(keys, exponent).ranks(seed, first, 200)
    assert ranks.min() >= 1
    assert ranks.max() <= keys


@unhurried
@given(cut=st.integers(0, 300), exponent=st.sampled_from(EXPONENTS))
def test_a_sequence_drawn_in_parts_is_the_same_sequence(cut, exponent):
    law = Zipf(1_000, exponent)
    parts = [law.ranks(3, 0, cut), law.ranks(3, cut, 300 - cut)]
    assert np.array_equal(np.concatenate(parts), law.ranks(3, 0, 300))


def test_another_seed_draws_another_sequence():
    law = Zipf(1_000, 1.0)
    assert not np.array_equal(law.ranks(1, 0, 50), law.ranks(2, 0, 50))


@pytest.mark.parametrize(("keys", "exponent"), [(0, 1.0), (10, -0.1), (10, float("nan"))])
def test_a_law_that_cannot_be_is_refused(keys, exponent):
    with pytest.raises(ConfigError):
        Zipf(keys, exponent)
