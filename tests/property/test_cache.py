"""The cache against a dict: whatever it finds is what was last put in, byte for byte."""

import struct

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.join.cache import MISS, MasterCache
from dovetail.join.columns import Column, JoinKeys
from dovetail.join.entry import HEADER, KEY, KEY_LENGTH, ROWS, SIZE, TOUCHED, Entries, MasterRows
from dovetail.join.table import EMPTY

EDGES = [0, -1, 1, 2**63 - 1, -(2**63)]

# A key is (value, text). Texts have one of three values, so that many share theirs.
INT_KEYS = st.sampled_from([*EDGES, *range(2, 40)]).map(lambda value: (value, b""))
TEXT_KEYS = st.integers(0, 40).map(lambda n: (n % 3, b"k" * (n % 5) + b"%d" % n))
ROW = st.integers(2, 120).map(lambda length: b"{" + b"x" * (length - 2) + b"}")
MANY_ROWS = st.lists(ROW, min_size=0, max_size=3) | st.integers(0, 40).map(lambda n: [b"{}"] * n)


def operations(keys):
    some = st.lists(keys, max_size=4, unique=True)
    return st.lists(
        st.one_of(
            st.tuples(st.just("insert"), keys, MANY_ROWS),
            st.tuples(st.just("insert"), keys, MANY_ROWS),
            st.tuples(st.just("find"), some, st.none()),
            st.tuples(st.just("evict"), some, st.none()),
            st.tuples(st.just("evict_values"), some, st.none()),
        ),
        max_size=120,
    )


def join_keys(keys):
    return JoinKeys(np.array([v for v, _ in keys], np.int64), Column.of([t for _, t in keys]))


def entries_of(key, rows):
    keys = join_keys([key])
    return Entries.of(keys, MasterRows(join_keys([key] * len(rows)), Column.of(rows)))


def untouched(entry):
    return entry[:TOUCHED] + bytes(4) + entry[TOUCHED + 4 :]


def int32(data, at):
    return struct.unpack_from("<i", data, at)[0]


def contents(cache):
    """Walk ring and table by themselves, and hold one against the other."""
    arena = cache.arena.tobytes()
    head, tail, lap, count = cache._ring.tolist()
    spans = [(tail, head)] if lap == 0 else [(tail, lap), (0, head)]
    alive = {}
    for start, end in spans:
        at = start
        while at < end:
            entry = arena[at : at + int32(arena, at + SIZE)]
            assert at % 8 == 0
            assert at + len(entry) <= end
            if int32(entry, TOUCHED) != -1:
                text = HEADER + 4 * int32(entry, ROWS)
                key = struct.unpack_from("<q", entry, KEY)[0]
                alive[at] = ((key, entry[text : text + int32(entry, KEY_LENGTH)]), entry)
            at += len(entry)
    in_table = cache._positions[cache._positions != EMPTY].tolist()
    assert sorted(in_table) == sorted(alive)
    assert count == len(alive) == len(cache)
    assert sorted(cache.keys().tolist()) == sorted(key[0] for key, _ in alive.values())
    assert cache.used == sum(end - at for at, end in spans)
    return {key: untouched(entry) for key, entry in alive.values()}


def check(budget, steps):
    cache = MasterCache(budget)
    arrays = (cache.arena, cache._keys, cache._positions, cache._ring)
    assert sum(array.nbytes for array in arrays) == cache.allocated <= budget
    held = {}
    for step, what, rows in steps:
        if step == "insert":
            entries = entries_of(what, rows)
            result = cache.insert(entries)
            too_large = len(entries.data) > len(cache.arena) // 8
            assert (result.entries, result.refused) == ((0, 1) if too_large else (1, 0))
            held.pop(what, None)
            if not too_large:
                held[what] = untouched(entries.data.tobytes())
            found = contents(cache)
            assert len(held) - len(found) == result.evicted
            assert too_large == (what not in found)
            held = {key: entry for key, entry in held.items() if key in found}
        elif step == "find":
            starts = cache.find(join_keys(what))
            assert [start != MISS for start in starts] == [key in held for key in what]
            for key, start in zip(what, starts.tolist(), strict=True):
                if start != MISS:
                    entry = cache.arena[start : start + len(held[key])].tobytes()
                    assert untouched(entry) == held[key]
        else:
            if step == "evict":
                cache.evict(join_keys(what))
                gone = set(what)
            else:
                values = {value for value, _ in what}
                cache.evict_values(np.array(sorted(values), np.int64))
                gone = {key for key in held if key[0] in values}
            held = {key: entry for key, entry in held.items() if key not in gone}
        assert contents(cache) == held
        assert cache.used <= len(cache.arena)
    assert all(array is now for array, now in zip(arrays, _arrays(cache), strict=True))


def _arrays(cache):
    return cache.arena, cache._keys, cache._positions, cache._ring


@settings(max_examples=150, deadline=None)
@given(st.integers(1400, 6000), operations(INT_KEYS))
def test_a_cache_of_int_keys_is_a_dict_that_forgets(budget, steps):
    check(budget, steps)


@settings(max_examples=150, deadline=None)
@given(st.integers(1400, 6000), operations(TEXT_KEYS))
def test_a_cache_of_texts_that_share_hashes_is_a_dict_that_forgets(budget, steps):
    check(budget, steps)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32), st.integers(1400, 9000), st.sampled_from([8, 60, 150]))
def test_it_stays_sound_over_many_laps(seed, budget, mean_bytes):
    """Longer than Hypothesis would make them by itself, so that the ring goes round often."""
    random = np.random.default_rng(seed)
    steps = []
    for _ in range(400):
        key = (int(random.integers(0, 60)) % 7, b"%d" % random.integers(0, 60))
        if random.random() < 0.6:
            size = int(min(random.exponential(mean_bytes), 500))
            rows = [b"{" + b"y" * size + b"}"] * int(random.integers(0, 3))
            steps.append(("insert", key, rows))
        elif random.random() < 0.9:
            steps.append(("find", [key], None))
        else:
            steps.append(("evict", [key], None))
    check(budget, steps)


@settings(max_examples=100, deadline=None)
@given(st.integers(1313, 5_000_000))
def test_what_it_allocates_never_exceeds_its_budget(budget):
    cache = MasterCache(budget)
    assert sum(array.nbytes for array in _arrays(cache)) == cache.allocated
    assert budget - 8 < cache.allocated <= budget
