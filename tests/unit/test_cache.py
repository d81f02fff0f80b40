import numpy as np
import pytest

from dovetail.errors import ConfigError
from dovetail.join.cache import MISS, Inserted, MasterCache
from dovetail.join.columns import Column, JoinKeys
from dovetail.join.entry import HEADER, Entries, MasterRows


def ints(*keys):
    return JoinKeys.of_ints(np.array(keys, np.int64))


def entries(keys, size):
    """Entries of so many bytes each, with one row."""
    row = b"{" + b"x" * (size - HEADER - 4 - 1)
    keys = ints(*keys)
    return Entries.of(keys, MasterRows(keys, Column.of([row] * len(keys))))


def held(cache, keys):
    return [key for key, at in zip(keys, cache.find(ints(*keys)), strict=True) if at != MISS]


def test_a_budget_that_holds_nothing_is_refused_with_the_cure():
    with pytest.raises(ConfigError, match="more memory"):
        MasterCache(1000)


def test_a_new_cache_misses_everything():
    cache = MasterCache(10_000)
    assert cache.find(ints(0, -1, 5)).tolist() == [MISS] * 3
    assert (len(cache), cache.used) == (0, 0)
    assert cache.find(ints()).tolist() == []


def test_entries_may_fill_the_arena_exactly():
    cache = MasterCache(40_000)
    size = len(cache.arena) // 64 * 8
    cache = MasterCache(40_000 - (len(cache.arena) - 8 * size))
    assert len(cache.arena) == 8 * size
    assert cache.insert(entries(range(8), size)) == Inserted(entries=8, refused=0, evicted=0)
    assert cache.used == len(cache.arena)
    assert cache.insert(entries([8], size)) == Inserted(entries=1, refused=0, evicted=1)
    assert held(cache, range(9)) == list(range(1, 9))


def test_a_full_cache_of_used_entries_still_takes_one_more():
    cache = MasterCache(40_000)
    size = len(cache.arena) // 64 * 8
    cache.insert(entries(range(8), size))
    for key in range(8, 40):
        assert len(held(cache, range(key))) == 8
        assert cache.insert(entries([key], size)) == Inserted(entries=1, refused=0, evicted=1)


def test_an_entry_larger_than_an_eighth_of_the_arena_is_refused():
    cache = MasterCache(40_000)
    largest = len(cache.arena) // 64 * 8
    assert cache.insert(entries([1], largest)).refused == 0
    assert cache.insert(entries([2], largest + 8)) == Inserted(entries=0, refused=1, evicted=0)
    assert held(cache, [1, 2]) == [1]


def test_a_refused_entry_takes_the_older_one_of_its_key_along():
    cache = MasterCache(40_000)
    cache.insert(entries([1], 64))
    cache.insert(entries([1], len(cache.arena)))
    assert held(cache, [1]) == []


def test_used_entries_outlive_any_number_of_unused_ones():
    cache = MasterCache(64 << 10)
    hot, lukewarm = range(100), range(100, 200)
    cache.insert(entries(hot, 128))
    cache.insert(entries(lukewarm, 128))
    assert held(cache, lukewarm) == list(lukewarm)
    for first in range(1000, 11_000, 50):
        assert held(cache, hot) == list(hot)
        cache.insert(entries(range(first, first + 50), 128))
    assert held(cache, hot) == list(hot)
    assert held(cache, lukewarm) == []
    assert held(cache, range(10_950, 11_000)) == list(range(10_950, 11_000))


def test_a_replaced_key_has_its_new_rows_only():
    cache = MasterCache(10_000)
    for size in (64, 256, 32):
        cache.insert(entries([7], size))
        (at,) = cache.find(ints(7))
        expected = entries([7], size).data
        assert cache.arena[at + HEADER : at + size].tobytes() == expected[HEADER:].tobytes()
    assert len(cache) == 1


def test_a_key_inserted_over_and_over_does_not_push_out_others():
    cache = MasterCache(40_000)
    cache.insert(entries(range(10), 64))
    evicted = 0
    for _ in range(10_000):
        assert held(cache, range(10)) == list(range(10))
        evicted += cache.insert(entries([99], 1024)).evicted
    assert evicted == 0
    assert held(cache, [99]) == [99]


def test_values_are_evicted_with_every_text_that_shares_them():
    texts = Column.of([b"a", b"b", b"c", b"d"])
    keys = JoinKeys(np.array([5, 6, 5, 5], np.int64), texts)
    cache = MasterCache(10_000)
    cache.insert(Entries.of(keys, MasterRows(keys, Column.of([b"{}"] * 4))))
    cache.evict(keys.slice(0, 1))
    assert (cache.find(keys) == MISS).tolist() == [True, False, False, False]
    cache.evict_values(np.array([5, 1234], np.int64))
    assert (cache.find(keys) == MISS).tolist() == [True, False, True, True]
    assert cache.keys().tolist() == [6]
