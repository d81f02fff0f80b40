"""What is beyond all bounds is refused in our own words, or works; nothing is left halfway."""

import pyarrow as pa
import pytest

from dovetail.api import at_least, join
from dovetail.errors import ConfigError, TooManyRowsError
from dovetail.join import collecting, entry
from dovetail.join.engine import Engine
from dovetail.join.pool import new_pool
from tests.unit.engine_kit import engine_for, events_of, read_once, relation_of, rows_each

ALGORITHMS = ("meshjoin", "srj", "hybridjoin")
LARGE = 2**63 + 5


def joined(stream, relation, on="k", **options):
    return pa.Table.from_batches(
        join([pa.record_batch(stream)], pa.table(relation), on=on, **options)
    )


@pytest.mark.parametrize("memory", [1 << 38, 1 << 80])
def test_more_memory_than_a_pool_can_number_is_refused(memory):
    with pytest.raises(ConfigError, match=r"more than one join can use: give it .*GiB at most"):
        joined({"k": [1]}, {"k": [1]}, memory=memory)


def test_memory_that_the_machine_has_not_is_refused(monkeypatch):
    def none_left(*_):
        raise MemoryError

    monkeypatch.setattr("dovetail.join.pool.np.empty", none_left)
    with pytest.raises(ConfigError, match="this machine has no 100000 bytes"):
        new_pool(100_000)


def test_no_read_holds_more_than_an_entry_can(monkeypatch):
    """With a disk buffer of 2 GB the rows of one key could fill it, and then fit into no entry."""
    made = []
    monkeypatch.setattr("dovetail.join.engine.Held", made.append)
    monkeypatch.setattr(Engine, "_choose", lambda *_: None)
    engine = Engine("srj", relation_of([1]).facts, 64 << 30)
    assert engine.disk_buffer == entry.LARGEST
    assert made == [(64 << 30) - entry.LARGEST]


def test_a_condition_may_have_more_memory_than_a_read_can_use(monkeypatch):
    monkeypatch.setattr("dovetail.join.overlap.engine.LARGEST", 100_000)
    relation = {"since": range(3000), "v": range(3000)}
    condition = at_least("at", "since")
    out = joined({"at": [1, 2999]}, relation, on=(), condition=condition, memory="1MiB")
    assert sorted(out["v"].to_pylist()) == sorted([0, 1, *range(3000)])


def test_the_key_alone_is_let_go_that_no_entry_can_hold(monkeypatch):
    """It is not the oldest one that waits."""
    monkeypatch.setattr(collecting, "LARGEST", 1000)
    relation = relation_of([1, 2, *[7] * 20, 3], 23)
    engine = engine_for("meshjoin", relation)
    engine.offer(events_of([1, 7, 2, 7, 3]))
    answers = read_once(engine, relation)
    assert sorted(answers.ids.tolist()) == [0, 2, 4]
    assert rows_each(answers) == [1, 1, 1]
    with pytest.raises(TooManyRowsError, match="join key 7 "):
        read_once(engine, relation)
    assert engine.dismiss().ids.tolist() == [1, 3]
    assert engine.held.free + engine.held.cached.blocks == engine.held.blocks


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_key_that_no_64_bit_int_holds_is_refused_with_the_cure(algorithm):
    relation = {"k": pa.array([1, LARGE], pa.uint64()), "v": [1, 2]}
    with pytest.raises(ConfigError, match=r"no 64-bit int holds .* cast both sides to text"):
        joined({"k": pa.array([1, 2], pa.uint64())}, relation, algorithm=algorithm)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_it_may_be_a_part_of_a_key_and_a_column(algorithm):
    numbers = pa.array([1, LARGE, LARGE + 1], pa.uint64())
    relation = {"k": numbers, "j": ["a", "b", "c"], "v": numbers}
    stream = {"k": numbers, "j": ["a", "b", "x"]}
    out = joined(stream, relation, on=["k", "j"], algorithm=algorithm)
    assert sorted(out["v"].to_pylist()) == [1, LARGE]


@pytest.mark.parametrize("order", [2**31, 2**63, 2**70])
def test_any_order_may_be_asked_for(order):
    out = joined({"k": [2, 1]}, {"k": [1, 2], "v": [10, 20]}, order=order)
    assert sorted(out["v"].to_pylist()) == [10, 20]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_keys_and_columns_may_be_views(algorithm):
    views = pa.array(["a", "b", "b", None], pa.string_view())
    raw = pa.array([b"1", None, b"33" * 20, b""], pa.binary_view())
    stream = {"k": ["b", "a", "c"]}
    out = joined(stream, {"k": views, "v": raw, "t": views}, algorithm=algorithm)
    rows = sorted(map(str, zip(*(out[name].to_pylist() for name in "kvt"), strict=True)))
    assert rows == sorted(map(str, [("b", None, "b"), ("b", b"33" * 20, "b"), ("a", b"1", "a")]))
    out = joined({"k": views, "e": raw}, {"k": ["a"]}, algorithm=algorithm)
    assert out.to_pylist() == [{"k": "a", "e": b"1"}]


def test_a_dictionary_of_views_is_refused():
    """Arrow itself cannot take their values."""
    views = pa.DictionaryArray.from_arrays(pa.array([0]), pa.array(["a"], pa.string_view()))
    with pytest.raises(ConfigError, match="'v' is of type dictionary"):
        joined({"k": [1]}, {"k": [1], "v": views})
