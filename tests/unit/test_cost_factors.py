import itertools

import numpy as np
import pytest

from dovetail.errors import ConfigError
from dovetail.join.cost.factors import NAMES, TYPICAL, Factors, Work
from dovetail.join.cost.measure import PAGES, affine, measure


def test_a_cost_is_counts_times_factors():
    factors = Factors(seek=1.0, page=0.5, append=0.25)
    assert factors.cost(Work(seek=1, page=4) + Work(append=2) * 3) == 1.0 + 2.0 + 1.5
    assert factors.read(4) == factors.cost(Work(seek=1, page=4))


def test_a_factor_that_cannot_be_is_refused():
    for wrong in (-1.0, float("nan"), float("inf")):
        with pytest.raises(ConfigError, match="probe"):
            Factors(probe=wrong)


def test_steps_of_different_mixtures_tell_the_factors_apart():
    truth = Factors(seek=200e-6, page=3e-6, append=80e-9, match=30e-9)
    learned = Factors(seek=50e-6, page=9e-6, append=20e-9, match=90e-9)
    dice = np.random.default_rng(3)
    for _ in range(4000):
        pages = float(dice.choice([1, 8, 64, 512]))
        reading = Work(seek=1, page=pages)
        joining = Work(append=float(dice.integers(10, 10_000)), match=70 * pages)
        for work in (reading, joining):
            learned = learned.refined(work, truth.cost(work) * dice.lognormal(0, 0.1))
    for name in ("seek", "page", "append", "match"):
        assert getattr(learned, name) == pytest.approx(getattr(truth, name), rel=0.15)


def test_refining_leaves_alone_what_the_step_did_not_do():
    refined = TYPICAL.refined(Work(seek=1, page=10), 1.0)
    untouched = set(NAMES) - {"seek", "page"}
    assert all(getattr(refined, name) == getattr(TYPICAL, name) for name in untouched)
    assert refined.seek > TYPICAL.seek


def test_a_step_without_work_or_time_teaches_nothing():
    assert TYPICAL.refined(Work(), 1.0) is TYPICAL
    assert TYPICAL.refined(Work(seek=1), 0.0) is TYPICAL


def test_an_affine_cost_is_found_again():
    fixed, each = affine(PAGES, [80e-6 + 2e-6 * pages for pages in PAGES])
    assert fixed == pytest.approx(80e-6)
    assert each == pytest.approx(2e-6)


@pytest.mark.parametrize(
    ("seconds", "fixed", "each"), [([1.0, 5.0, 30.0], 0, None), ([5.0, 4.0, 3.0], None, 0)]
)
def test_a_fit_never_falls_below_zero(seconds, fixed, each):
    found = affine([1, 4, 16], seconds)
    assert min(found) == 0
    assert max(found) > 0
    assert found[0] == fixed or found[1] == each


def test_measuring_reads_no_clock_but_the_one_it_is_given():
    ticks = itertools.count()
    asked = []
    factors = measure(
        lambda: float(next(ticks)), read=asked.append, lookup=lambda keys: keys, keys=20_000
    )
    # Every step takes one tick, whatever its size: so all is fixed and nothing is by the page.
    assert set(asked) == set(PAGES)
    assert factors.seek == pytest.approx(1.0)
    assert factors.page == pytest.approx(0.0, abs=1e-9)
    assert factors.request == pytest.approx(1.0)
    # A batch has 8192 items, and a step's own cost is what one page takes beyond its rows.
    assert factors.probe == factors.append == factors.match == pytest.approx(1 / 8192)
    assert factors.step == pytest.approx(1 - 64 / 8192)


def test_reading_ahead_takes_the_longer_of_reading_and_joining():
    factors = Factors(seek=2.0, page=1.0, append=0.5, read_ahead=True)
    assert factors.cost(Work(seek=1, page=3, append=4)) == 5.0
    assert factors.cost(Work(seek=1, page=3, append=20)) == 10.0
    assert factors.by_turns(Work(seek=1, page=3, append=4)) == 7.0
    # What was hidden behind the longer one is not learned from.
    refined = factors.refined(Work(seek=1, page=3, append=4), 10.0)
    assert refined.append == factors.append
    assert refined.seek > factors.seek


def test_without_a_reader_or_a_database_their_factors_are_the_typical_ones():
    ticks = itertools.count()
    factors = measure(lambda: float(next(ticks)), keys=20_000)
    assert (factors.seek, factors.page) == (TYPICAL.seek, TYPICAL.page)
    assert (factors.request, factors.key) == (TYPICAL.request, TYPICAL.key)
