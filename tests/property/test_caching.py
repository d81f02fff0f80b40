"""The cache phase against a dict with the same policy: who is held, who left, byte for byte."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.join.cached import CREDIT, LARGEST_SHARE
from dovetail.join.caching import CachePhase
from dovetail.join.columns import Column, JoinKeys
from dovetail.join.entry import Entries, MasterRows
from dovetail.join.mapper import Mapper
from dovetail.join.policies import REVIEW_CYCLES
from dovetail.join.pool import LONGS, WORDS
from dovetail.join.records import COUNT, START
from dovetail.join.worth import AT_A_TIME

MEMORY = 8_000
SLOTS = 3
ROOM = 60
EDGES = [0, -1, 1, 2**63 - 1, -(2**63)]

# A key is (value, text). Texts have one of three values, so that many share theirs.
INT_KEYS = st.sampled_from([*EDGES, *range(2, 60)]).map(lambda value: (value, b""))
TEXT_KEYS = st.integers(0, 60).map(lambda n: (n % 3, b"\x1f".join([b"k" * (n % 70), b"%d" % n])))
ROW = st.integers(2, 120).map(lambda length: b"{" + b"x" * (length - 2) + b"}")
ROWS = st.lists(ROW, max_size=3) | st.integers(0, 40).map(lambda n: [b"{}"] * n)


def operations(keys):
    arrival = st.tuples(keys, ROWS, st.integers(1, 6), st.integers(0, 50))
    return st.lists(
        st.one_of(
            st.tuples(st.just("take"), st.lists(arrival, max_size=12), st.integers(0, 2)),
            st.tuples(st.just("take"), st.lists(arrival, max_size=12), st.just(0)),
            st.tuples(st.just("probe"), st.lists(keys, max_size=30), st.integers(1, 400)),
            st.tuples(st.just("probe"), st.lists(keys, max_size=30), st.integers(1, 400)),
            st.tuples(st.just("drop"), st.lists(keys, max_size=4), st.none()),
            st.tuples(st.just("expire"), st.integers(0, 50), st.none()),
            st.tuples(st.just("drop_slots"), st.sets(st.integers(0, SLOTS - 1)), st.none()),
        ),
        max_size=60,
    )


def join_keys(keys):
    return JoinKeys(np.array([v for v, _ in keys], np.int64), Column.of([t for _, t in keys]))


def entry_of(key, rows):
    return Entries.of(
        join_keys([key]), MasterRows(join_keys([key] * len(rows)), Column.of(rows))
    ).data.tobytes()


def blocks_beyond(room, length):
    return max(0, -(-(length - room) // ROOM))


def slots_of(keys, *, int_key):
    return Mapper(SLOTS, int_key=int_key).slots(join_keys(keys)).tolist()


class Key:
    def __init__(self, key, entry, read_at):
        self.entry = entry
        self.read_at = read_at
        self.takes = 2 + blocks_beyond(0, len(key[1])) + blocks_beyond(ROOM, len(entry))
        self.hits = 0
        self.credit = self.takes * CREDIT


class Model:
    """The cache as the table of policies tells it; `held` goes from the coldest to the hottest."""

    def __init__(self, kind, blocks):
        self.kind = kind
        self.blocks = blocks
        self.held = {}
        self.threshold = 2
        self.cycle = 0
        self.evicted = self.evicted_before = 0
        self.blocks_an_event = 2.0
        self.departed = []

    @property
    def taken(self):
        return sum(key.takes for key in self.held.values())

    def take(self, arrivals, cycle):
        threshold = self.threshold
        for key, entry, events, read_at in arrivals:
            new = Key(key, entry, read_at)
            old = self.held.pop(key, None)
            if old:
                new.hits, new.credit = old.hits, old.credit
            if not self._wanted(old, events, threshold) or not self._fits(new):
                self.departed.append(key)
            else:
                self.held[key] = new
        if cycle > self.cycle:
            self._turn(cycle - self.cycle)
            self.cycle = cycle

    def _wanted(self, old, events, threshold):
        if old or self.kind in ("lru", "inequality", "frequency"):
            return True
        return self.kind == "threshold" and events >= threshold

    def _fits(self, new):
        if new.takes * LARGEST_SHARE > self.blocks:
            return False
        while (
            self.kind in ("lru", "threshold", "frequency") and self.taken + new.takes > self.blocks
        ):
            coldest, key = next(iter(self.held.items()))
            del self.held[coldest]
            if self.kind in ("threshold", "frequency") and key.hits:
                key.hits >>= 1
                self.held[coldest] = key
            else:
                self.departed.append(coldest)
                self.evicted += 1
        return self.taken + new.takes <= self.blocks

    def _turn(self, cycles):
        if self.kind == "threshold":
            evicted = self.evicted - self.evicted_before
            self.evicted_before = self.evicted
            if evicted and evicted * 10 >= len(self.held):
                self.threshold += 1
            elif not evicted and self.taken < 0.9 * self.blocks:
                self.threshold = max(1, self.threshold - 1)
        enough = self.blocks * 7 // 8
        if self.kind == "inequality" and self.taken > enough:
            for key, state in list(self.held.items()):
                saved = state.hits * (AT_A_TIME * self.blocks_an_event) * CREDIT
                credit = state.credit + saved - 1.0 * (state.takes * CREDIT) * cycles
                most = REVIEW_CYCLES * state.takes * CREDIT
                state.credit = int(max(0.0, min(credit, float(most))))
                state.hits = 0
                if credit < 0 and self.taken > enough:
                    del self.held[key]
                    self.departed.append(key)
                    self.evicted += 1

    def probe(self, keys):
        for key in keys:
            if key in self.held:
                self.held[key].hits += 1
        if self.kind == "lru":
            for key in dict.fromkeys(key for key in keys if key in self.held):
                self.held[key] = self.held.pop(key)

    def see(self, event_bytes):
        blocks = 1 + blocks_beyond(40, event_bytes)
        self.blocks_an_event += 0.05 * (blocks - self.blocks_an_event)

    def expire(self, before):
        for key in [key for key, state in self.held.items() if state.read_at < before]:
            del self.held[key]
            self.departed.append(key)

    def drop(self, keys):
        for key in keys:
            self.held.pop(key, None)


class Pair:
    """The cache and the model, told the same."""

    def __init__(self, algorithm, kind, *, int_key):
        self.cache = CachePhase(algorithm, MEMORY)
        self.kind = kind
        self.model = Model(kind, self.cache._pool.blocks)
        self.int_key = int_key
        self.cycle = 0
        assert self.cache.allocated <= MEMORY

    def run(self, name, argument, more):
        getattr(self, name)(argument, more)
        self.agree()

    def take(self, arrivals, cycles):
        self.cycle += cycles
        arrivals = [(key, entry_of(key, rows), n, at) for key, rows, n, at in arrivals]
        column = Column.of([entry for _, entry, _, _ in arrivals])
        self.cache.take(
            Entries.received(column),
            np.array([n for _, _, n, _ in arrivals], np.int64),
            self.cycle,
            np.array([at for _, _, _, at in arrivals], np.int64),
        )
        self.model.take(arrivals, self.cycle)

    def probe(self, keys, event_bytes):
        hits = self.cache.probe(join_keys(keys))
        self.cache.see(event_bytes)
        self.model.see(event_bytes)
        expected = [at for at, key in enumerate(keys) if key in self.model.held]
        assert hits.positions.tolist() == expected
        assert sorted([*hits.positions.tolist(), *hits.misses.tolist()]) == list(range(len(keys)))
        for at, start in zip(expected, hits.starts.tolist(), strict=True):
            entry = self.model.held[keys[at]].entry
            assert hits.entries[start : start + len(entry)].tobytes() == entry
        assert len(hits.entries) == sum(
            len(self.model.held[key].entry) for key in {keys[at] for at in expected}
        )
        self.model.probe(keys)

    def drop(self, keys, _):
        self.cache.drop(join_keys(keys))
        self.model.drop(keys)

    def drop_slots(self, slots, _):
        self.cache.departed()
        self.model.departed.clear()
        self.cache.drop_slots(Mapper(SLOTS, int_key=self.int_key), list(slots))
        held = list(self.model.held)
        belongs = slots_of(held, int_key=self.int_key)
        self.model.drop([key for key, slot in zip(held, belongs, strict=True) if slot in slots])

    def expire(self, before, _):
        self.cache.expire(before, 0.4)
        self.cache.expire(before, 0.4)
        self.cache.expire(before, 0.4)
        self.model.expire(before)
        oldest = min((key.read_at for key in self.model.held.values()), default=2**31 - 1)
        assert self.cache.oldest == oldest

    def agree(self):
        gone = self.cache.departed()
        named = [
            (value, gone.texts[i] if not self.int_key else b"")
            for i, value in enumerate(gone.values.tolist())
        ]
        lost = self.cache._departed.lost
        self.cache._departed.state[2] = 0
        left = Counter(self.model.departed)
        self.model.departed.clear()
        assert not Counter(named) - left
        assert lost == left.total() - len(named)
        values = [value for value, _ in self.model.held]
        assert self.cache._cached.values().tolist() == values
        records = self.cache._cached.records()
        hits = self.cache._pool.words[records * WORDS + COUNT]
        assert hits.tolist() == [key.hits for key in self.model.held.values()]
        credit = self.cache._pool.longs[records * LONGS + START]
        assert credit.tolist() == [key.credit for key in self.model.held.values()]
        assert self.cache._cached.blocks == self.model.taken
        assert self.cache.used <= self.cache.allocated <= MEMORY
        assert self.cache.evicted - self.cache._expired == self.model.evicted


@pytest.mark.parametrize(
    ("algorithm", "kind"),
    [
        ("meshjoin", "none"),
        ("srj", "lru"),
        ("cachejoin", "threshold"),
        ("ssbj", "inequality"),
        ("auto", "frequency"),
    ],
)
@pytest.mark.parametrize("keys", [INT_KEYS, TEXT_KEYS], ids=["int", "text"])
def test_the_cache_holds_what_its_policy_says(algorithm, kind, keys):
    @settings(max_examples=60, deadline=None)
    @given(operations(keys))
    def check(steps):
        pair = Pair(algorithm, kind, int_key=keys is INT_KEYS)
        for step in steps:
            pair.run(*step)

    check()
