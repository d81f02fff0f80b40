"""A join by a condition over a real PostgreSQL gives what its own SQL gives."""

import datetime as dt
import random

import psycopg
import pyarrow as pa
import pytest

from dovetail.api import Postgres, between, greater_than, join

MATCH = {
    "priced": (
        {"on": {"product": "id"}, "condition": between("at", "since", "until", ends="[)")},
        "s.product = r.id AND since <= at AND at < until",
    ),
    "without a key": (
        {"condition": greater_than("amount", "price")},
        "amount > price",
    ),
}
SQL = {
    "inner": "SELECT e, r FROM s JOIN r ON {match}",
    "left": "SELECT e, r FROM s LEFT JOIN r ON {match}",
    "semi": "SELECT e, NULL FROM s WHERE EXISTS (SELECT FROM r WHERE {match})",
    "anti": "SELECT e, NULL FROM s WHERE NOT EXISTS (SELECT FROM r WHERE {match})",
}
NEW_YEAR = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


@pytest.fixture
def sales(database):
    """The stream's batches; both sides are tables as well, for SQL to join."""
    chance = random.Random(5)
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(
            "CREATE TABLE r (id int, since timestamptz, until timestamptz, "
            "price numeric(10, 2), r int)"
        )
        connection.execute(
            "CREATE TABLE s (product int, at timestamptz, amount numeric(12, 3), e int)"
        )
        rows = [
            (
                chance.choice([*range(20), None]),
                NEW_YEAR + dt.timedelta(hours=chance.randrange(100)),
                chance.choice([None, NEW_YEAR + dt.timedelta(hours=chance.randrange(200))]),
                chance.randrange(100_000) / 100,
                i,
            )
            for i in range(400)
        ]
        events = [
            (
                chance.choice([*range(25), None]),
                chance.choice([None, NEW_YEAR + dt.timedelta(minutes=chance.randrange(12_000))]),
                chance.randrange(1_000_000) / 1000 if i else 0,  # no price is below 0
                i,
            )
            for i in range(150)
        ]
        with connection.cursor() as cursor:
            cursor.executemany("INSERT INTO r VALUES (%s, %s, %s, %s, %s)", rows)
            cursor.executemany("INSERT INTO s VALUES (%s, %s, %s, %s)", events)
        taken = connection.execute("SELECT product, at, amount, e FROM s").fetchall()
    names = ["product", "at", "amount", "e"]
    types = [pa.int32(), pa.timestamp("ms", "UTC"), pa.decimal128(12, 3), pa.int64()]
    schema = pa.schema(list(zip(names, types, strict=True)))
    found = [dict(zip(names, row, strict=True)) for row in taken]
    return pa.Table.from_pylist(found, schema).to_batches(max_chunksize=40)


@pytest.mark.parametrize("how", SQL)
@pytest.mark.parametrize("match", MATCH)
def test_a_condition_joins_as_the_database_does(match, how, sales, database):
    asked, written = MATCH[match]
    with psycopg.connect(database) as connection:
        expected = connection.execute(SQL[how].format(match=written)).fetchall()
    joined = join(sales, Postgres(database, "r"), **asked, how=how, columns=["r"], memory="256KiB")
    got = [(row["e"], row.get("r")) for batch in joined for row in batch.to_pylist()]
    assert sorted(got, key=repr) == sorted(expected, key=repr)
    assert expected
