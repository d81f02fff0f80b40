"""Arrow tables as the engine reads them: whole keys, whole pages, and never too much."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dovetail.api import ArrowTable, ParquetFile
from dovetail.api.arrow import ArrowSource
from dovetail.api.sizes import cuts, row_sizes
from dovetail.join.columns import Column, JoinKeys
from dovetail.join.exchange import Keys, Pages, Partition
from dovetail.join.keys import hash_text_many

AMPLE = 1 << 20


def ints(*keys):
    return JoinKeys.of_ints(np.array(keys, np.int64))


def texts(*keys):
    column = Column.of([key.encode() for key in keys])
    return JoinKeys(hash_text_many(column.data, column.bounds), column)


@pytest.fixture
def opened(tmp_path):
    def opened(keys, group):
        path = tmp_path / "r.parquet"
        rows = list(range(len(keys)))
        pq.write_table(pa.table({"k": keys, "r": rows}), path, row_group_size=group)
        return ArrowSource(ParquetFile(path)).open(["k"], ["r"], unique=None)

    return opened


def test_a_partition_leaves_out_a_key_that_goes_on_in_another_row_group(opened):
    relation = opened([1, 2, 2, 2, 3, 4], group=3)
    assert relation.read(Partition(ints(1)), AMPLE).rows.keys.values.tolist() == [1]
    assert relation.read(Partition(ints(3)), AMPLE).rows.keys.values.tolist() == [3, 4]
    assert relation.read(Partition(ints(2)), AMPLE).rows.keys.values.tolist() == [2, 2, 2]


def test_a_partition_ends_between_two_keys_where_the_room_ends(opened):
    relation = opened([key for key in range(100) for _ in range(7)], group=1000)
    for most in (2_000, 5_000, AMPLE):
        read = relation.read(Partition(ints(10)), most)
        assert read.nbytes <= most
        keys, counts = np.unique(read.rows.keys.values, return_counts=True)
        assert keys.tolist() == list(range(keys[0], keys[-1] + 1))
        assert (counts == 7).all()
        for key in keys:
            again = relation.read(Partition(ints(key)), most)
            assert np.unique(again.rows.keys.values).tolist() == keys.tolist(), "whoever asks"
    assert (keys[0], keys[-1]) == (0, 99)


def test_a_partition_whose_first_key_is_too_large_has_no_row_of_it(opened):
    relation = opened([5] * 500, group=1000)
    assert len(relation.read(Partition(ints(4)), 2_000).rows) == 0
    assert len(relation.read(Partition(ints(5)), 2_000).rows) == 500


def test_rows_are_measured_by_what_they_say_not_by_what_arrow_holds():
    texts = ["", "a", None, "x" * 1000]
    indices = pa.array([3, 0, None, 1, 3], pa.int8())
    kinds = (pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.binary_view())
    for kind in kinds:
        values = pa.array(texts, pa.string()).cast(kind)
        assert row_sizes(pa.record_batch({"v": values})).tolist() == [0, 1, 0, 1000]
        assert row_sizes(pa.record_batch({"v": values.slice(1)})).tolist() == [1, 0, 1000]
    coded = pa.DictionaryArray.from_arrays(indices, pa.array(texts))
    assert row_sizes(pa.record_batch({"v": coded})).tolist() == [1000, 0, 0, 1, 1000]
    chunked = pa.table({"v": pa.chunked_array([coded.slice(3), coded]), "i": range(7)})
    assert row_sizes(chunked).tolist() == [9, 1008, 1008, 8, 8, 9, 1008]
    empty = pa.DictionaryArray.from_arrays(pa.array([None], pa.int8()), pa.array([], pa.string()))
    assert row_sizes(pa.record_batch({"v": empty, "l": [[1, 2]]})).tolist() == [0]


def test_a_part_takes_what_it_may_or_is_one_row():
    assert cuts(np.array([3, 3, 3, 50, 1, 9, 1, 4]), 10) == [3, 4, 6, 8]
    assert cuts(np.array([], np.int64), 10) == []


def test_a_table_is_cut_where_its_rows_are_wide():
    wide = pa.DictionaryArray.from_arrays(
        pa.array(np.arange(200_000) // 100_000, pa.int8()), pa.array(["x", "y" * 10_000])
    )
    table = ArrowTable(pa.table({"k": range(200_000), "v": wide}))
    assert sum(table.rows) == 200_000
    assert table.rows[0] == 1 << 16
    assert max(table.rows[2:]) < 1000
    starts = np.cumsum([0, *table.rows])
    for piece in (0, 1, 2, len(table.rows) - 1):
        keys = table.read(piece, ["k"])["k"].to_pylist()
        assert keys == list(range(starts[piece], starts[piece + 1]))


@pytest.mark.parametrize("on", [["shop", "product"], ["product", "shop"]])
def test_a_composite_key_is_sought_by_the_column_that_tells_pieces_apart(on, tmp_path):
    path = tmp_path / "r.parquet"
    table = pa.table({"shop": ["a"] * 60, "product": range(60), "r": range(60)})
    pq.write_table(table, path, row_group_size=10)
    relation = ArrowSource(ParquetFile(path)).open(on, ["r"], unique=None)
    parts = {"shop": "a", "product": "25"}
    sought = texts("\x1f".join(parts[name] for name in on))
    read = relation.read(Partition(sought), AMPLE)
    assert len(read.rows) == 10, "all keys of its row group are answered by one read"
    assert len(relation.read(Keys(sought), AMPLE).rows) == 1


def test_a_key_in_no_row_group_is_answered_without_reading_one(opened):
    relation = opened([1, 2, 8, 9], group=2)
    relation._pieces.read = None
    assert len(relation.read(Keys(ints(5, 100)), AMPLE).rows) == 0


def test_fewer_keys_are_covered_if_not_all_fit(opened):
    relation = opened([key for key in range(50) for _ in range(7)], group=60)
    asked = [49, 3, 1000, *range(10, 40)]
    for most in (3_000, AMPLE):
        read = relation.read(Keys(ints(*asked)), most)
        assert read.nbytes <= most
        keys, counts = np.unique(read.rows.keys.values, return_counts=True)
        assert keys.tolist() == sorted(set(asked[: read.covers]) - {1000})
        assert (counts == 7).all()
    assert read.covers == len(asked)


def test_a_text_that_shares_its_hash_with_an_asked_one_is_left_out(opened):
    relation = opened(["a", "b"], group=2)
    pretending = JoinKeys(texts("b").values, texts("a").texts)
    assert len(relation.read(Keys(pretending), AMPLE).rows) == 0
    assert list(relation.read(Keys(texts("b")), AMPLE).rows.keys.texts) == [b"b"]


def test_pages_cover_everything_once_and_rows_without_a_key_not_at_all(opened):
    keys = [None if i % 3 == 0 else i for i in range(150_000)]
    relation = opened(pa.array(keys, pa.int64()), group=100_000)
    pages = relation.facts.pages
    for most in (100_000, 4 << 20):
        seen, page = [], 0
        while page < pages:
            read = relation.read(Pages(page, pages - page, pages), most)
            assert read.nbytes <= most
            assert read.ends[-1] == len(read.rows)
            seen += read.rows.keys.values.tolist()
            page += read.covers
        assert seen == [key for key in keys if key is not None]
