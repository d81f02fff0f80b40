"""The Python function, by its own example and against a plain join."""

import datetime as dt
import decimal
import random
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dovetail.api import join
from dovetail.errors import ConfigError, MasterDataError


@pytest.fixture
def products(tmp_path):
    path = tmp_path / "products.parquet"
    table = pa.table(
        {"product_id": [1, 2, 2], "price": [1.5, 2.5, None], "vendor": ["a", "b", "ü"]}
    )
    pq.write_table(table, path, row_group_size=2)
    return path


def test_the_example_of_the_documentation(products):
    sales = [pa.record_batch({"product_id": [1, 3], "quantity": [10, 30]})]
    joined = list(join(sales, products, on="product_id", how="left", memory=1 << 20))
    assert sorted(pa.Table.from_batches(joined).to_pylist(), key=str) == [
        {"product_id": 1, "quantity": 10, "price": 1.5, "vendor": "a"},
        {"product_id": 3, "quantity": 30, "price": None, "vendor": None},
    ]


def test_many_rows_a_key_and_null_values_come_out_as_they_are(products):
    sales = [pa.record_batch({"product_id": [2]})]
    rows = [
        row for batch in join(sales, str(products), on="product_id") for row in batch.to_pylist()
    ]
    assert sorted(rows, key=str) == [
        {"product_id": 2, "price": 2.5, "vendor": "b"},
        {"product_id": 2, "price": None, "vendor": "ü"},
    ]


@pytest.mark.parametrize("how", ["inner", "left", "semi", "anti"])
@pytest.mark.parametrize("algorithm", ["meshjoin", "cmeshjoin", "ssbj"])
def test_it_joins_as_sql_does_whatever_the_types(how, algorithm, tmp_path):
    chance = random.Random(7)
    names = [*(f"key {i}" for i in range(30)), None]
    master = [
        {
            "name": chance.choice(names),
            "size": chance.randrange(4),
            "r": i,
            "at": dt.datetime(2026, 1, 1, tzinfo=dt.UTC) + dt.timedelta(hours=i),
            "cost": decimal.Decimal(i) / 100 if i % 5 else None,
            "flag": [True, False, None][i % 3],
        }
        for i in range(3000)
    ]
    events = [
        {
            "name": chance.choice(names),
            "size": chance.choice([0, 1, 9, None]),
            "e": i,
            "raw": b"x" * i,
        }
        for i in range(200)
    ]
    path = tmp_path / "r.parquet"
    pq.write_table(pa.Table.from_pylist(master), path, row_group_size=1500)
    stream = pa.Table.from_pylist(events).to_batches(max_chunksize=37)
    got = [
        row
        for batch in join(
            stream, path, on=["name", "size"], how=how, algorithm=algorithm, memory=2 << 20
        )
        for row in batch.to_pylist()
    ]
    assert sorted(got, key=str) == sorted(plain_join(how, events, master), key=str)


def plain_join(how, events, master):
    for event in events:
        rows = [
            {name: row[name] for name in ("r", "at", "cost", "flag")}
            for row in master
            if None not in (event["name"], event["size"])
            and (row["name"], row["size"]) == (event["name"], event["size"])
        ]
        if (how == "semi" and rows) or (how == "anti" and not rows):
            yield event
        elif how == "left" and not rows:
            yield event | dict.fromkeys(("r", "at", "cost", "flag"))
        elif how in ("inner", "left"):
            yield from (event | row for row in rows)


def test_only_the_columns_asked_for_are_added():
    table = pa.table({"k": [1], "a": [2], "b": [3]})
    (batch,) = join([pa.record_batch({"k": [1]})], table, on="k", columns=["b"])
    assert batch.to_pylist() == [{"k": 1, "b": 3}]


def test_an_empty_relation_and_an_empty_stream_give_nothing():
    empty = pa.table({"k": pa.array([], pa.int64()), "a": pa.array([], pa.int64())})
    assert list(join([pa.record_batch({"k": [1]})], empty, on="k")) == []
    assert list(join([], empty, on="k")) == []


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"on": "nope"}, "no column 'nope'"),
        ({"how": "outer"}, "no join kind 'outer'"),
        ({"algorithm": "quick"}, "no join algorithm 'quick'"),
        ({"algorithm": "hybridjoin"}, "can only be scanned"),
    ],
)
def test_what_cannot_be_joined_is_said_with_the_cure(wrong, message, products):
    given = {"on": "product_id"} | wrong
    with pytest.raises(ConfigError, match=message):
        list(join([pa.record_batch({"product_id": [1]})], products, **given))


def test_keys_of_different_sorts_are_refused_instead_of_never_matching(products):
    with pytest.raises(ConfigError, match="never equal"):
        list(join([pa.record_batch({"product_id": ["1"]})], products, on="product_id"))


def test_a_composite_key_that_could_be_taken_for_another_is_refused():
    table = pa.table({"a": ["x"], "b": ["y"]})
    with pytest.raises(ConfigError, match="U\\+001F"):
        list(join([pa.record_batch({"a": ["x\x1fy"], "b": [""]})], table, on=["a", "b"]))


def test_a_file_that_is_none_is_an_error_that_names_it(tmp_path):
    with pytest.raises(MasterDataError, match="absent"):
        join([], tmp_path / "absent.parquet", on="k")


def test_the_examples_of_the_documentation_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = Path(__file__).parents[2] / "docs" / "python-api.md"
    examples = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    assert len(examples) == 2
    for example in examples:
        exec(compile(example, str(page), "exec"), {})
