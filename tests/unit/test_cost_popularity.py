import numpy as np
import pytest

from dovetail.demo.zipf import Zipf
from dovetail.errors import ConfigError
from dovetail.join.cost.popularity import CountedPopularity, ZipfPopularity, ranges
from dovetail.join.cost.zipf import harmonic

EXPONENTS = [0.0, 0.3, 0.999999999, 1.0, 1.000001, 1.7]


@pytest.mark.parametrize("exponent", EXPONENTS)
def test_harmonic_numbers_equal_the_sum(exponent):
    counts = np.array([0, 1, 2, 63, 64, 65, 1000, 123_456])
    sums = np.concatenate([[0], np.cumsum(np.arange(1, 123_457.0) ** -exponent)])
    assert harmonic(counts, exponent) == pytest.approx(sums[counts], rel=1e-9)


@pytest.mark.parametrize("skew", [0.0, 0.5, 1.0, 1.3])
def test_the_law_and_counts_in_its_proportion_agree(skew):
    law = ZipfPopularity(5000, skew)
    counted = CountedPopularity(Zipf(5000, skew).pmf())
    rows = np.array([0, 1, 10, 333, 4999, 5000])
    assert law.share(rows) == pytest.approx(counted.share(rows), abs=1e-9)
    pmf = Zipf(5000, skew).pmf()
    for density in (pmf[0] * 1.01, pmf[20] * 0.999, pmf[-1] * 0.99):
        assert law.rows_above(density) == counted.rows_above(density) == (pmf > density).sum()


def test_a_key_of_many_rows_ranks_by_its_events_a_row():
    counted = CountedPopularity([60, 30, 10], [10, 1, 1])
    assert counted.share([1, 2, 12]).tolist() == pytest.approx([0.3, 0.4, 1.0])
    assert counted.rows_above([0.2, 0.09, 0.05]).tolist() == [1, 2, 12]
    assert counted.rows_a_key == 4
    assert counted.matches == pytest.approx(0.6 * 10 + 0.3 + 0.1)


def test_keys_without_rows_are_answered_for_no_bytes():
    counted = CountedPopularity([50, 25, 25], [0, 1, 1])
    assert float(counted.share(0)) == 0.5
    assert float(counted.rows_above(1e9)) == 0


def test_rows_a_key_scale_the_law():
    single, triple = ZipfPopularity(1000, 1.0), ZipfPopularity(3000, 1.0, rows_a_key=3)
    assert triple.share(30) == pytest.approx(single.share(10))
    assert float(triple.rows_above(0.001)) == 3 * float(single.rows_above(0.003))


def test_a_tiny_skew_does_not_overflow():
    assert float(ZipfPopularity(1000, 1e-9).rows_above(1e-300)) == 1000


@pytest.mark.parametrize("total", [1, 1.5, 10, 64, 65, 12_345.6, 1e8])
def test_ranges_start_at_nothing_and_end_at_all(total):
    cut = ranges(total)
    assert cut[0] == 0
    assert cut[-1] == total
    assert (np.diff(cut) > 0).all()
    assert len(cut) < 300


@pytest.mark.parametrize(
    "make",
    [
        lambda: ZipfPopularity(0, 1.0),
        lambda: ZipfPopularity(10, -1.0),
        lambda: ZipfPopularity(10, 1.0, 11),
        lambda: CountedPopularity([]),
        lambda: CountedPopularity([0, 0]),
        lambda: CountedPopularity([1, -1]),
        lambda: CountedPopularity([1, 1], [0, 0]),
        lambda: CountedPopularity([1, 0], [0, 1]),
    ],
)
def test_what_cannot_be_is_refused(make):
    with pytest.raises(ConfigError):
        make()
