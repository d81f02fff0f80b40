"""A range join gives what SQL gives: all of it, once, within the budget, for every join kind."""

import json
import sqlite3
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dovetail.join.columns import Column
from dovetail.join.engine import fed
from dovetail.join.entry import MasterRows
from dovetail.join.exchange import Events, Read
from dovetail.join.kinds import JoinKind
from dovetail.join.overlap import conditions
from dovetail.join.overlap.conditions import LEAST, MOST, Intervals
from dovetail.join.overlap.engine import OverlapJoin
from dovetail.join.overlap.exchange import IntervalEvents, IntervalRead, no_key
from dovetail.join.overlap.window import buffer_of
from dovetail.join.phase import Relation
from dovetail.join.splice import null_row, splice
from tests.property.engine_cases import colliding_keys, int_keys, text_keys

MODEST = settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
NO_ROW = null_row([b'"r"'])
EXTREMES = [LEAST, LEAST + 1, MOST - 1, MOST]


def without_key(names):
    return no_key(len(names))


@dataclass(frozen=True)
class Case:
    stream: list[tuple[int, int, int]]
    """Key, low and high of each event."""
    pages: list[list[tuple[int, int, int]]]
    make_keys: object
    padding: int

    @property
    def master(self):
        return [row for page in self.pages for row in page]

    def events(self):
        data = [
            b'{"e":%d%s}' % (i, b" " * (i * 7 % (self.padding + 1)))
            for i in range(len(self.stream))
        ]
        keys = self.make_keys([key for key, _, _ in self.stream])
        events = Events(keys, Column.of(data), np.arange(len(data)) * 3 - 5)
        return IntervalEvents(events, intervals_of(self.stream))

    def read(self, request):
        before = np.cumsum([0, *map(len, self.pages)])
        numbers = request.numbers()
        rows = [
            (n + before[number], row)
            for number in numbers
            for n, row in enumerate(self.pages[number])
        ]
        data = Column.of([b'{"r":%d}' % n for n, _ in rows])
        master = MasterRows(self.make_keys([row[0] for _, row in rows]), data)
        ends = np.cumsum([len(self.pages[number]) for number in numbers])
        read = Read(master, len(numbers), ends)
        return IntervalRead(read, intervals_of([row for _, row in rows]))

    def facts(self):
        class One:
            def __init__(self, number):
                self.number = number

            def numbers(self):
                return [self.number]

        sizes = [self.read(One(number)).nbytes for number in range(len(self.pages))]
        return Relation(len(self.pages), max(sizes))

    def expected(self, kind):
        db = sqlite3.connect(":memory:")
        db.execute("CREATE TABLE s (e, k, lo, hi)")
        db.execute("CREATE TABLE r (r, k, lo, hi)")
        db.executemany(
            "INSERT INTO s VALUES (?, ?, ?, ?)", [(i, *s) for i, s in enumerate(self.stream)]
        )
        db.executemany(
            "INSERT INTO r VALUES (?, ?, ?, ?)", [(i, *r) for i, r in enumerate(self.master)]
        )
        same = "" if self.make_keys is without_key else "AND s.k = r.k"
        on = f"max(s.lo, r.lo) <= min(s.hi, r.hi) {same}"
        query = {
            JoinKind.INNER: f"SELECT e, r FROM s JOIN r ON {on}",
            JoinKind.LEFT: f"SELECT e, r FROM s LEFT JOIN r ON {on}",
            JoinKind.SEMI: f"SELECT e, NULL FROM s WHERE EXISTS (SELECT 1 FROM r WHERE {on})",
            JoinKind.ANTI: f"SELECT e, NULL FROM s WHERE NOT EXISTS (SELECT 1 FROM r WHERE {on})",
        }[kind]
        return sorted(db.execute(query).fetchall(), key=repr)


def intervals_of(triples):
    ends = np.array(triples, np.int64).reshape(-1, 3)
    return Intervals(ends[:, 1].copy(), ends[:, 2].copy())


@st.composite
def cases(draw):
    names = draw(st.integers(0, 6))
    value = st.one_of(st.integers(-20, 20), st.sampled_from(EXTREMES))
    width = draw(st.sampled_from([0, 2, 40]))

    @st.composite
    def interval(draw):
        low = draw(value)
        high = draw(st.one_of(st.just(low), value, st.just(min(MOST, low + width))))
        return draw(st.integers(0, names)), low, high

    return Case(
        stream=draw(st.lists(interval(), min_size=1, max_size=80)),
        pages=draw(st.lists(st.lists(interval(), max_size=6), min_size=1, max_size=12)),
        make_keys=draw(st.sampled_from([int_keys, text_keys, colliding_keys, without_key])),
        padding=draw(st.sampled_from([0, 30, 300])),
    )


class Outputs:
    def __init__(self, kind):
        self.kind = kind
        self.done = []
        self.without = []
        self.pairs = []

    def take(self, met):
        made = splice(self.kind, met.events, met.entries, met.starts, NO_ROW)
        for output, at in zip(made.outputs, made.events, strict=True):
            value = json.loads(output)
            assert met.ids[at] == value["e"] * 3 - 5
            self.pairs.append((value["e"], value.get("r")))
        self.without.extend(met.ids[made.unmatched].tolist())
        assert not set(self.done) & set(met.ids.tolist()), "an event that has left stays away"
        self.done.extend(met.done.tolist())


def bytes_really_allocated(join):
    window = join._window
    roots = [buffer_of(window), *(a for a in window if a.base is None)]
    for column in window[:-2]:
        assert np.shares_memory(column, roots[0]) or not len(column)
    return sum(root.nbytes for root in roots)


def drive(join, case, steps, between=lambda _: None):
    out = Outputs(join.kind)
    join._slice = [1, 300, 1 << 20][len(steps) % 3]
    events = case.events()
    at = step = 0
    while at < len(events) or join.wants() is not None:
        size = steps[step % len(steps)]
        step += 1
        offered = join.offer(events.slice(at, min(at + size, len(events))))
        at += offered.accepted
        out.take(offered.answers)
        assert bytes_really_allocated(join) + join.disk_buffer <= join.budget
        assert join.allocated <= join.budget
        between(step)
        request = join.wants()
        if request is not None and (not offered.accepted or step % 3):
            read = case.read(request)
            assert read.nbytes <= join.disk_buffer
            for met in fed(join, read):
                out.take(met)
        assert join.pending == at - len(out.done)
    return out


def check(out, case):
    assert sorted(out.done) == case.events().events.ids.tolist()
    assert sorted(out.pairs, key=repr) == case.expected(out.kind)
    assert sorted({e * 3 - 5 for e, _ in out.pairs} | set(out.without)) == sorted(out.done)
    assert len(out.without) == len(set(out.without)), "unmatched once"


steps = st.lists(st.integers(0, 50), min_size=1, max_size=6).filter(any)


@pytest.mark.parametrize("kind", JoinKind)
@MODEST
@given(
    case=cases(),
    steps=steps,
    memory=st.integers(1_100, 6_000),
    tunings=st.lists(st.tuples(st.integers(1, 15), st.integers(1, 30)), min_size=1),
)
def test_a_range_join_gives_what_sql_gives(kind, case, steps, memory, tunings):
    facts = case.facts()
    buffer = facts.page_bytes * 3
    join = OverlapJoin(kind, facts, memory + buffer, disk_buffer=buffer)
    check(drive(join, case, steps, lambda step: join.tune(*tunings[step % len(tunings)])), case)
    assert join.wants() is None, "an idle stream causes no reads"


@pytest.mark.parametrize("kind", JoinKind)
@pytest.mark.parametrize("make_keys", [int_keys, without_key])
@pytest.mark.parametrize("seed", range(3))
def test_many_events_of_all_widths_through_a_window_that_is_never_at_rest(kind, make_keys, seed):
    chance = np.random.default_rng(seed)

    def triples(count):
        lows = chance.integers(0, 5_000, count)
        widths = np.where(chance.random(count) < 0.01, 5_000, chance.integers(-1, 9, count))
        return list(
            zip(
                chance.integers(0, 4, count).tolist(),
                lows.tolist(),
                (lows + widths).tolist(),
                strict=True,
            )
        )

    rows = triples(300)
    case = Case(
        triples(2_500),
        [rows[i : i + 10] for i in range(0, 300, 10)],
        make_keys,
        padding=int(seed) * 90,
    )
    facts = case.facts()
    buffer = facts.page_bytes * 9
    join = OverlapJoin(kind, facts, 150_000 + buffer, disk_buffer=buffer)
    check(drive(join, case, [400, 100], lambda _: join.tune(int(chance.integers(1, 9)))), case)


SQL = {
    "s.a < r.a": (conditions.less_than(), 1, 1),
    "s.a <= r.a": (conditions.at_most(), 1, 1),
    "s.a > r.a": (conditions.greater_than(), 1, 1),
    "s.a >= r.a": (conditions.at_least(), 1, 1),
    "s.a BETWEEN r.a AND r.b": (conditions.between(), 1, 2),
    "r.a <= s.a AND s.a < r.b": (conditions.point_in_interval(), 1, 2),
    "r.a < s.a AND s.a < r.b": (conditions.point_in_interval("()"), 1, 2),
    "s.a < r.a AND r.a <= s.b": (conditions.interval_contains_point("(]"), 2, 1),
    "r.a BETWEEN s.a - 3 AND s.a + 2": (conditions.band(3, 2), 1, 1),
    "r.a BETWEEN s.a + 1 AND s.a + 4": (conditions.band(-1, 4), 1, 1),
    "s.a < s.b AND r.a < r.b AND s.a < r.b AND r.a < s.b": (conditions.overlaps(), 2, 2),
}
small = st.lists(
    st.tuples(*[st.one_of(st.integers(-6, 6), st.sampled_from(EXTREMES))] * 2), max_size=12
)


@pytest.mark.parametrize("sql", SQL)
@settings(max_examples=40, deadline=None)
@given(stream=small, master=small)
def test_a_condition_means_what_it_means_in_sql(sql, stream, master):
    condition, of_event, of_row = SQL[sql]
    db = sqlite3.connect(":memory:")
    for name, rows in (("s", stream), ("r", master)):
        db.execute(f"CREATE TABLE {name} (n, a, b)")
        db.executemany(
            f"INSERT INTO {name} VALUES (?, ?, ?)", [(i, *row) for i, row in enumerate(rows)]
        )
    expected = db.execute(f"SELECT s.n, r.n FROM s, r WHERE {sql}").fetchall()
    s, r = (np.array(rows, np.int64).reshape(-1, 2).T.copy() for rows in (stream, master))
    events, rows = condition.events(*s[:of_event]), condition.rows(*r[:of_row])
    overlap = np.maximum.outer(events.lows, rows.lows) <= np.minimum.outer(events.highs, rows.highs)
    assert sorted(expected) == sorted(map(tuple, np.argwhere(overlap).tolist()))


@settings(max_examples=100, deadline=None)
@given(a=st.floats(), b=st.floats())
def test_floats_keep_postgresqls_order(a, b):
    x, y = conditions.ordered_floats(np.array([a, b])).tolist()
    rank_a, rank_b = (
        (np.isnan(a), 0.0 if np.isnan(a) else a),
        (np.isnan(b), 0.0 if np.isnan(b) else b),
    )
    assert (x < y) == (rank_a < rank_b)
    assert (x == y) == (rank_a == rank_b)
    assert LEAST < x < MOST
