import numpy as np
import pytest

from dovetail.join.columns import Column, JoinKeys

VALUES = [b"one", b"", b"three", "vier ü".encode(), b"\x00"]


@pytest.fixture
def column():
    return Column.of(VALUES)


def test_a_column_gives_back_its_values(column):
    assert list(column) == VALUES
    assert len(column) == 5
    assert column[2] == b"three"


def test_a_column_of_nothing_is_empty():
    assert list(Column.of([])) == []
    assert Column.of([]).nbytes == 8


def test_a_slice_starts_where_it_is_cut_and_shares_the_buffer(column):
    part = column.slice(2, 4)
    assert list(part) == VALUES[2:4]
    assert part.data is column.data
    assert part.nbytes == len(b"".join(VALUES[2:4])) + 3 * 8
    assert list(part.slice(1, 2)) == VALUES[3:4]
    assert list(column.slice(3, 3)) == []


def test_values_are_taken_in_any_order_and_more_than_once(column):
    indices = np.array([4, 0, 0, 3], np.int64)
    assert list(column.take(indices)) == [VALUES[i] for i in indices]
    assert list(column.slice(1, 5).take(np.array([3, 1], np.int64))) == [VALUES[4], VALUES[2]]
    assert list(column.take(np.empty(0, np.int64))) == []


def test_spans_may_leave_bytes_out(column):
    spans = Column.of_spans(
        np.frombuffer(bytearray(b" {a} {b}\n"), np.uint8),
        np.array([1, 5], np.int64),
        np.array([4, 8], np.int64),
    )
    assert list(spans) == [b"{a}", b"{b}"]


def test_columns_are_put_after_one_another(column):
    joined = Column.concatenate([column.slice(1, 3), Column.of([]), column, column.slice(4, 5)])
    assert list(joined) == [*VALUES[1:3], *VALUES, VALUES[4]]
    assert joined.bounds[0] == 0


def test_one_column_is_not_copied_and_none_are_an_empty_one(column):
    assert Column.concatenate([column]) is column
    assert list(Column.concatenate([])) == []


def test_keys_are_taken_sliced_and_joined_with_their_texts(column):
    keys = JoinKeys(np.arange(5), column)
    assert list(keys.slice(2, 4).texts) == VALUES[2:4]
    taken = keys.take(np.array([3, 1], np.int64))
    assert (taken.values.tolist(), list(taken.texts)) == ([3, 1], [VALUES[3], VALUES[1]])
    both = JoinKeys.concatenate([keys.slice(4, 5), taken])
    assert (both.values.tolist(), list(both.texts)) == ([4, 3, 1], [*VALUES[4:], *taken.texts])
    assert len(JoinKeys.concatenate([])) == 0


def test_int_keys_have_empty_texts():
    keys = JoinKeys.of_ints(np.array([7, -1], np.int64))
    assert list(keys.texts) == [b"", b""]


def test_what_a_kernel_is_handed_is_contiguous_and_writable(column):
    """Else Numba would compile every kernel once more, in the middle of the stream."""
    columns = [
        *(column, Column.of([]), Column.empty_values(3), column.slice(1, 2)),
        *(column.take(np.array([1], np.int64)), Column.concatenate([column, column])),
    ]
    for array in (array for each in columns for array in (each.data, each.bounds)):
        assert array.flags.writeable
        assert array.flags.c_contiguous
        assert array.flags.aligned
