"""Keys that were chosen to meet in one place of a table do not: what is counted is steps."""

from __future__ import annotations

import numpy as np
import pytest

from dovetail.join.caching import CachePhase
from dovetail.join.columns import Column, JoinKeys
from dovetail.join.engine import Engine
from dovetail.join.entry import Entries, MasterRows, distinct
from dovetail.join.exchange import Events
from dovetail.join.keys import hash_text_many
from dovetail.join.kinds import JoinKind
from dovetail.join.overlap.conditions import Intervals
from dovetail.join.overlap.engine import OverlapJoin
from dovetail.join.overlap.exchange import IntervalEvents
from dovetail.join.overlap.index import sort_in
from dovetail.join.phase import Relation
from dovetail.join.pool import NONE
from dovetail.join.seeds import FACTOR, SEEDS, SHIFT, TEXT_WORDS, new_seeds
from dovetail.join.stir import identity, stirred
from dovetail.join.table import EMPTY, find, new_table, put

MANY = 2_000
_FIBONACCI, _OTHER = 0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93


def ints_of_one_tag(shift, factor, count=MANY):
    """Int keys whose hash has the same first 32 bits, for whoever knows the seeds."""
    ends = (np.uint64(0x12345678) << np.uint64(32)) + np.arange(count, dtype=np.uint64)
    bits = ends * np.uint64(pow(factor, -1, 1 << 64))
    bits = (bits ^ (bits >> np.uint64(32))) * np.uint64(pow(_FIBONACCI, -1, 1 << 64))
    return JoinKeys.of_ints((bits ^ np.uint64(shift)).view(np.int64))


def texts_of_one_hash(count=MANY):
    """Texts of 24 bytes: whatever stands in the first twelve, the others can undo."""
    chance = np.random.default_rng(7)
    first = chance.integers(0, 1 << 32, (count, 3), np.uint32)
    a, b, c = (np.uint32(0x9E3779B9 + 3923095 + 24) + first[:, i] for i in range(3))

    def rotated(word, by):
        return (word << np.uint32(by)) | (word >> np.uint32(32 - by))

    # One round of Jenkins' mix, as PostgreSQL has it (keys.py).
    a, c = (a - c) ^ rotated(c, 4), c + b
    b, a = (b - a) ^ rotated(a, 6), a + c
    c, b = (c - b) ^ rotated(b, 8), b + a
    a, c = (a - c) ^ rotated(c, 16), c + b
    b, a = (b - a) ^ rotated(a, 19), a + c
    c, b = (c - b) ^ rotated(b, 4), b + a
    second = np.stack([np.uint32(11) - a, np.uint32(22) - b, np.uint32(33) - c], axis=1)
    data = np.concatenate([first, second], axis=1).view(np.uint8).reshape(-1).copy()
    texts = Column(data, np.arange(count + 1, dtype=np.int64) * 24)
    return JoinKeys(hash_text_many(texts.data, texts.bounds), texts)


CHOSEN = {
    # What the tables' hash was before it had seeds, and what it would be with others.
    "ints": lambda: ints_of_one_tag(0, _OTHER),
    "ints by other seeds": lambda: ints_of_one_tag(17, 0x1234567890ABCDEF),
    "texts of one hash": texts_of_one_hash,
}


def longest_run(taken):
    """The most steps that a search can take: neighbours that are taken."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], taken.astype(np.int8), [0]])))
    return int((edges[1::2] - edges[::2]).max(initial=0))


def events_of(keys):
    data = Column.of([b'{"e":1}'] * len(keys))
    return Events(keys, data, np.arange(len(keys)))


def entries_of(keys):
    return Entries.of(keys, MasterRows(keys, Column.of([b'{"r":1}'] * len(keys))))


@pytest.fixture(params=CHOSEN)
def chosen(request):
    return CHOSEN[request.param]()


def test_the_chosen_keys_are_what_they_are_said_to_be():
    seeds = SEEDS.copy()
    seeds[SHIFT], seeds[FACTOR] = 17, 0x1234567890ABCDEF
    keys = ints_of_one_tag(17, 0x1234567890ABCDEF)
    assert len({stirred(seeds, int(key)) >> 32 for key in keys.values}) == 1
    assert len(set(keys.values.tolist())) == MANY
    texts = texts_of_one_hash()
    assert len(set(texts.values.tolist())) == 1
    assert len(set(texts.texts)) == MANY


def test_pending_keys_spread(chosen):
    engine = Engine("srj", Relation(), 1 << 20)
    assert engine.offer(events_of(chosen)).accepted == MANY
    assert longest_run(engine.held.pool.slots != NONE) < 60
    assert engine.awaited(chosen).all()


def test_cached_keys_spread(chosen):
    cache = CachePhase("srj", 1 << 20)
    now = np.zeros(MANY, np.int64)
    cache.take(entries_of(chosen), now + 9, 0, now)
    assert len(cache) == MANY
    assert longest_run(cache._pool.slots != NONE) < 60
    assert len(cache.probe(chosen).positions) == MANY


def test_keys_of_a_lookup_spread(chosen):
    seeds = SEEDS.copy()
    slots, positions = new_table(MANY)
    texts = chosen.texts
    for i, key in enumerate(chosen.values):
        put(seeds, slots, positions, key, texts.data, texts.bounds, i)
    assert longest_run(positions != EMPTY) < 100
    for i in (0, 1, MANY - 1):
        span = texts.data, texts.bounds[i], texts.bounds[i + 1]
        assert find(seeds, slots, positions, chosen.values[i], texts.data, texts.bounds, *span) == i
    firsts, _ = distinct(chosen)
    assert len(firsts) == MANY


def test_keys_of_a_range_join_do_not_share_their_candidates(chosen):
    join = OverlapJoin(JoinKind.INNER, Relation(page_bytes=1000), 1 << 20)
    every = np.zeros(MANY, np.int64)
    assert join.offer(IntervalEvents(events_of(chosen), Intervals(every, every + 1))).accepted
    sort_in(join._window)
    keys = join._window.keys[:MANY]
    assert len(np.unique(keys)) > MANY - 3
    assert len(np.unique(keys >> 52)) > 0.3 * MANY, "the first bits tell them apart"


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 7, 8, 63, 64, 65, 67, 68, 200])
def test_every_byte_of_a_text_and_its_length_count(length):
    seeds = SEEDS.copy()
    texts = [bytes(length)]
    texts += [bytes(i) + b"\1" + bytes(length - i - 1) for i in range(length)]
    texts += [bytes(length + 1), bytes(length - 1) or b"\2"]
    found = [
        identity(seeds, 0, np.frombuffer(bytearray(b"xx" + text), np.uint8), 2, 2 + len(text))
        for text in texts
    ]
    assert len(set(found)) == len(texts)
    assert 4 * TEXT_WORDS == 64, "lengths around it are tried above"


def test_each_process_has_seeds_of_its_own():
    assert not (new_seeds() == new_seeds()).any()
