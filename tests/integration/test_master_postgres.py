"""Master rows out of a real PostgreSQL: exactly the rows that SQL's own join would take."""

import json

import psycopg
import pytest

from dovetail.errors import MasterDataError, Unavailable
from dovetail.join.exchange import Keys
from dovetail.master.pipeline import PipelineRelation
from tests.integration.master_kit import composites, found, ints, pipeline, texts

EVERY_TYPE = """
CREATE TABLE things (
    id bigint, small int2, whole int4, text text, short varchar(20), float float8, single float4,
    amount numeric, yes boolean, day date, moment timestamp, instant timestamptz, uuid uuid
);
INSERT INTO things VALUES
    (1, 1, 1, 'plain', 'x', 1.5, 0.1, 1.50, true, '2024-02-29', '2024-02-29 12:34:56.789',
     '2024-02-29 12:34:56.789+02', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'),
    (2, -1, -1, E'quote " back \\\\ slash / new\\nline tab\\t \\x01 ü 漢 🙂', '', 'NaN', 'Infinity',
     'NaN', false, 'infinity', '-infinity', 'infinity', NULL),
    (3, 32767, 2147483647, '', 'ü', '-Infinity', 3.4e38, 123456789012345678901234567890.123456789,
     NULL, '0001-01-01', '9999-12-31 23:59:59.999999', '1999-12-31 23:59:59-12', NULL),
    (4, -32768, -2147483648, NULL, NULL, 0.1::float8 + 0.2, -0.0, 0.00, NULL, NULL, NULL, NULL,
     NULL),
    (4, NULL, NULL, 'the key''s second row', NULL, 1e-300, 1e10, -1, NULL, '4713-01-01 BC', NULL,
     NULL, NULL),
    (9223372036854775807, NULL, NULL, 'largest', NULL, 1e300, 1, 1e20, true, NULL, NULL, NULL,
     NULL),
    (-9223372036854775808, NULL, NULL, 'smallest', NULL, NULL, NULL, NULL, true, NULL, NULL, NULL,
     NULL),
    (NULL, NULL, NULL, 'never found', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)
"""
COLUMNS = [
    *("small", "whole", "text", "short", "float", "single", "amount", "yes", "day", "moment"),
    *("instant", "uuid"),
]


@pytest.fixture
def connection(database):
    with psycopg.connect(database, autocommit=True) as connection:
        yield connection


class ByKeys(PipelineRelation):
    def rows_of(self, keys):
        read = self.read(Keys(keys), 64 << 20)
        assert read.covers == max(1, len(keys))
        return read.rows


@pytest.fixture
def master_of(database):
    opened = []

    def open_master(*args, url=database, **options):
        opened.append(ByKeys(url, pipeline(*args, **options)))
        return opened[-1]

    yield open_master
    for master in opened:
        master.close()


def test_every_type_looks_as_row_to_json_shows_it(connection, master_of):
    connection.execute(EVERY_TYPE)
    connection.execute("SET TimeZone = 'UTC'")
    expected = connection.execute(
        f"SELECT id, row_to_json(x)::text FROM (SELECT id, {', '.join(COLUMNS)} FROM things) y,"
        f" LATERAL (SELECT {', '.join(f'y.{name}' for name in COLUMNS)}) x WHERE id IS NOT NULL"
    ).fetchall()
    rows = master_of("things", COLUMNS).rows_of(ints(1, 2, 3, 4, 5, 2**63 - 1, -(2**63)))
    assert found(rows) == sorted(expected, key=str)
    assert len(rows) == 7
    for row in rows.rows:
        assert list(json.loads(row)) == COLUMNS
    values = {key: json.loads(row) for key, row in found(rows)}
    assert values[1]["instant"] == "2024-02-29T10:34:56.789+00:00"
    assert values[2]["text"] == 'quote " back \\ slash / new\nline tab\t \x01 ü 漢 🙂'
    assert values[2]["float"] == "NaN"


def test_the_users_own_settings_do_not_show_in_a_row(connection, master_of, database):
    connection.execute(EVERY_TYPE)
    name = connection.info.dbname
    connection.execute(f"ALTER DATABASE {name} SET TimeZone = 'Asia/Kolkata'")
    connection.execute(f"ALTER DATABASE {name} SET DateStyle = 'German'")
    connection.execute(f"ALTER DATABASE {name} SET extra_float_digits = -10")
    connection.execute(f"ALTER DATABASE {name} SET client_encoding = 'LATIN1'")
    (row,) = master_of("things", ["text", "float", "day", "instant"]).rows_of(ints(1)).rows
    assert json.loads(row) == {
        "text": "plain",
        "float": 1.5,
        "day": "2024-02-29",
        "instant": "2024-02-29T10:34:56.789+00:00",
    }
    rows = master_of("things", ["text", "float"]).rows_of(ints(4)).rows
    assert 0.30000000000000004 in [json.loads(row)["float"] for row in rows]
    (row,) = master_of("things", {"text": "größe"}).rows_of(ints(2)).rows
    assert json.loads(row)["größe"].endswith("ü 漢 🙂")


@pytest.mark.parametrize("column", ["int2", "int4", "int8"])
def test_int_keys_are_found_in_a_column_of_any_width(connection, master_of, column):
    connection.execute(f"CREATE TABLE t (id {column}, v text)")
    connection.execute("INSERT INTO t VALUES (7, 'seven'), (7, 'again'), (8, 'eight')")
    rows = master_of("t", ["v"]).rows_of(ints(7, 70_000, 2**40))
    assert found(rows) == [(7, '{"v":"again"}'), (7, '{"v":"seven"}')]


@pytest.mark.parametrize("column", ["text", "varchar(40)"])
def test_text_keys_are_compared_by_their_bytes(connection, master_of, column):
    keys = ["", "a", "A", "ä", "a\u0308", "it's", 'quo"te', "back\\slash", "{a,b}", "NULL", "a "]
    keys += ["%s", "漢🙂", "line\nfeed", "unit\x1fseparator"]
    connection.execute(f"CREATE TABLE t (name {column}, v int)")
    with connection.cursor() as cursor:
        cursor.executemany("INSERT INTO t VALUES (%s, %s)", [(k, i) for i, k in enumerate(keys)])
    connection.execute("INSERT INTO t VALUES (NULL, 99)")
    master = master_of("t", ["v"], {"name": "text", "n": "int"}, "name")
    rows = master.rows_of(texts(*keys, "b", "ab", "'; DROP TABLE t; --"))
    assert found(rows) == sorted(((k, f'{{"v":{i}}}') for i, k in enumerate(keys)), key=str)
    assert rows.keys.values.tolist() == [
        int(texts(key.decode()).values[0]) for key in rows.keys.texts
    ]


def test_composite_keys_match_in_all_their_parts(connection, master_of):
    connection.execute("CREATE TABLE t (shop text, id int4, area int2, v int)")
    connection.execute(
        "INSERT INTO t VALUES ('a', 1, 1, 10), ('a', 1, 1, 11), ('a', 2, 1, 12), ('b', 1, 1, 13),"
        " ('', -1, 0, 14), (NULL, 1, 1, 15), ('a', NULL, 1, 16), ('1', 1, 1, 17)"
    )
    fields = {"store": "text", "number": "int", "zone": "int"}
    master = master_of(
        "t", ["v"], fields, ["store", "number", "zone"], master_key=["shop", "id", "area"]
    )
    asked = composites(("a", 1, 1), ("b", 2, 1), ("", -1, 0), ("a", 2**40, 1))
    first, empty = "a\x1f1\x1f1", "\x1f-1\x1f0"
    assert found(master.rows_of(asked)) == [
        (empty, '{"v":14}'),
        (first, '{"v":10}'),
        (first, '{"v":11}'),
    ]


@pytest.mark.parametrize("join", ["semi", "anti"])
def test_semi_and_anti_joins_learn_only_which_keys_have_rows(connection, master_of, join):
    connection.execute("CREATE TABLE t (id int, v int)")
    connection.execute("INSERT INTO t VALUES (1, 1), (1, 2), (2, 1)")
    rows = master_of("t", {}, join=join).rows_of(ints(1, 2, 3))
    assert found(rows) == [(1, ""), (2, "")]


def test_names_of_any_kind_are_quoted(connection, master_of):
    connection.execute('CREATE SCHEMA "Shop 1"')
    connection.execute('CREATE TABLE "Shop 1"."select" ("Id %s" int, "größe" int, "order" int)')
    connection.execute('INSERT INTO "Shop 1"."select" VALUES (1, 2, 3)')
    master = master_of("Shop 1.select", {"größe": "Size; --", "order": "{x}"}, master_key=["Id %s"])
    assert found(master.rows_of(ints(1))) == [(1, '{"Size; --":2,"{x}":3}')]


@pytest.mark.parametrize(
    ("fields", "key", "nothing"),
    [
        ({"id": "int", "n": "int"}, "id", ints()),
        ({"name": "text", "n": "int"}, "name", texts()),
        ({"id": "int", "name": "text"}, ["id", "name"], composites()),
    ],
)
def test_no_keys_have_no_rows(connection, master_of, fields, key, nothing):
    connection.execute("CREATE TABLE t (id int, name text, v int)")
    connection.execute("INSERT INTO t VALUES (1, 'a', 1)")
    assert len(master_of("t", ["v"], fields, key).rows_of(nothing)) == 0


def test_ten_thousand_keys_are_asked_for_at_once(connection, master_of):
    connection.execute(
        "CREATE TABLE t AS SELECT i AS id, i::text || '-' || i % 7 AS name, repeat('x', i % 50) v"
        " FROM generate_series(1, 20000) i"
    )
    asked = range(5_001, 15_001)
    rows = master_of("t", ["v"]).rows_of(ints(*asked))
    expected = [(i, json.dumps({"v": "x" * (i % 50)}, separators=(",", ":"))) for i in asked]
    assert found(rows) == sorted(expected, key=str)
    fields = {"id": "int", "name": "text"}
    both = master_of("t", ["v"], fields, ["id", "name"]).rows_of(
        composites(*((i, f"{i}-{i % 7}") for i in asked))
    )
    assert len(both) == 10_000
    names = master_of("t", ["v"], fields, "name").rows_of(texts(*(f"{i}-{i % 7}" for i in asked)))
    assert len(names) == 10_000


def test_a_key_may_have_very_many_rows(connection, master_of):
    connection.execute("CREATE TABLE t AS SELECT 1 AS id, i AS v FROM generate_series(1, 30000) i")
    rows = master_of("t", ["v"]).rows_of(ints(1, 2))
    assert set(rows.keys.values.tolist()) == {1}
    assert sorted(json.loads(row)["v"] for row in rows.rows) == list(range(1, 30_001))


def test_a_lost_connection_is_unavailable_once_and_then_made_anew(connection, master_of):
    connection.execute("CREATE TABLE t AS SELECT 1 AS id, 2 AS v")
    master = master_of("t", ["v"])
    assert found(master.rows_of(ints(1))) == [(1, '{"v":2}')]
    connection.execute(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    with pytest.raises(Unavailable, match="PostgreSQL cannot be read"):
        master.rows_of(ints(1))
    assert found(master.rows_of(ints(1))) == [(1, '{"v":2}')]


def test_a_database_that_is_not_there_is_unavailable(master_of):
    master = master_of("t", ["v"], url="postgresql://nobody@127.0.0.1:1/none")
    with pytest.raises(Unavailable, match="PostgreSQL cannot be read"):
        master.rows_of(ints(1))


def test_a_table_of_the_wrong_shape_is_named_and_can_be_mended(connection, master_of):
    master = master_of("t", ["v"])
    with pytest.raises(MasterDataError, match=r"master table t cannot be read.*does not exist"):
        master.rows_of(ints(1))
    connection.execute("CREATE TABLE t AS SELECT 1 AS id, 2 AS v")
    assert len(master.rows_of(ints(1))) == 1


def test_rows_that_change_are_read_as_they_are_now(connection, master_of):
    connection.execute("CREATE TABLE t AS SELECT 1 AS id, 2 AS v")
    master = master_of("t", ["v"])
    master.rows_of(ints(1))
    connection.execute("UPDATE t SET v = 3")
    assert found(master.rows_of(ints(1))) == [(1, '{"v":3}')]
