import numpy as np
import pytest

from dovetail.join.columns import Column, JoinKeys
from dovetail.join.entry import Entries, MasterRows
from dovetail.join.kinds import JoinKind
from dovetail.join.splice import null_row, splice

EVENTS = Column.of([b'{"k":1,"n":"a"}', b'{"k":2}', b'{"k":3}'])
KEYS = JoinKeys.of_ints(np.array([1, 2, 3], np.int64))
MASTER = MasterRows(
    JoinKeys.of_ints(np.array([3, 1, 3], np.int64)),
    Column.of([b'{"v":"x"}', b'{"v":1.50}', b'{"v":null}']),
)
NO_ROW = null_row([b'"v"'])


@pytest.mark.parametrize(
    ("kind", "outputs", "unmatched"),
    [
        ("inner", [b'{"k":1,"n":"a","v":1.50}', b'{"k":3,"v":"x"}', b'{"k":3,"v":null}'], [1]),
        (
            "left",
            [
                b'{"k":1,"n":"a","v":1.50}',
                b'{"k":2,"v":null}',
                b'{"k":3,"v":"x"}',
                b'{"k":3,"v":null}',
            ],
            [],
        ),
        ("semi", [b'{"k":1,"n":"a"}', b'{"k":3}'], [1]),
        ("anti", [b'{"k":2}'], [0, 2]),
    ],
)
def test_outputs_are_the_events_own_bytes_and_the_rows(kind, outputs, unmatched):
    entries = Entries.of(KEYS, MASTER)
    spliced = splice(JoinKind(kind), EVENTS, entries.data, entries.bounds[:-1], NO_ROW)
    assert list(spliced.outputs) == outputs
    assert spliced.unmatched.tolist() == unmatched


@pytest.mark.parametrize("kind", JoinKind)
def test_no_events_have_no_outputs(kind):
    entries = Entries.of(KEYS, MASTER)
    nothing = np.empty(0, np.int64)
    spliced = splice(kind, Column.of([]), entries.data, nothing, NO_ROW)
    assert (len(spliced.outputs), len(spliced.events), len(spliced.unmatched)) == (0, 0, 0)


def test_a_key_with_very_many_rows_gives_as_many_outputs():
    count = 20_000
    key = JoinKeys.of_ints(np.array([9], np.int64))
    rows = Column.of([b'{"v":%d}' % i for i in range(count)])
    keys = JoinKeys.of_ints(np.full(count, 9, np.int64))
    entries = Entries.of(key, MasterRows(keys, rows))
    starts = np.zeros(3, np.int64)
    spliced = splice(JoinKind.INNER, EVENTS, entries.data, starts, NO_ROW)
    assert np.bincount(spliced.events).tolist() == [count] * 3
    assert spliced.outputs[count - 1] == b'{"k":1,"n":"a","v":19999}'
    assert spliced.outputs[2 * count] == b'{"k":3,"v":0}'


def test_semi_and_anti_joins_take_rows_without_columns():
    master = MasterRows(KEYS.slice(0, 1), Column.of([b""]))
    entries = Entries.of(KEYS, master)
    for kind, expected in (("semi", [0]), ("anti", [1, 2])):
        spliced = splice(JoinKind(kind), EVENTS, entries.data, entries.bounds[:-1], null_row([]))
        assert spliced.events.tolist() == expected


def test_the_row_of_nulls_has_every_column():
    assert null_row([b'"a"', '"ü"'.encode()]).tobytes() == ',"a":null,"ü":null}'.encode()
    assert null_row([]).tobytes() == b"}"
