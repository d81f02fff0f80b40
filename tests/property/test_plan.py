"""The plan's arithmetic against plain Python, brute force, and the cache it is made for."""

from __future__ import annotations

import math
from collections import defaultdict
from datetime import UTC, datetime
from itertools import combinations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dovetail.join.cached import LARGEST_SHARE
from dovetail.join.caching import LEAST, CachePhase
from dovetail.join.columns import Column, JoinKeys
from dovetail.join.entry import Entries, MasterRows
from dovetail.join.pool import BYTES_A_BLOCK
from dovetail.plan.counting import count
from dovetail.plan.ranking import Cut, Terms, rank
from dovetail.plan.recency import HOURS, fading, hours_of_week, watched_s, weights
from dovetail.plan.room import cache_blocks, entry_blocks, entry_bytes, event_blocks, slot_blocks
from dovetail.testing.fakes import join_keys, named

HOUR_MS = 3_600_000
NOW = 1_800_000_000_000
TIMES = st.integers(NOW - 60 * 24 * HOUR_MS, NOW)
HALF_LIVES = st.floats(60.0, 30 * 86400.0)
INT_KEYS = st.integers(-3, 3) | st.sampled_from([-(2**63), 2**63 - 1])
TEXT_KEYS = st.sampled_from([b"", b"a", "größe".encode(), b"de\x1f7"])


def ints(values):
    return np.array(values, np.int64)


@pytest.mark.parametrize("keys", [INT_KEYS, TEXT_KEYS], ids=["int", "text"])
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_counts_are_what_a_dictionary_counts(keys, data):
    events = data.draw(st.lists(st.tuples(keys, TIMES), max_size=60))
    half_life = data.draw(HALF_LIVES)
    known = [key for key, _ in events]
    assume(not known or isinstance(known[0], int) or any(known))
    counted = count(join_keys(known), ints([time for _, time in events]), NOW, half_life)
    expected = defaultdict(lambda: [0, 0.0])
    for key, time in events:
        moment = datetime.fromtimestamp(time / 1000, UTC)
        row = expected[key, moment.weekday() * 24 + moment.hour]
        row[0] += 1
        row[1] += 0.5 ** ((NOW - time) / 1000 / half_life)
    rows = zip(
        named(counted.keys) if len(counted) else [],
        counted.hours.tolist(),
        zip(counted.events.tolist(), counted.weights.tolist(), strict=True),
        strict=True,
    )
    assert {(key, hour): pytest.approx(list(row)) for key, hour, row in rows} == expected


@settings(deadline=None)
@given(times=st.lists(TIMES, min_size=1, max_size=20), half_life=HALF_LIVES, later=TIMES)
def test_weights_fade_alike_in_one_step_and_in_two(times, half_life, later):
    before = min(times)
    faded = weights(ints([before]), later, half_life) * fading(later, NOW, half_life)
    assert faded == pytest.approx(
        weights(ints([before]), NOW, half_life)
        if before <= later
        else fading(later, NOW, half_life)
    )


def test_an_event_from_the_future_counts_once_and_no_more():
    assert weights(ints([NOW + 10**15, 2**62]), NOW, 60.0).tolist() == [1.0, 1.0]


def test_the_week_begins_on_monday():
    monday = datetime(2026, 11, 16, 0, 59, tzinfo=UTC).timestamp() * 1000
    before = datetime(1969, 12, 31, 23, 0, tzinfo=UTC).timestamp() * 1000
    assert hours_of_week(ints([monday, 0, before])).tolist() == [0, 72, 71]


@settings(deadline=None)
@given(began=st.integers(1, 40 * 24 * 60), half_life=st.floats(3600.0, 30 * 86400.0))
def test_the_hours_of_the_week_add_up_to_the_whole(began, half_life):
    began_ms = NOW - began * 60_000
    by_hour = sum(watched_s(began_ms, NOW, half_life, hour) for hour in range(HOURS))
    whole = watched_s(began_ms, NOW, half_life)
    assert by_hour == pytest.approx(whole, rel=1e-6)
    assert 0 < whole <= began * 60 * (1 + 1e-9)


@settings(deadline=None)
@given(hour=st.integers(0, HOURS - 1), minutes=st.integers(0, 60 * 24 * 15))
def test_without_fading_watched_seconds_are_seconds(hour, minutes):
    began = NOW - minutes * 60_000
    seen = sum(hours_of_week(ints([time]))[0] == hour for time in range(began, NOW, 60_000))
    assert watched_s(began, NOW, 1e12, hour) == pytest.approx(60 * seen, abs=60)


def test_a_steady_rate_is_found_from_weights():
    times = np.arange(NOW - 9 * 86400_000, NOW, 60_000)
    rate = weights(times, NOW, 2 * 86400.0).sum() / watched_s(int(times[0]), NOW, 2 * 86400.0)
    assert rate == pytest.approx(1 / 60, rel=1e-3)


def test_nothing_was_watched_before_the_beginning():
    assert watched_s(NOW, NOW, 60.0) == watched_s(NOW + 5, NOW, 60.0) == 0
    assert watched_s(-(2**60), NOW, 60.0) == pytest.approx(60 / math.log(2))


@settings(max_examples=50, deadline=None)
@given(
    text=st.booleans(),
    rows=st.lists(st.integers(2, 200), max_size=20),
    key_bytes=st.integers(1, 200),
)
def test_an_entry_takes_what_the_cache_counts_for_it(text, rows, key_bytes):
    key = join_keys([b"k" * key_bytes]) if text else join_keys([7])
    length = key_bytes if text else 0
    master = MasterRows(
        key.take(np.zeros(len(rows), np.int64)), Column.of([b"{" + b"x" * (n - 1) for n in rows])
    )
    entries = Entries.of(key, master)
    arguments = ints([len(rows)]), ints([sum(rows)]), ints([length])
    assert entry_bytes(*arguments).tolist() == [entries.bounds[-1]]
    cache = CachePhase("auto", 1 << 20)
    cache.take(entries, ints([5]), 0, ints([0]))
    assert entry_blocks(*arguments).tolist() == [cache.used // BYTES_A_BLOCK]


@settings(deadline=None)
@given(memory=st.integers(LEAST, 64 << 20))
def test_a_cache_has_the_blocks_that_the_plan_thinks_or_a_few_more(memory):
    real = CachePhase("auto", memory)._pool.blocks
    assert 0 <= real - cache_blocks(memory) < 16


@settings(deadline=None)
@given(nodes=st.integers(1, 9), slots=st.integers(1, 40), memory=st.integers(LEAST, 64 << 20))
def test_no_node_gets_more_than_its_cache_however_slots_are_assigned(nodes, slots, memory):
    most = math.ceil(slots / nodes)
    assert slot_blocks(memory, slots, nodes) * most <= 7 / 8 * cache_blocks(memory)


def test_an_event_takes_a_block_and_one_more_for_each_60_bytes_beyond():
    assert [event_blocks(size) for size in (0, 10, 60 + 60)] == [1, 1, 3]


KEYS = st.lists(
    st.tuples(st.floats(0, 100), st.integers(0, 4), st.integers(0, 900), st.integers(0, 80)),
    max_size=40,
)
TERMS = st.builds(
    Terms,
    horizon_s=st.floats(0.01, 1000),
    event_blocks=st.floats(1, 4),
    cache_blocks=st.integers(0, 400),
    slot_blocks=st.integers(0, 60),
)


def ranked(keys, terms):
    columns = list(zip(*keys, strict=True)) or [()] * 4
    return rank(np.array(columns[0], np.float64), *map(ints, columns[1:]), terms)


@settings(deadline=None)
@given(keys=KEYS, terms=TERMS)
def test_who_is_a_candidate_satisfies_the_inequality_and_can_be_cached(keys, terms):
    found = ranked(keys, terms)
    for i, (rate, rows, row_bytes, key_bytes) in enumerate(keys):
        takes = entry_blocks(ints([rows]), ints([row_bytes]), ints([key_bytes]))[0]
        waiting = rate * terms.horizon_s * terms.event_blocks
        allowed = min(terms.cache_blocks // LARGEST_SHARE, terms.slot_blocks)
        assert found.candidates[i] == (takes < waiting and takes <= allowed)
        assert found.worth[i] == pytest.approx(rate * terms.horizon_s / (takes * BYTES_A_BLOCK))


@settings(deadline=None)
@given(
    keys=st.lists(st.tuples(st.integers(0, 2), st.integers(1, 12)), max_size=40),
    room=st.integers(0, 40),
    pieces=st.integers(1, 40),
)
def test_the_cut_is_greedy_slot_by_slot_however_it_is_fed(keys, room, pieces):
    cut = Cut(3, room)
    slots, blocks = np.array([slot for slot, _ in keys], np.int32), ints([b for _, b in keys])
    chosen = np.concatenate(
        [np.zeros(0, np.bool_)]
        + [
            cut.take(slots[i : i + pieces], blocks[i : i + pieces])
            for i in range(0, len(keys), pieces)
        ]
    )
    left = [room] * 3
    for (slot, takes), is_chosen in zip(keys, chosen.tolist(), strict=True):
        assert is_chosen == (takes <= left[slot])
        left[slot] -= takes * is_chosen
    assert min(left) >= 0


@settings(max_examples=100, deadline=None)
@given(
    rates=st.lists(st.floats(0.001, 100), max_size=9),
    sizes=st.data(),
    room=st.integers(1, 40),
    alike=st.booleans(),
)
def test_no_choice_of_keys_answers_more_than_the_plan(rates, sizes, room, alike):
    """Of equal sizes it is the best; of others it lacks one key of those left out at most."""
    one = sizes.draw(st.integers(2, 12))
    blocks = [one if alike else sizes.draw(st.integers(2, 12)) for _ in rates]
    order = sorted(range(len(rates)), key=lambda i: -rates[i] / blocks[i])
    taken = Cut(1, room).take(np.zeros(len(rates), np.int32), ints([blocks[i] for i in order]))
    planned = sum(rates[i] for i, chosen in zip(order, taken.tolist(), strict=True) if chosen)
    best = max(
        (
            sum(rates[i] for i in some)
            for size in range(len(rates) + 1)
            for some in combinations(range(len(rates)), size)
            if sum(blocks[i] for i in some) <= room
        ),
        default=0.0,
    )
    missed = [rates[i] for i, chosen in zip(order, taken.tolist(), strict=True) if not chosen]
    assert planned <= best + 1e-9
    assert planned + (0 if alike else max(missed, default=0.0)) >= best - 1e-9


def test_everything_that_a_plan_chooses_fits_the_real_cache():
    rng = np.random.default_rng(7)
    memory, slots, nodes, keys = 1 << 20, 4, 2, 20_000
    rows, row_bytes = rng.integers(0, 4, keys), rng.integers(2, 300, keys)
    row_bytes[rows == 0] = 0
    row_bytes = np.maximum(row_bytes, 2 * rows)
    terms = Terms(600.0, 2.0, cache_blocks(memory), slot_blocks(memory, slots, nodes))
    found = ranked(
        list(zip(rng.random(keys), rows, row_bytes, np.zeros(keys, np.int64), strict=True)), terms
    )
    order = np.argsort(-found.worth)
    order = order[found.candidates[order]]
    slot_of = (np.arange(keys) % slots).astype(np.int32)
    chosen = order[Cut(slots, terms.slot_blocks).take(slot_of[order], found.blocks[order])]
    for held in combinations(range(slots), 2):
        mine = chosen[np.isin(slot_of[chosen], held)]
        cache = CachePhase("auto", memory)
        for key in mine.tolist():
            lengths = np.full(rows[key], row_bytes[key] // max(1, rows[key]))
            if rows[key]:
                lengths[0] += row_bytes[key] - lengths.sum()
            one = JoinKeys.of_ints(ints([key]))
            master = MasterRows(
                one.take(np.zeros(rows[key], np.int64)),
                Column.of([b"{" * length for length in lengths.tolist()]),
            )
            cache.take(Entries.of(one, master), ints([5]), 0, ints([0]))
        assert len(cache) == len(mine)
        assert (cache.evicted, cache.refused) == (0, 0)
