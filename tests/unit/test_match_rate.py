from __future__ import annotations

import pytest

from dovetail.stream.match_rate import LATELY, MatchRate


@pytest.fixture
def rate():
    rate = MatchRate("products")
    for _ in range(100):
        rate.see(1_000, 950)
    return rate


def test_what_is_usual_is_no_alarm(rate):
    assert rate.alarm == ""
    assert rate.usual == pytest.approx(0.95)
    rate.see(1_000, 700)
    assert rate.alarm == ""


def test_an_emptied_table_is_noticed_and_its_return_too(rate):
    for _ in range(20):
        rate.see(1_000, 0)
    assert rate.alarm.startswith("only ")
    assert "% is usual" in rate.alarm
    assert "products" in rate.alarm
    for _ in range(1_000):
        rate.see(1_000, 0)
    assert rate.alarm, "a collapse does not become usual"
    for _ in range(20):
        rate.see(1_000, 940)
    assert rate.alarm == ""


def test_a_few_unlucky_events_at_the_start_are_no_alarm():
    rate = MatchRate("products")
    rate.see(10, 10)
    rate.see(LATELY // 2, 0)
    assert rate.alarm == ""


def test_where_hardly_anything_matches_nothing_can_collapse():
    rate = MatchRate("products")
    rate.see(100_000, 1_000)
    for _ in range(100):
        rate.see(1_000, 0)
    assert rate.alarm == ""


def test_one_large_batch_counts_for_no_more_than_all():
    rate = MatchRate("products")
    rate.see(10_000_000, 5_000_000)
    assert rate.lately == rate.usual == 0.5
