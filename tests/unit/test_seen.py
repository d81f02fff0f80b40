import numpy as np
import pytest

from dovetail.join.seen import SeenLately


def keys(first, end):
    return np.arange(first, end, dtype=np.int64)


@pytest.mark.parametrize("memory", [0, 128, 5000, 1 << 20])
def test_it_takes_what_it_was_given_or_two_cache_lines(memory):
    assert SeenLately(memory).allocated <= max(128, memory)
    assert SeenLately(memory).allocated > memory - 128


def test_a_key_is_seen_from_its_second_time_on():
    seen = SeenLately(1 << 16)
    assert seen.see(np.array([1, 2, 1], np.int64)).tolist() == [False, False, True]
    assert seen.see(np.array([3, 2], np.int64)).tolist() == [False, True]


def test_a_key_seen_lately_is_never_denied():
    seen = SeenLately(1 << 12)
    window = (1 << 12) // 2  # bytes of a filter, and keys that it holds
    dice = np.random.default_rng(3)
    last = {}
    for step in range(200):
        some = np.unique(dice.integers(0, 5 * window, 100))
        found = seen.see(some)
        for key, was in zip(some.tolist(), found.tolist(), strict=True):
            if 100 * (step - last.get(key, -1_000_000)) < window:
                assert was
            last[key] = step


def test_few_that_were_not_seen_are_taken_for_such():
    seen = SeenLately(1 << 16)
    found = [seen.see(keys(first, first + 1000)).mean() for first in range(0, 200_000, 1000)]
    assert np.mean(found) < 0.08


def test_what_was_seen_long_ago_is_forgotten():
    seen = SeenLately(1 << 14)
    seen.see(keys(0, 1000))
    assert seen.see(keys(0, 1000)).all()
    seen.see(keys(10_000, 10_000 + 3 * (1 << 13)))
    assert seen.see(keys(0, 1000)).mean() < 0.1


def test_a_batch_may_be_larger_than_both_filters():
    seen = SeenLately(0)
    assert seen.see(keys(0, 10_000)).mean() < 0.3
    assert seen.see(keys(9_990, 10_000)).all()


def test_no_keys_are_fine():
    assert SeenLately(1 << 10).see(keys(0, 0)).tolist() == []
