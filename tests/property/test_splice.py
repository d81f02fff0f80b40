"""Every join kind against the same join written in plain Python."""

import json

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.join.caching import CachePhase
from dovetail.join.columns import Column, JoinKeys
from dovetail.join.entry import Entries, MasterRows, distinct
from dovetail.join.kinds import JoinKind
from dovetail.join.splice import null_row, oversized, slices, splice

NAMES = ["vendor", "price", "größe"]
NO_ROW = null_row([json.dumps(name, ensure_ascii=False).encode() for name in NAMES])

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
VALUES = st.none() | st.booleans() | st.integers() | TEXT
MASTER = st.fixed_dictionaries(dict.fromkeys(NAMES, VALUES))
EXTRA = st.dictionaries(st.sampled_from(["a", "b", '"', "ü"]), VALUES, max_size=3)


@st.composite
def joins(draw):
    """Events and master rows over a few keys, whose texts share their 64-bit values."""
    pool = draw(st.lists(TEXT, unique=True, min_size=1, max_size=5))
    key = st.sampled_from(pool)
    events = [{"key": k, **extra} for k, extra in draw(st.lists(st.tuples(key, EXTRA)))]
    rows = draw(st.lists(st.tuples(key, MASTER), max_size=12))
    return events, rows


def join_keys(texts):
    column = Column.of([text.encode() for text in texts])
    return JoinKeys(np.array([len(text) % 2 for text in texts], np.int64), column)


def encode(member, **options):
    return json.dumps(member, **options).encode()


def in_plain_python(kind, events, rows):
    for position, event in enumerate(events):
        matches = [row for key, row in rows if key == event["key"]]
        if kind is JoinKind.SEMI:
            outputs = [event] if matches else []
        elif kind is JoinKind.ANTI:
            outputs = [] if matches else [event]
        elif kind is JoinKind.LEFT:
            outputs = [{**event, **row} for row in matches or [dict.fromkeys(NAMES)]]
        else:
            outputs = [{**event, **row} for row in matches]
        yield position, outputs


def check(kind, events, entries, starts, batch, rows):
    spliced = splice(kind, batch, entries, starts, NO_ROW)
    expected = list(in_plain_python(kind, events, rows))
    outputs = [json.loads(output) for output in spliced.outputs]
    assert outputs == [output for _, matched in expected for output in matched]
    assert spliced.events.tolist() == [at for at, matched in expected for _ in matched]
    assert spliced.unmatched.tolist() == [at for at, matched in expected if not matched]
    for most in (1, 150, 400, 1_000_000):
        check_slices(spliced, list(slices(kind, batch, entries, starts, NO_ROW, most)), most)
    for most in (0, 20, 60, 120):
        places, sizes = oversized(kind, batch, entries, starts, NO_ROW, most)
        largest = {}
        for at, size in zip(spliced.events.tolist(), map(len, spliced.outputs), strict=True):
            if size > most:
                largest[at] = max(size, largest.get(at, 0))
        assert dict(zip(places.tolist(), sizes.tolist(), strict=True)) == largest


def check_slices(whole, made, most):
    """The slices are the whole one after the other, and none is larger, unless it is one output."""
    assert [output for part in made for output in part.outputs] == list(whole.outputs)
    for column in ("events", "unmatched"):
        together = [at for part in made for at in getattr(part, column).tolist()]
        assert together == getattr(whole, column).tolist()
    for part in made:
        outputs = len(part.outputs)
        assert outputs + len(part.unmatched) > 0
        assert outputs + len(part.unmatched) == 1 or part.outputs.size + 64 * outputs <= most


@settings(max_examples=100, deadline=None)
@given(joins(), st.sampled_from(JoinKind), st.booleans())
def test_a_lookup_joins_as_plain_python_does(join, kind, escaped):
    events, rows = join
    keys = join_keys([event["key"] for event in events])
    batch = Column.of([encode(event, ensure_ascii=escaped) for event in events])
    master = MasterRows(
        join_keys([key for key, _ in rows]),
        Column.of([encode(row, ensure_ascii=not escaped) for _, row in rows]),
    )
    firsts, ranks = distinct(keys)
    entries = Entries.of(keys.take(firsts), master)
    check(kind, events, entries.data, entries.bounds[ranks], batch, rows)


@settings(max_examples=100, deadline=None)
@given(joins(), st.sampled_from(JoinKind), st.integers(0, 3))
def test_the_cache_joins_as_plain_python_does_also_a_slice_of_a_batch(join, kind, skipped):
    events, rows = join
    keys = join_keys([event["key"] for event in events])
    batch = Column.of([encode(event) for event in events])
    master = MasterRows(
        join_keys([key for key, _ in rows]), Column.of([encode(row) for _, row in rows])
    )
    cache = CachePhase("srj", 200_000)
    firsts, _ = distinct(keys)
    ones = np.ones(len(firsts), np.int64)
    cache.take(Entries.of(keys.take(firsts), master), ones, 0, ones)
    assert len(cache) == len(firsts)
    skipped = min(skipped, len(events))
    hits = cache.probe(keys.slice(skipped, len(events)))
    batch = batch.slice(skipped, len(events))
    check(kind, events[skipped:], hits.entries, hits.starts, batch, rows)
