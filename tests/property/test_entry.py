"""Entries and distinct keys against plain dicts, with texts that share their hash."""

import struct

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.join.columns import Column, JoinKeys
from dovetail.join.entry import HEADER, KEY_LENGTH, ROWS, SIZE, Entries, MasterRows, distinct

KEYS = st.one_of(
    st.integers(-(2**63), 2**63 - 1).map(lambda value: (value, b"")),
    st.tuples(st.integers(0, 2), st.binary(max_size=6)),
)
ROWS_OF_KEYS = st.lists(st.tuples(KEYS, st.binary(max_size=20).map(lambda b: b"{" + b + b"}")))


def join_keys(keys):
    return JoinKeys(np.array([v for v, _ in keys], np.int64), Column.of([t for _, t in keys]))


def rows_in(entry):
    """Read an entry in plain Python."""
    count, length = (struct.unpack_from("<i", entry, at)[0] for at in (ROWS, KEY_LENGTH))
    ends = struct.unpack_from(f"<{count}i", entry, HEADER)
    first = HEADER + 4 * count + length
    starts = (0, *ends[:-1]) if ends else ()
    return [entry[first + start : first + end] for start, end in zip(starts, ends, strict=True)]


@settings(max_examples=150, deadline=None)
@given(st.lists(KEYS, unique=True), ROWS_OF_KEYS)
def test_an_entry_has_exactly_its_keys_rows_in_their_order(keys, rows):
    rows += [(key, b"{%d}" % i) for i, key in enumerate(keys) for _ in range(i % 3)]
    master = MasterRows(join_keys([key for key, _ in rows]), Column.of([row for _, row in rows]))
    entries = Entries.of(join_keys(keys), master)
    Entries.received(Column(entries.data, entries.bounds))
    assert len(entries) == len(keys)
    for key, entry in zip(keys, Column(entries.data, entries.bounds), strict=True):
        assert struct.unpack_from("<q", entry)[0] == key[0]
        assert struct.unpack_from("<i", entry, SIZE)[0] == len(entry)
        assert len(entry) % 8 == 0
        assert rows_in(entry) == [b"," + row[1:] for owner, row in rows if owner == key]


@settings(max_examples=150, deadline=None)
@given(st.lists(KEYS, max_size=40).flatmap(lambda keys: st.permutations(keys + keys[::2])))
def test_distinct_keys_are_those_of_a_dict(keys):
    firsts, ranks = distinct(join_keys(keys))
    unique = list(dict.fromkeys(keys))
    assert [keys[first] for first in firsts] == unique
    assert firsts.tolist() == [keys.index(key) for key in unique]
    assert [unique[rank] for rank in ranks] == keys
