"""The join over a real PostgreSQL: what its own SQL gives, by every way of reading a table."""

import datetime as dt
import random
import re
import time
from decimal import Decimal
from pathlib import Path

import numpy as np
import psycopg
import pyarrow as pa
import pytest

from dovetail.api import Postgres, join
from dovetail.errors import ConfigError, MasterDataError, Unavailable
from dovetail.join.algorithms import ALGORITHMS, AUTO
from dovetail.join.columns import Column, JoinKeys
from dovetail.join.exchange import Keys, Pages, Partition
from dovetail.join.keys import hash_text_many
from dovetail.master.table.description import describe
from dovetail.master.table.relation import PostgresRelation, session_for

AMPLE = 1 << 20
SQL = {
    "inner": "SELECT e, r, v FROM s JOIN r ON {same}",
    "left": "SELECT e, r, v FROM s LEFT JOIN r ON {same}",
    "semi": "SELECT e, NULL, NULL FROM s WHERE EXISTS (SELECT FROM r WHERE {same})",
    "anti": "SELECT e, NULL, NULL FROM s WHERE NOT EXISTS (SELECT FROM r WHERE {same})",
}
SORTS = {
    "int": ("a bigint", ["a"], "(a)"),
    "text": ("a text", ["a"], "(a)"),
    # The index has the columns the other way round.
    "composite": ("a int, b varchar(30)", ["a", "b"], "(b, a)"),
}


def random_keys(sort, count, seed):
    chance = random.Random(seed)
    names = [*range(-5, 150), *([7] * 40), None, None]
    for _ in range(count):
        number = chance.choice(names)
        text = None if number is None else f"key {number} ü'\\\"{{,}}"
        other = chance.choice([1, 2, None, 12345])
        yield {"int": (number,), "text": (text,), "composite": (other, text)}[sort]


def load(connection, sort, *, rows=600, events=300):
    columns, names, index = SORTS[sort]
    connection.execute(f"CREATE TABLE r ({columns}, r int, v text)")
    connection.execute(f"CREATE TABLE s ({columns}, e int)")
    marks = ", ".join(["%s"] * len(names))
    with connection.cursor() as cursor:
        cursor.executemany(
            f"INSERT INTO r VALUES ({marks}, %s, %s)",
            [
                (*key, i, None if i % 5 == 0 else "v" * (i % 90))
                for i, key in enumerate(random_keys(sort, rows, 1))
            ],
        )
        stream = [(*key, i) for i, key in enumerate(random_keys(sort, events, 2))]
        cursor.executemany(f"INSERT INTO s VALUES ({marks}, %s)", stream)
    connection.execute(f"CREATE INDEX ON r {index}")
    rows = [dict(zip([*names, "e"], event, strict=True)) for event in stream]
    kinds = {"a": pa.string() if sort == "text" else pa.int64(), "b": pa.string(), "e": pa.int64()}
    schema = pa.schema([(name, kinds[name]) for name in [*names, "e"]])
    return pa.Table.from_pylist(rows, schema).to_batches(max_chunksize=70), names


def got(batches):
    rows = [row for batch in batches for row in batch.to_pylist()]
    return sorted(((row["e"], row.get("r"), row.get("v")) for row in rows), key=repr)


@pytest.fixture
def connection(database):
    with psycopg.connect(database, autocommit=True) as connection:
        yield connection


@pytest.mark.parametrize("sort", SORTS)
def test_every_algorithm_and_join_kind_gives_what_sql_gives(sort, database, connection):
    stream, names = load(connection, sort)
    same = " AND ".join(f"s.{name} = r.{name}" for name in names)
    for how, query in SQL.items():
        expected = sorted(connection.execute(query.format(same=same)).fetchall(), key=repr)
        for algorithm in [*ALGORITHMS, AUTO]:
            for memory in (150_000, "8MiB"):
                joined = join(
                    stream,
                    Postgres(database, "r"),
                    on=names,
                    how=how,
                    algorithm=algorithm,
                    memory=memory,
                )
                assert got(joined) == expected, (how, algorithm, memory)


@pytest.mark.parametrize("algorithm", ["ssbj", "cachejoin", "srj"])
def test_answers_come_in_the_streams_order_if_asked(algorithm, database, connection):
    stream, names = load(connection, "composite")
    joined = join(
        stream, Postgres(database, "r"), on=names, how="left", algorithm=algorithm, order="source"
    )
    events = [event for batch in joined for event in batch.column("e").to_pylist()]
    assert list(dict.fromkeys(events)) == list(range(300))
    assert events == sorted(events)


EVERY_TYPE = """
CREATE DOMAIN grams AS int4;
CREATE TABLE things (
    id bigint PRIMARY KEY, small int2, whole int4, large int8, text text, short varchar(20),
    float float8, single float4, amount numeric(12, 3), fine numeric(60, 30), round numeric(5, -2),
    tiny numeric(2, 4), free numeric, yes boolean, day date, moment timestamp, instant timestamptz,
    name uuid, weight grams
);
INSERT INTO things VALUES
    (1, 1, 1, 1, 'plain', 'x', 1.5, 0.25, 1.5, 1.5, 12300, 0.0012, 1.50, true, '2024-02-29',
     '2024-02-29 12:34:56.789', '2024-02-29 12:34:56.789+02',
     'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', 12),
    (2, -32768, -2147483648, -9223372036854775808, '', '', '-Infinity', '-Infinity',
     -999999999.999, -123456789012345678901234567890.123456789012345678901234567891, -99900,
     -0.0099, 'NaN', false, '0001-01-01', '0001-01-01', '0001-01-01 00:00+00', NULL, -1),
    (3, 32767, 2147483647, 9223372036854775807, E'ü 漢 🙂 \\n "', 'ü', 'Infinity', 3.4e38,
     10000.001, 0.000000000000000000000000000001, 0, 0, -1e-30, NULL, '9999-12-31',
     '9999-12-31 23:59:59.999999', '9999-12-31 23:59:59.999999+00', NULL, 0),
    (4, 0, 0, 0, NULL, NULL, -0.0, 0, 0, 0, 100, 0.0001, 0, NULL, '1970-01-01',
     '1969-12-31 23:59:59.999999', '1970-01-01 00:00+00', NULL, NULL),
    (5, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
     NULL, NULL, NULL);
"""


@pytest.mark.parametrize("algorithm", ["ssbj", "hybridjoin", "srj"])
def test_every_type_arrives_as_the_value_it_is(algorithm, database, connection):
    connection.execute(EVERY_TYPE)
    connection.execute("SET TimeZone = 'UTC'")
    stream = [pa.record_batch({"id": list(range(1, 6))})]
    (*batches,) = join(stream, Postgres(database, "things"), on="id", algorithm=algorithm)
    joined = pa.Table.from_batches(batches).sort_by("id")
    # In binary, because a float4 in decimal is not the value itself.
    with connection.cursor(binary=True) as cursor:
        stored = cursor.execute(
            "SELECT *, free::text AS free, name::text AS name FROM things ORDER BY id"
        )
        names = [column.name for column in stored.description]
        expected = [dict(zip(names, row, strict=True)) for row in stored]
    assert joined.to_pylist() == expected
    kinds = {field.name: field.type for field in joined.schema}
    assert kinds["amount"] == pa.decimal128(12, 3)
    assert kinds["fine"] == pa.decimal256(60, 30)
    assert kinds["round"] == pa.decimal128(7, 0)
    assert kinds["tiny"] == pa.decimal128(4, 4)
    assert kinds["instant"] == pa.timestamp("us", "UTC")
    assert kinds["single"] == pa.float32()


def test_decimals_of_every_length_are_exact(database, connection):
    chance = random.Random(3)
    values = [
        Decimal(chance.choice("+-") + "".join(chance.choices("0123456789", k=k)) + f"e-{scale}")
        for k in range(1, 36)
        for scale in (0, 5, 9, 10)
    ]
    connection.execute("CREATE TABLE d (id int PRIMARY KEY, v numeric(38, 10))")
    fitting = [value for value in values if abs(value) < Decimal(10) ** 28]
    with connection.cursor() as cursor:
        cursor.executemany("INSERT INTO d VALUES (%s, %s)", list(enumerate(fitting)))
    stream = [pa.record_batch({"id": list(range(len(fitting)))})]
    rows = [r for b in join(stream, Postgres(database, "d"), on="id") for r in b.to_pylist()]
    assert {row["id"]: row["v"] for row in rows} == dict(enumerate(fitting))


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("day date", "infinity"),
        ("day date", "-infinity"),
        ("at timestamp", "-infinity"),
        ("at timestamptz", "infinity"),
        ("v numeric(5, 2)", "NaN"),
    ],
)
def test_a_value_that_arrow_cannot_hold_is_refused_by_its_columns_name(
    column, value, database, connection
):
    connection.execute(f"CREATE TABLE odd (id int, {column})")
    connection.execute("INSERT INTO odd VALUES (1, %s)", (value,))
    with pytest.raises(MasterDataError, match=f"column '{column.split()[0]}'.*text"):
        list(join([pa.record_batch({"id": [1]})], Postgres(database, "odd"), on="id"))


def test_what_cannot_be_joined_is_said_before_anything_is_read(database, connection):
    connection.execute("CREATE TABLE odd (id int, doc json, f float8, h text); CREATE TABLE big ()")
    connection.execute("CREATE INDEX ON odd USING hash (h); CREATE VIEW seen AS SELECT * FROM odd")
    odd = Postgres(database, "odd")
    cases = [
        ("doc", odd, {"on": "id"}, "doc::text"),
        ("no column", odd, {"on": "id", "columns": ["nope"]}, "doc"),
        ("'f'", odd, {"on": "f", "columns": []}, "join a view"),
        ("B-tree", odd, {"on": "id", "columns": [], "algorithm": "hybridjoin"}, "ssbj"),
        ("B-tree", odd, {"on": "h", "columns": [], "algorithm": "cachejoin"}, "ssbj"),
        ("no index", odd, {"on": "id", "columns": [], "algorithm": "srj"}, "ssbj"),
        ("a view", Postgres(database, "seen"), {"on": "id", "columns": ["h"]}, "srj"),
    ]
    for problem, relation, given, cure in cases:
        with pytest.raises(ConfigError, match=f"(?s){problem}.*{cure}"):
            join([], relation, **given)
    with pytest.raises(MasterDataError, match=r"no table 'od'.*'odd'"):
        join([], Postgres(database, "od"), on="id")


def test_views_are_looked_up_and_selections_are_joined_alone(database, connection):
    connection.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v text);"
        "INSERT INTO t SELECT i, '50% of ' || i FROM generate_series(1, 1000) i;"
        "CREATE VIEW low AS SELECT id, upper(v) AS v FROM t WHERE id < 3;"
        "CREATE MATERIALIZED VIEW kept AS SELECT * FROM low"
    )
    stream = [pa.record_batch({"id": [2, 3]})]
    for relation, algorithm, value in (
        (Postgres(database, "low"), "srj", "50% OF 2"),
        (Postgres(database, "public.kept"), "ssbj", "50% OF 2"),
        (Postgres(database, "t", where="v LIKE '50% of 2'"), "ssbj", "50% of 2"),
        (Postgres(database, "t", where="v LIKE '50% of 2'"), "hybridjoin", "50% of 2"),
        (Postgres(database, "t", where="id = 2 OR false"), "srj", "50% of 2"),
    ):
        (batch,) = join(stream, relation, on="id", algorithm=algorithm)
        assert batch.to_pylist() == [{"id": 2, "v": value}]


def test_a_table_that_others_inherit_from_is_read_by_key(database, connection):
    """Blocks have numbers in each of its tables; a key that is unique in one is not in all."""
    stream, names = load(connection, "int")
    connection.execute(
        "CREATE TABLE child () INHERITS (r); CREATE TABLE grandchild (more int) INHERITS (child);"
        "INSERT INTO child SELECT * FROM r WHERE r % 3 = 0;"
        "INSERT INTO grandchild SELECT a + 100, r, 'g' FROM ONLY r;"
        "DELETE FROM ONLY r WHERE r IN (SELECT max(r) FROM ONLY r GROUP BY a HAVING count(*) > 1);"
        "DELETE FROM ONLY r WHERE r NOT IN (SELECT min(r) FROM ONLY r GROUP BY a);"
        "CREATE UNIQUE INDEX ON r (a); CREATE INDEX ON child (a); CREATE INDEX ON grandchild (a)"
    )
    relation = Postgres(database, "r")
    for how, query in SQL.items():
        expected = connection.execute(query.format(same="s.a = r.a")).fetchall()
        for algorithm in ("inlj", "srj"):
            joined = join(stream, relation, on=names, how=how, algorithm=algorithm)
            assert got(joined) == sorted(expected, key=repr), (how, algorithm)
        for algorithm in {*ALGORITHMS, AUTO} - {"inlj", "srj"}:
            with pytest.raises(ConfigError, match=r"that others inherit from.*choose srj"):
                join(stream, relation, on=names, how=how, algorithm=algorithm)


def test_uniqueness_is_known_from_the_indexes(database, connection):
    connection.execute(
        "CREATE TABLE t (id int, part int, other int, UNIQUE (part, id), UNIQUE (other));"
        "CREATE UNIQUE INDEX ON t (id) WHERE other > 3"
    )
    keys = {on: describe(connection, "t").key(on) for on in (("id",), ("id", "part"), ("other",))}
    assert {on: key.unique for on, key in keys.items()} == {
        ("id",): False,
        ("id", "part"): True,
        ("other",): True,
    }
    assert keys["id", "part"].ordered == ("part", "id")


@pytest.mark.parametrize("algorithm", ["ssbj", "hybridjoin", "srj"])
def test_an_empty_table_has_no_rows_for_anyone(algorithm, database, connection):
    connection.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    stream = [pa.record_batch({"id": [1, None]})]
    rows = [
        row
        for batch in join(stream, Postgres(database, "t"), on="id", how="left", algorithm=algorithm)
        for row in batch.to_pylist()
    ]
    assert sorted(rows, key=str) == [{"id": 1, "v": None}, {"id": None, "v": None}]


@pytest.mark.parametrize("sort", ["text", "composite"])
def test_a_key_with_a_nul_has_no_row_and_ends_nothing(sort, database, connection):
    """PostgreSQL's texts cannot have one, so it takes no statement that does."""
    stream, names = load(connection, sort, rows=60, events=40)
    texts = ("\0", "nul \0 within", "key 7\0")
    odd = pa.RecordBatch.from_pylist(
        [{"a": 1, names[-1]: text, "e": -1} for text in texts], stream[0].schema
    )
    stream = [odd.slice(0, 1), *stream, odd]
    same = " AND ".join(f"s.{name} = r.{name}" for name in names)
    expected = connection.execute(SQL["left"].format(same=same)).fetchall()
    expected += [(-1, None, None)] * 4
    for algorithm in ALGORITHMS:
        joined = join(stream, Postgres(database, "r"), on=names, how="left", algorithm=algorithm)
        assert got(joined) == sorted(expected, key=repr), algorithm


@pytest.fixture
def relation(database, connection):
    """500 rows, the n-th of key n // 5, some of them large."""
    connection.execute(
        "CREATE TABLE t (k int, n int, v text); CREATE INDEX ON t (k);"
        "INSERT INTO t SELECT i / 5, i, repeat('x', i % 7 * 300) FROM generate_series(0, 499) i"
    )
    relation = PostgresRelation(
        session_for(database, "t"), describe(connection, "t"), ["k"], ["n", "v"]
    )
    yield relation
    relation.close()


def ints(*keys):
    return JoinKeys.of_ints(np.array(keys, np.int64))


def test_pages_cover_the_table_once_within_the_room_there_is(relation):
    facts = relation.facts
    for most in (20_000, AMPLE):
        seen, page = [], 0
        while page < facts.pages:
            read = relation.read(Pages(page, facts.pages, facts.pages), most)
            assert read.nbytes <= most
            assert len(read.ends) == read.covers >= 1
            assert read.ends[-1] == len(read.rows)
            seen += read.rows.keys.values.tolist()
            page += read.covers
        assert sorted(seen) == sorted(i // 5 for i in range(500))


def test_a_read_never_turns_around_the_end_of_the_table(relation):
    pages = relation.facts.pages
    read = relation.read(Pages(pages - 1, 3, pages), AMPLE)
    assert read.covers == 1


def test_rows_that_are_appended_later_are_read_in_the_same_cycle(relation, connection):
    pages = relation.facts.pages
    connection.execute("INSERT INTO t SELECT 1000 + i, 0, '' FROM generate_series(1, 20000) i")
    seen, page = [], 0
    while page < pages:
        read = relation.read(Pages(page, 1, pages), 16 << 20)
        seen += read.rows.keys.values.tolist()
        page += read.covers
    assert len(seen) == 20500
    connection.execute("DELETE FROM t")
    connection.execute("VACUUM t")
    assert len(relation.read(Pages(0, pages, pages), AMPLE).rows) == 0


def test_a_partition_has_whole_keys_alone_and_is_the_same_whichever_of_them_asks(relation):
    sizes = []
    for most in (9_000, 40_000, AMPLE):
        read = relation.read(Partition(ints(37)), most)
        assert read.nbytes <= most
        keys, counts = np.unique(read.rows.keys.values, return_counts=True)
        assert 37 in keys
        assert keys.tolist() == list(range(keys[0], keys[-1] + 1))
        assert (counts == 5).all()
        for other in (keys[0], keys[-1]):
            again = relation.read(Partition(ints(int(other))), most)
            assert np.unique(again.rows.keys.values).tolist() == keys.tolist()
        sizes.append(len(keys))
    assert sizes[0] <= sizes[1] < sizes[2]
    absent = relation.read(Partition(ints(1000)), AMPLE)
    assert 1000 not in absent.rows.keys.values


def test_a_partition_with_a_key_that_is_too_large_still_answers_the_asked_one(relation, connection):
    connection.execute("INSERT INTO t SELECT 200, i, '' FROM generate_series(1, 1000) i")
    absent = relation.read(Partition(ints(150)), 9_000)
    assert absent.nbytes <= 9_000
    assert not np.isin([150, 200], absent.rows.keys.values).any()
    # The engine says that this one does not fit; it is not told that there are no rows.
    assert relation.read(Partition(ints(200)), 9_000).nbytes > 9_000
    found = relation.read(Partition(ints(200)), AMPLE).rows.keys.values
    assert np.count_nonzero(found == 200) == 1000


def test_fewer_keys_are_covered_if_not_all_fit(relation):
    asked = [5, 17, 900, 3, *range(50, 90)]
    for most in (9_000, 40_000, AMPLE):
        read = relation.read(Keys(ints(*asked)), most)
        assert read.nbytes <= most
        found = np.unique(read.rows.keys.values, return_counts=True)
        covered = sorted(set(asked[: read.covers]) - {900})
        assert found[0].tolist() == covered
        assert (found[1] == 5).all()
    assert read.covers == len(asked)


def test_composite_keys_with_a_null_part_do_not_cut_a_partition_short(database, connection):
    connection.execute(
        "CREATE TABLE c (a int, b text, n int); CREATE INDEX ON c (a, b);"
        "INSERT INTO c SELECT i / 10, CASE WHEN i % 2 = 0 THEN 'b' END, i"
        " FROM generate_series(0, 199) i"
    )
    description = describe(connection, "c")
    text = Column.of([b"b\x1f4"])
    key = JoinKeys(hash_text_many(text.data, text.bounds), text)
    # Limits that end before, among and behind the rows without a key.
    for most in range(2_600, 8_000, 500):
        relation = PostgresRelation(session_for(database, "c"), description, ["b", "a"], ["n"])
        keys = list(relation.read(Partition(key), most).rows.keys.texts)
        relation.close()
        assert keys.count(b"b\x1f4") == 5
        assert len(set(keys)) * 5 == len(keys), most


def others_come_to(connection, wanted):
    """Wait for so many other connections: a closed one is listed until its process has ended."""
    query = """
        SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid()
    """
    for _ in range(500):
        if connection.execute(query).fetchone()[0] == wanted:
            return True
        time.sleep(0.01)
    return False


def test_the_connection_ends_with_the_iteration_whichever_way_it_ends(database, connection):
    connection.execute("CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 2)")

    def endless():
        while True:
            yield pa.record_batch({"id": [None, 1]})

    def joined(stream):
        return join(stream, Postgres(database, "t"), on="id", how="left")

    never_begun = joined(endless())
    assert others_come_to(connection, 0)
    abandoned = joined(endless())
    next(abandoned)
    assert others_come_to(connection, 1)
    abandoned.close()
    assert others_come_to(connection, 0)
    with pytest.raises(ConfigError, match="cast them alike"):
        list(joined([pa.record_batch({"id": [None, 1]}), pa.record_batch({"id": ["x"]})]))
    list(joined([pa.record_batch({"id": [1]})]))
    assert others_come_to(connection, 0)
    never_begun.close()


def test_a_database_that_is_gone_and_a_table_that_is_gone_are_told_apart(database, connection):
    with pytest.raises(Unavailable, match="PostgreSQL cannot be read"):
        join([], Postgres("postgresql://nobody@127.0.0.1:1/none", "t"), on="id")
    with pytest.raises(ConfigError, match="URL"):
        join([], Postgres("postgresql://a:b@[", "t"), on="id")
    connection.execute("CREATE TABLE t (id int, v int)")
    joined = join([pa.record_batch({"id": [1]})], Postgres(database, "t"), on="id")
    connection.execute("DROP TABLE t")
    with pytest.raises(MasterDataError, match="check the table"):
        list(joined)


def test_a_chain_joins_with_a_file_and_with_a_table(database, connection):
    connection.execute(
        "CREATE TABLE people (id text PRIMARY KEY, born date);"
        "INSERT INTO people VALUES ('ann', '1990-05-01')"
    )
    products = pa.table({"product": [1, 2], "buyer": ["ann", "bob"]})
    sales = [pa.record_batch({"product": [2, 1, 3]})]
    joined = join(
        join(sales, products, on="product", how="left"),
        Postgres(database, "people"),
        on={"buyer": "id"},
        how="left",
    )
    rows = [row for batch in joined for row in batch.to_pylist()]
    assert sorted(rows, key=str) == [
        {"product": 1, "buyer": "ann", "born": dt.date(1990, 5, 1)},
        {"product": 2, "buyer": "bob", "born": None},
        {"product": 3, "buyer": None, "born": None},
    ]


def test_the_examples_of_the_documentation_that_need_a_database_run(
    database, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    page = Path(__file__).parents[2] / "docs" / "python-api.md"
    examples = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    with_database = [example for example in examples if "Postgres(" in example]
    assert with_database
    for example in with_database:
        code = example.replace("postgresql://localhost/shop", database)
        exec(compile(code, str(page), "exec"), {})
