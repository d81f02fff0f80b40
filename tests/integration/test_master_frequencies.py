"""f_R as PostgreSQL counts it, for every type of key, and the strategy that follows from it."""

from __future__ import annotations

import psycopg
import pytest
from psycopg import sql

from dovetail.errors import MasterDataError, Unavailable
from dovetail.master.frequencies import MasterFrequencies
from dovetail.pipeline.spec import Pipeline
from dovetail.testing.fakes import join_keys
from services.mapper.overload import Strategies

INTS = {7: 3, -1: 1, 2**63 - 1: 2, 0: 1, -(2**63): 5}
TEXTS = {"plain": 4, "": 1, "größe": 2, "x" * 3_000: 1, "A": 3, "a": 1}
PAIRS = {(1, "11"): 2, (11, "1"): 3, (-5, "ä"): 1}


@pytest.fixture
def connection(database):
    with psycopg.connect(database, autocommit=True) as connection:
        yield connection


def pipeline_of(fields, join="inner", table="goods", **overload):
    columns = {"columns": ["name"]} if join in ("inner", "left") else {}
    return Pipeline.model_validate(
        {
            "name": "sales",
            "source": {"fields": fields},
            "key": list(fields),
            "master": {"table": table, **columns},
            "join": join,
            "memory": "16MiB",
            **({"overload": overload} if overload else {}),
        }
    )


def fill(connection, columns, rows):
    """Make a table of these columns in which each key has so many rows, and null ones too."""
    connection.execute(f"CREATE TABLE goods ({columns}, name text)")
    width = columns.count(",") + 1
    insert = sql.SQL("INSERT INTO goods VALUES ({}, 'x')").format(
        sql.SQL(", ").join([sql.Placeholder()] * width)
    )
    with connection.cursor() as cursor:
        keys = [key if isinstance(key, tuple) else (key,) for key in rows]
        for key, count in zip(keys, rows.values(), strict=True):
            cursor.executemany(insert, [key] * count)
        cursor.execute(insert, (None,) * width)
        cursor.execute(insert, (*keys[0][:-1], None))


def counted(database, pipeline, most=100):
    master = MasterFrequencies(database, pipeline)
    try:
        return master.count(most)
    finally:
        master.close()


def chosen(database, pipeline):
    strategies = Strategies(pipeline.overload, pipeline, database)
    try:
        return strategies.choose()
    finally:
        strategies.close()


@pytest.mark.parametrize(
    ("fields", "columns", "rows", "canonical"),
    [
        ({"id": "int"}, "id bigint", INTS, lambda key: key),
        ({"sku": "text"}, 'sku text COLLATE "POSIX"', TEXTS, str.encode),
        (
            {"shop": "int", "code": "text"},
            "shop int, code varchar(50)",
            PAIRS,
            lambda key: f"{key[0]}\x1f{key[1]}".encode(),
        ),
    ],
)
def test_every_key_has_the_rows_that_sql_counts(
    database, connection, fields, columns, rows, canonical
):
    fill(connection, columns, rows)
    seen = counted(database, pipeline_of(fields))
    values = join_keys([canonical(key) for key in rows]).values.tolist()
    assert dict(zip(seen.keys.tolist(), seen.rows.tolist(), strict=True)) == dict(
        zip(values, rows.values(), strict=True)
    )
    assert seen.rows.tolist() == sorted(rows.values(), reverse=True)
    assert (seen.keys_in_all, seen.rows_in_all) == (len(rows), sum(rows.values()))
    assert (seen.unique, seen.rest) == (False, 0)


def test_the_keys_with_the_most_rows_come_first_and_the_rest_is_averaged(database, connection):
    fill(connection, "id bigint", INTS)
    seen = counted(database, pipeline_of({"id": "int"}), most=2)
    assert (seen.keys.tolist(), seen.rows.tolist()) == ([-(2**63), 7], [5, 3])
    assert seen.keys_in_all == 5
    assert seen.rest == pytest.approx(4 / 3)


def test_an_empty_table_is_counted(database, connection):
    connection.execute("CREATE TABLE goods (id bigint, name text)")
    seen = counted(database, pipeline_of({"id": "int"}))
    assert (len(seen.keys), seen.keys_in_all, seen.unique, seen.rest) == (0, 0, True, 0)


def test_auto_follows_from_the_table(database, connection):
    fill(connection, "id bigint", INTS)
    auto = pipeline_of({"id": "int"}, shed="auto")
    sample = pipeline_of({"id": "int"}, criterion="random-sample")
    strategy = chosen(database, auto)
    assert strategy.name == "topw"
    assert strategy.priorities(join_keys([7, 0, 12345])).tolist() == [3, 1, 0]
    assert chosen(database, sample).name == "cluster-sampling"
    # Without an index that says so, keys that happen to be unique are found by counting.
    connection.execute("DELETE FROM goods WHERE id NOT IN (0, -1)")
    assert chosen(database, auto).name == "keep-w"
    assert chosen(database, sample).name == "sample-w"


def test_auto_counts_nothing_where_an_index_says_that_keys_are_unique(database, connection):
    connection.execute("CREATE TABLE goods (id bigint PRIMARY KEY, name text)")
    master = MasterFrequencies(database, pipeline_of({"id": "int"}))
    assert master.unique()
    master.close()
    assert chosen(database, pipeline_of({"id": "int"}, shed="auto")).name == "keep-w"
    # Whoever asks for topw gets it: it sheds what joins with nothing first.
    connection.execute("INSERT INTO goods VALUES (1, 'x')")
    named = chosen(database, pipeline_of({"id": "int"}, shed="topw"))
    assert named.priorities(join_keys([2, 1])).tolist() == [0, 1]


def test_the_rows_of_a_left_join_are_never_none(database, connection):
    fill(connection, "id bigint", INTS)
    strategy = chosen(database, pipeline_of({"id": "int"}, "left", shed="auto"))
    assert strategy.priorities(join_keys([12345, -1, 7])).tolist() == [1, 1, 3]


def test_a_view_can_be_counted(database, connection):
    fill(connection, "id bigint", INTS)
    connection.execute("CREATE VIEW by_id AS SELECT id, name FROM goods WHERE id > 0")
    seen = counted(database, pipeline_of({"id": "int"}, table="by_id"))
    assert sorted(seen.keys.tolist()) == [7, 2**63 - 1]


def test_a_missing_table_and_a_missing_database_are_told(database):
    with pytest.raises(MasterDataError, match="goods cannot be read"):
        counted(database, pipeline_of({"id": "int"}))
    nowhere = database.rpartition("/")[0] + "/nowhere"
    with pytest.raises(Unavailable, match="PostgreSQL cannot be read"):
        counted(nowhere, pipeline_of({"id": "int"}))
