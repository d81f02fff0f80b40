"""The Python function, by its own example and against a plain join."""

import datetime as dt
import decimal
import random
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dovetail.api import ArrowTable, at_least, between, join, less_than, overlaps
from dovetail.api.arrow import ArrowSource
from dovetail.errors import ConfigError, DovetailError, MasterDataError


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
        ({"algorithm": "quick"}, "no join algorithm 'quick'.* srj, auto$"),
        ({"algorithm": "meshjon"}, "did you mean 'meshjoin'"),
        ({"algorithm": "Auto"}, "did you mean 'auto'"),
        ({"how": "lft"}, "did you mean 'left'"),
        ({"on": "prduct_id"}, "did you mean 'product_id'"),
        ({"on": {"produkt_id": "product_id"}}, "the stream has no column.*did you mean"),
        ({"on": []}, "name columns by on, or a condition"),
        ({"on": 5}, "5 names no column"),
        ({"memory": 100}, r"memory=100 bytes is too little: give \d+KiB at least"),
        ({"memory": None}, "memory: 'None' is not a size"),
        ({"memory": "64 parsecs"}, "unknown unit"),
        ({"memory": "64MB", "order": "random"}, "no order 'random'"),
        ({"on": {"product_id": "vendor"}}, "never equal"),
        ({"columns": {"price": "product_id"}}, "both sides have a column 'product_id'"),
        ({"on": "price"}, "no column 'price'"),
    ],
)
def test_what_cannot_be_joined_is_said_with_the_cure(wrong, message, products):
    given = {"on": "product_id"} | wrong
    with pytest.raises(ConfigError, match=message):
        list(join([pa.record_batch({"product_id": [1]})], products, **given))


LONG = "x" * 200_000


@pytest.mark.parametrize(
    ("algorithm", "why"), [("ssbj", "a page of the relation"), ("srj", "2 rows that have to be")]
)
def test_memory_that_cannot_hold_what_is_read_is_told_how_much_would_do(algorithm, why):
    table = pa.table({"k": [1, 1], "t": [LONG, LONG]})
    sales = [pa.record_batch({"k": [1]})]

    def joined(memory):
        return list(join(sales, table, on="k", algorithm=algorithm, memory=memory))

    with pytest.raises(DovetailError, match=f"memory=65,536 bytes is too little.*{why}") as refusal:
        joined(1 << 16)
    enough = re.search(r"give (\d+MiB)", str(refusal.value))[1]
    assert sum(batch.num_rows for batch in joined(enough)) == 2


def test_an_event_that_memory_cannot_hold_names_the_setting():
    sales = [pa.record_batch({"k": [1], "t": [LONG]})]
    with pytest.raises(ConfigError, match="memory=65,536 bytes is too little: an event of 200"):
        list(join(sales, pa.table({"k": [1]}), on="k", memory=1 << 16))


@pytest.mark.parametrize(
    ("stream", "gives"),
    [(pa.table({"k": [1]}), "a Table is no stream"), ([{"k": 1}], "the stream gave a dict")],
)
def test_what_is_no_stream_of_batches_is_told_what_one_is(stream, gives):
    with pytest.raises(ConfigError, match=rf"{gives}.*to_batches\(\)"):
        list(join(stream, pa.table({"k": [1]}), on="k"))


VALID = between("at", "low", "high")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"condition": 5}, "5 is no condition"),
        ({"condition": VALID, "algorithm": "ssbj"}, "by meshjoin alone.*leave out algorithm"),
        ({"condition": VALID, "order": "source"}, "in no order: leave out order"),
        ({"condition": between("at", "lo", "high")}, "did you mean 'low'"),
        ({"condition": between("att", "low", "high")}, "the stream has no column 'att'"),
        ({"condition": between("at", "low", "name")}, "'name' is .*string, which a range"),
        ({"condition": between("at", "low", "share")}, "not compared with each other: cast"),
        ({"condition": VALID, "memory": 1000}, "memory=1,000 bytes is too little"),
    ],
)
def test_a_condition_that_cannot_be_joined_is_said_with_the_cure(wrong, message):
    prices = pa.table({"low": [1], "high": [2], "name": ["x"], "share": [0.5]})
    with pytest.raises(ConfigError, match=message):
        list(join([pa.record_batch({"at": [1]})], prices, **wrong))


def test_ends_that_are_none_are_refused():
    with pytest.raises(ConfigError, match=r"no ends '\[\['"):
        between("at", "low", "high", ends="[[")
    with pytest.raises(ConfigError, match="between two columns"):
        overlaps("at", ("low", "high"))


def test_a_condition_over_a_relation_that_answers_the_engine_itself():
    table = pa.table({"k": [1, 1], "v": ["a", "b"], "since": [0, 10]})
    relation = ArrowSource(ArrowTable(table)).open(["k"], ["v", "since"], unique=None)
    (batch,) = join(
        [pa.record_batch({"k": [1], "at": [5]})],
        relation,
        on="k",
        condition=at_least("at", "since"),
    )
    assert batch.to_pylist() == [{"k": 1, "at": 5, "v": "a", "since": 0}]


def test_values_that_no_64_bits_compare_are_refused():
    wide = pa.table({"low": pa.array([2**63], pa.uint64())})
    with pytest.raises(ConfigError, match=r"'low' has a value.*64 bits"):
        list(join([pa.record_batch({"at": [1]})], wide, condition=less_than("at", "low")))


@pytest.mark.parametrize("algorithm", ["hybridjoin", "cachejoin", "srj", "inlj"])
def test_lookups_in_rows_without_an_order_are_refused_before_anything_is_read(algorithm, tmp_path):
    path = tmp_path / "mixed.parquet"
    pq.write_table(pa.table({"k": [2, 1, 3, 0]}), path, row_group_size=2)
    with pytest.raises(ConfigError, match=r"can only be scanned.*choose meshjoin.*sort_by"):
        join([], path, on="k", algorithm=algorithm)


def test_a_composite_key_is_looked_up_by_whichever_column_has_an_order(tmp_path):
    path = tmp_path / "r.parquet"
    table = pa.table({"a": [3, 1, 2, 3], "b": ["x", "y", "y", "z"], "r": [0, 1, 2, 3]})
    pq.write_table(table, path, row_group_size=1)
    stream = [pa.record_batch({"a": [3, 2, 3, 9], "b": ["z", "y", "x", "y"]})]
    (batch,) = join(stream, path, on=["a", "b"], algorithm="srj", order="source")
    assert batch.column("r").to_pylist() == [3, 2, 0]


def test_text_that_is_a_dictionary_is_joined_as_text(tmp_path):
    table = pa.table({"k": pa.array(["a", "a", "b"]).dictionary_encode(), "r": [0, 1, 2]})
    for algorithm in ("ssbj", "hybridjoin", "srj"):
        batches = join([pa.record_batch({"k": ["a"]})], table, on="k", algorithm=algorithm)
        assert sorted(r for b in batches for r in b.column("r").to_pylist()) == [0, 1]


def of_dictionary(indices, values):
    return pa.DictionaryArray.from_arrays(pa.array(indices, pa.int8()), pa.array(values))


@pytest.mark.parametrize("order", [None, "source"])
@pytest.mark.parametrize("algorithm", ["ssbj", "hybridjoin", "srj"])
@pytest.mark.parametrize(("zero", "one"), [(0, 1), ("", "a")])
def test_a_null_within_a_dictionary_matches_nothing(zero, one, algorithm, order):
    stream = pa.record_batch({"k": of_dictionary([0, 1, 2], [None, zero, one]), "e": [0, 1, 2]})
    relation = pa.table({"k": [zero, one], "r": [7, 8]})
    joined = {
        how: [
            tuple(row.get(name) for name in ("e", "r"))
            for batch in join([stream], relation, on="k", how=how, algorithm=algorithm, order=order)
            for row in batch.to_pylist()
        ]
        for how in ("inner", "left", "anti")
    }
    assert sorted(joined["inner"]) == [(1, 7), (2, 8)]
    assert sorted(joined["left"]) == [(0, None), (1, 7), (2, 8)]
    assert joined["anti"] == [(0, None)]


@pytest.mark.parametrize("algorithm", ["ssbj", "hybridjoin", "srj"])
@pytest.mark.parametrize("keys", [["k"], ["k", "b"]])
@pytest.mark.parametrize(("zero", "one"), [(0, 1), ("", "a")])
def test_a_null_within_a_dictionary_of_the_relation_is_no_key(zero, one, keys, algorithm):
    hidden = of_dictionary([0, 1], [None, one])
    relation = pa.table({"k": hidden, "b": [5, 5], "r": [7, 8]})
    stream = pa.record_batch({"k": [zero, one], "b": [5, 5]})
    batches = join([stream], relation, on=keys, columns=["r"], algorithm=algorithm)
    assert [row["r"] for batch in batches for row in batch.to_pylist()] == [8]


def test_columns_are_renamed_where_names_differ_or_clash():
    products = pa.table({"id": [1], "name": ["pen"]})
    sales = [pa.record_batch({"product": [1], "name": ["till 5"]})]
    (batch,) = join(sales, products, on={"product": "id"}, columns={"name": "product_name"})
    assert batch.to_pylist() == [{"product": 1, "name": "till 5", "product_name": "pen"}]
    with pytest.raises(ConfigError, match=r"columns=\{'name': 'other_name'\}"):
        list(join(sales, products, on={"product": "id"}))


NO_KEY = pa.record_batch({"k": pa.array([None], pa.int64())})


class Watched:
    """Pieces that know whether they were read and closed."""

    schema = pa.schema([("k", pa.int64()), ("v", pa.int64())])

    def __init__(self, rows=(2,), *, fails=False):
        self.rows = list(rows)
        self.log = []
        self._fails = fails

    def read(self, piece, columns):
        self.log.append("read")
        if self._fails:
            raise MasterDataError("the disk is gone")
        return pa.table({"k": [1, 2], "v": [10, 20]}).select(columns)

    def spans(self, column):
        return None

    def close(self):
        self.log.append("closed")


def test_nothing_is_opened_before_the_first_batch_is_wanted():
    pieces = Watched()
    joined = join([pa.record_batch({"k": [1]})], pieces, on="k")
    joined.close()
    assert pieces.log == []
    assert list(join([], pieces, on="k")) == []
    assert pieces.log == []


def test_the_relation_is_closed_however_the_iteration_ends():
    ended, abandoned, failed, cut_off = Watched(), Watched(), Watched(fails=True), Watched()
    list(join([pa.record_batch({"k": [1]})], ended, on="k"))
    batches = join([NO_KEY], abandoned, on="k", how="left")
    next(batches)
    batches.close()
    with pytest.raises(MasterDataError, match="gone"):
        list(join([pa.record_batch({"k": [1]})], failed, on="k"))

    def stream():
        yield pa.record_batch({"k": [1]})
        raise OSError("the till is gone")

    with pytest.raises(OSError, match="till"):
        list(join(stream(), cut_off, on="k"))
    assert [p.log[-1] for p in (ended, abandoned, failed, cut_off)] == ["closed"] * 4
    assert [p.log.count("closed") for p in (ended, abandoned, failed, cut_off)] == [1] * 4


def test_a_chain_that_is_abandoned_closes_every_relation_in_it():
    inner, outer = Watched(), Watched()
    chain = join(join([NO_KEY], inner, on="k", how="left"), outer, on="k", how="anti")
    assert next(chain).to_pylist() == [{"k": None, "v": None}]
    chain.close()
    assert inner.log[-1] == outer.log[-1] == "closed"


def test_a_relation_that_answers_the_engine_itself_can_be_joined():
    source = ArrowSource(ArrowTable(pa.table({"k": [1, 2], "v": ["a", "b"]})))
    relation = source.open(["k"], ["v"], unique=True)
    assert relation.facts.unique
    (batch,) = join([pa.record_batch({"id": [2]})], relation, on={"id": "k"}, algorithm="srj")
    assert batch.to_pylist() == [{"id": 2, "v": "b"}]


def test_what_is_no_relation_is_told_what_one_is():
    with pytest.raises(ConfigError, match=r"list cannot be joined with.*Parquet"):
        join([], [1, 2], on="k")
    with pytest.raises(ConfigError, match="Postgres\\(url, table\\)"):
        join([], "postgresql://localhost/shop", on="k")


def test_a_batch_of_another_schema_is_refused():
    stream = [pa.record_batch({"k": [1]}), pa.record_batch({"k": [1], "more": [2]})]
    with pytest.raises(ConfigError, match="cast them alike"):
        list(join(stream, pa.table({"k": [1], "v": [1]}), on="k"))


def test_keys_whose_equality_is_in_doubt_are_refused():
    with pytest.raises(ConfigError, match="cannot be compared"):
        list(join([pa.record_batch({"k": [0.1]})], pa.table({"k": [0.1]}), on="k"))


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
    without_database = [example for example in examples if "Postgres(" not in example]
    assert len(without_database) == 4
    for example in without_database:
        exec(compile(example, str(page), "exec"), {})
