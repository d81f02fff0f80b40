import struct

import numpy as np
import pytest

from dovetail.errors import MasterDataError
from dovetail.join.columns import Column, JoinKeys
from dovetail.join.entry import HEADER, LARGEST, ROWS, SIZE, Entries, MasterRows, distinct


def ints(*keys):
    return JoinKeys.of_ints(np.array(keys, np.int64))


def texts(values, *names):
    return JoinKeys(np.array(values, np.int64), Column.of(list(names)))


def test_an_entry_has_the_layout_that_the_header_comment_promises():
    """Other releases read it from the migrations topic."""
    keys = texts([7], b"key")
    master = MasterRows(texts([7, 7], b"key", b"key"), Column.of([b'{"a":1}', b'{"a":22}']))
    rows = b'key,"a":1},"a":22}'
    header = struct.pack("<qiiiiii", 7, 56, 2, 3, 0, 7, 15)
    assert Entries.of(keys, master).data.tobytes() == header + rows + bytes(6)


def test_a_key_without_rows_has_an_entry_too():
    entries = Entries.of(ints(5), MasterRows(ints(), Column.of([])))
    assert entries.data.tobytes() == struct.pack("<qiiii", 5, HEADER, 0, 0, 0)
    assert entries.rows_each().tolist() == [0]


def test_no_keys_have_no_entries():
    entries = Entries.of(ints(), MasterRows(ints(1), Column.of([b"{}"])))
    assert len(entries) == 0
    assert entries.rows_each().tolist() == []


def test_rows_of_keys_that_were_not_asked_for_are_left_out():
    master = MasterRows(texts([7, 7, 8], b"a", b"b", b"a"), Column.of([b"{1}", b"{2}", b"{3}"]))
    entries = Entries.of(texts([7, 9], b"b", b"a"), master)
    assert entries.rows_each().tolist() == [1, 0]
    assert b",2}" in entries.data.tobytes()


def test_rows_come_from_slices_as_well():
    keys = texts([0, 1, 2, 3], b"zero", b"one", b"two", b"three")
    rows = Column.of([b"{0}", b"{1}", b"{2}", b"{3}"])
    master = MasterRows(keys.slice(1, 4), rows.slice(1, 4))
    whole = Entries.of(keys.take(np.array([2], np.int64)), MasterRows(keys, rows))
    assert Entries.of(keys.slice(2, 3), master).data.tobytes() == whole.data.tobytes()


def test_an_entry_beyond_two_gibibytes_is_refused_and_named():
    # Only the bounds are looked at before it is refused, so the bytes need not be there.
    rows = Column(np.empty(0, np.uint8), np.array([0, 2**30, 2**31 + 5], np.int64))
    with pytest.raises(MasterDataError, match=r"2 master rows of join key '4711' take 21474836"):
        Entries.of(ints(4711), MasterRows(ints(4711, 4711), rows))
    with pytest.raises(MasterDataError, match="join key 'acme'"):
        Entries.of(texts([1], b"acme"), MasterRows(texts([1, 1], b"acme", b"acme"), rows))


def test_the_largest_size_still_fits_its_field():
    assert struct.unpack("<i", struct.pack("<i", LARGEST)) == (LARGEST,)
    assert LARGEST % 8 == 0


def test_rows_of_several_queries_are_put_together():
    parts = [
        MasterRows(ints(1), Column.of([b"{1}"])),
        MasterRows(ints(), Column.of([])),
        MasterRows(ints(2, 1), Column.of([b"{2}", b"{3}"])),
    ]
    together = MasterRows.concatenate(parts)
    assert together.keys.values.tolist() == [1, 2, 1]
    assert list(together.rows) == [b"{1}", b"{2}", b"{3}"]
    assert len(MasterRows.concatenate([])) == 0


def test_distinct_ranks_keys_by_their_first_appearance():
    firsts, ranks = distinct(texts([5, 6, 5, 5, 6], b"a", b"a", b"b", b"a", b"a"))
    assert firsts.tolist() == [0, 1, 2]
    assert ranks.tolist() == [0, 1, 2, 0, 1]
    assert [part.tolist() for part in distinct(ints())] == [[], []]


def broken(change):
    entries = Entries.of(ints(1), MasterRows(ints(1, 1), Column.of([b"{1}", b"{2}"])))
    data = bytearray(entries.data.tobytes())
    return Column.of([bytes(change(data) or data)])


def put(at, number):
    return lambda data: struct.pack_into("<i", data, at, number)


@pytest.mark.parametrize(
    "change",
    [
        lambda _: b"1234567",
        lambda data: data[:-8],
        lambda data: data + bytes(8),
        put(SIZE, 1 << 20),
        put(ROWS, -1),
        put(ROWS, 1 << 20),
        put(16, -4),
        put(16, 1 << 20),
        put(HEADER, -1),
        put(HEADER + 4, 1),
        put(HEADER + 4, 1 << 20),
    ],
)
def test_a_message_that_is_no_entry_is_refused_before_a_kernel_sees_it(change):
    with pytest.raises(ValueError, match="does not hold an entry"):
        Entries.received(broken(change))


def test_whole_entries_are_taken_as_they_are():
    sent = Entries.of(ints(1, 2), MasterRows(ints(1, 1), Column.of([b"{1}", b"{2}"])))
    received = Entries.received(Column(sent.data, sent.bounds))
    assert received.rows_each().tolist() == [2, 0]
    assert len(Entries.received(Column.of([]))) == 0
    with pytest.raises(ValueError, match="entry"):
        Entries.received(Column.of([b""]))
