"""A page of a table that does not fit into the disk buffer is read in parts."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dovetail.api import between, join
from dovetail.errors import DovetailError

ROWS, WIDE = 6_000, range(4_096, 5_120)
"""The page behind the first four has rows of 2,000 bytes: 2 MB; the disk buffer has 256 KiB."""


def table(huge=0):
    texts = ["x" * (2_000 if i in WIDE else 10) for i in range(ROWS)]
    texts[5_000] += "y" * huge
    return pa.table({"k": [i % 5_500 for i in range(ROWS)], "t": texts, "n": range(ROWS)})


def stream(keys, **more):
    rows = pa.table({"k": pa.array(keys), **more})
    return rows.to_batches(max_chunksize=500)


def rows_of(master, keys):
    found = {}
    for k, n in zip(master["k"].to_pylist(), master["n"].to_pylist(), strict=True):
        found.setdefault(k, []).append(n)
    return sorted((k, n) for k in keys for n in found.get(k, []))


def rows_in(out):
    return sorted(zip(out["k"].to_pylist(), out["n"].to_pylist(), strict=True))


@pytest.mark.parametrize("store", ["table", "file"])
@pytest.mark.parametrize("algorithm", ["meshjoin", "cmeshjoin", "ssbj", "auto"])
def test_a_scan_answers_everybody(store, algorithm, tmp_path):
    master = table()
    if store == "file":
        pq.write_table(master, tmp_path / "r.parquet")
        master = tmp_path / "r.parquet"
    keys = [*range(0, 6_000, 2), *range(5_999, 3_000, -3)]
    out = join(stream(keys), master, on="k", algorithm=algorithm, memory="1MiB")
    assert rows_in(pa.Table.from_batches(out)) == rows_of(table(), keys)


def test_keys_that_are_unique_leave_at_their_match():
    keys = [*range(500), *range(4_000, 5_200)]
    master = table().slice(0, 5_500)
    out = join(stream(keys), master, on="k", algorithm="meshjoin", memory="1MiB", unique=True)
    assert rows_in(pa.Table.from_batches(out)) == rows_of(master, keys)


@pytest.mark.parametrize("how", ["inner", "semi"])
def test_a_condition_is_joined_over_such_a_page(how):
    master = table()
    keys = list(range(4_000, 5_400))
    batches = stream(keys, at=[4_500] * len(keys))
    master = master.append_column("until", pa.array([9_999] * ROWS))
    out = pa.Table.from_batches(
        join(batches, master, on="k", condition=between("at", "n", "until"), how=how, memory="1MiB")
    )
    expected = [(k, n) for k, n in rows_of(table(), keys) if n <= 4_500]
    assert sorted(out["k"].to_pylist()) == sorted(k for k, _ in expected)


def test_a_row_too_large_matters_only_to_who_asks_for_it():
    master = table(huge=400_000)
    keys = list(range(0, 6_000, 3))  # without 5,000
    out = join(stream(keys), master, on="k", algorithm="meshjoin", memory="1MiB")
    assert rows_in(pa.Table.from_batches(out)) == rows_of(master, keys)
    with pytest.raises(DovetailError, match=r"1 rows .* give 2MiB"):
        list(join(stream([1, 5_000]), master, on="k", algorithm="meshjoin", memory="1MiB"))
