from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.demo.popularity import product_ids

unhurried = settings(deadline=None)  # the first call compiles


@unhurried
@given(rows=st.integers(1, 5_000), seed=st.integers(0, 2**64))
def test_every_product_has_exactly_one_rank(rows, seed):
    ids = product_ids(np.arange(1, rows + 1), rows, seed)
    assert np.array_equal(np.sort(ids), np.arange(1, rows + 1))


def test_popular_products_lie_all_over_the_catalogue():
    rows = 1_000_000
    ids = product_ids(np.arange(1, 10_001), rows)
    tenths = np.bincount((ids - 1) * 10 // rows, minlength=10)
    assert tenths.min() > 850
    assert tenths.max() < 1_150
    assert abs(np.corrcoef(np.arange(10_000), ids)[0, 1]) < 0.05


def test_another_seed_makes_other_products_popular():
    ranks = np.arange(1, 101)
    assert not np.array_equal(product_ids(ranks, 10_000, 1), product_ids(ranks, 10_000, 2))
