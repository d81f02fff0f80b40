"""The demo's master data, in a database where a table of that name may be dropped."""

import threading

import psycopg
import pytest

from dovetail.demo.catalogue import load_catalogue
from dovetail.errors import ConfigError, MasterDataError, Unavailable


@pytest.fixture
def connection(database):
    with psycopg.connect(database, autocommit=True) as connection:
        yield connection


@pytest.fixture
def load(database):
    def load(rows, seed=1):
        lines = []
        load_catalogue(database, rows, seed, lines.append)
        return lines

    return load


def fingerprint(connection):
    return connection.execute(
        "SELECT count(*), min(product_id), max(product_id), sum(hashtext(products::text)::bigint)"
        " FROM products"
    ).fetchone()


def test_the_same_seed_makes_the_same_catalogue(connection, load):
    load(2_500)
    first = fingerprint(connection)
    connection.execute("DROP TABLE products")
    load(2_500)
    assert fingerprint(connection) == first
    assert first[:3] == (2_500, 1, 2_500)


def test_another_seed_or_size_replaces_the_catalogue(connection, load):
    load(1_000)
    before = fingerprint(connection)
    load(1_000, seed=2)
    assert fingerprint(connection) != before
    load(500)
    assert fingerprint(connection)[0] == 500


def test_a_catalogue_that_is_there_is_left_alone(connection, load):
    load(1_000)
    oid = connection.execute("SELECT 'products'::regclass::oid").fetchone()
    assert any("already" in line for line in load(1_000))
    assert connection.execute("SELECT 'products'::regclass::oid").fetchone() == oid


def test_a_table_of_somebody_else_is_never_touched(connection, load):
    connection.execute("CREATE TABLE products (mine int)")
    with pytest.raises(MasterDataError, match="not a demo catalogue"):
        load(10)
    assert connection.execute("SELECT count(mine) FROM products").fetchone() == (0,)


def test_an_interrupted_load_leaves_the_old_catalogue(connection, load, database):
    load(1_000)
    before = fingerprint(connection)

    def interrupt(line):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        load_catalogue(database, 2_000, 1, interrupt)
    assert fingerprint(connection) == before
    assert connection.execute("SELECT to_regclass('products_loading')").fetchone() == (None,)


def test_two_loaders_at_once_make_one_catalogue(connection, load):
    threads = [threading.Thread(target=load, args=(3_000,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert fingerprint(connection)[0] == 3_000


def test_a_catalogue_that_others_depend_on_is_not_dropped_under_them(connection, load):
    load(100)
    connection.execute("CREATE VIEW cheap AS SELECT * FROM products WHERE price < 10")
    with pytest.raises(MasterDataError, match="depend"):
        load(200)
    assert fingerprint(connection)[0] == 100


def test_some_weights_are_null_and_prices_are_never(connection, load):
    load(2_000)
    row = connection.execute(
        "SELECT count(*) FILTER (WHERE weight IS NULL), count(price), min(price) FROM products"
    ).fetchone()
    assert 50 < row[0] < 150
    assert row[1] == 2_000
    assert row[2] > 0


def test_a_database_that_is_not_there_is_named_as_the_cause():
    with pytest.raises(Unavailable, match="cannot be reached"):
        load_catalogue("postgresql://nobody@127.0.0.1:1/none", 10)


def test_an_empty_catalogue_is_refused():
    with pytest.raises(ConfigError, match="at least one row"):
        load_catalogue("postgresql://nobody@127.0.0.1:1/none", 0)
