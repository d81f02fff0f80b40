"""A pipeline's master table as the join engine reads it: what SQL gives, by every request."""

import json
import random
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import numpy as np
import psycopg
import pytest
from psycopg import sql

from dovetail.errors import MasterDataError, SlowError, Unavailable
from dovetail.join.algorithms import ALGORITHMS, Parameters
from dovetail.join.auto import Auto
from dovetail.join.columns import Column
from dovetail.join.engine import Engine
from dovetail.join.exchange import Events, Keys, Pages, Partition
from dovetail.join.kinds import JoinKind
from dovetail.join.mapper import Mapper
from dovetail.join.policies import NoCache
from dovetail.join.splice import null_row, splice
from dovetail.master.pipeline import QUICK_S, PipelineRelation
from dovetail.node.master import MasterJoin
from dovetail.pipeline.spec import KeyType
from dovetail.settings import Settings
from services.spark import relation as spark_relation
from tests.integration.master_kit import composites, found, ints, pipeline, texts

AMPLE = 4 << 20
SORTS = {
    "int": (["a"], "(a)", {"a": "int"}),
    "text": (["b"], "(b)", {"b": "text"}),
    # The index has the columns the other way round.
    "composite": (["a", "b"], "(b, a)", {"a": "int", "b": "text"}),
}
CANONICAL = {"int": "a", "text": "b", "composite": "a || chr(31) || b"}
SQL = {
    "inner": "SELECT e, r, v FROM s JOIN r ON {same}",
    "left": "SELECT e, r, v FROM s LEFT JOIN r ON {same}",
    "semi": "SELECT e, NULL, NULL FROM s WHERE EXISTS (SELECT FROM r WHERE {same})",
    "anti": "SELECT e, NULL, NULL FROM s WHERE NOT EXISTS (SELECT FROM r WHERE {same})",
}


@pytest.fixture
def connection(database):
    with psycopg.connect(database, autocommit=True) as connection:
        yield connection


@pytest.fixture
def relation_of(database):
    opened = []

    def open_relation(*args, read_ahead=True, limit_s=QUICK_S, **options):
        made = pipeline(*args, **options)
        opened.append(PipelineRelation(database, made, read_ahead=read_ahead, limit_s=limit_s))
        return opened[-1]

    yield open_relation
    for relation in opened:
        relation.close()


def random_key(chance):
    number = chance.choice([*range(-5, 150), *([7] * 40), None, None])
    text = None if number is None else f"key {number} ü'\\\"{{,}}%s"
    return chance.choice([number, 1, 2, None, 12345]), text


def load(connection, sort, rows=1500, events=300):
    _, index, _ = SORTS[sort]
    connection.execute(
        "CREATE TABLE r (a int, b text, r int, v text); CREATE TABLE s (a bigint, b text, e int)"
    )
    chance = random.Random(1)
    with connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO r VALUES (%s, %s, %s, %s)",
            [(*random_key(chance), i, None if i % 5 == 0 else "v" * (i % 90)) for i in range(rows)],
        )
        stream = [(*random_key(chance), i) for i in range(events)]
        stream = [event for event in stream if None not in event]
        cursor.executemany("INSERT INTO s VALUES (%s, %s, %s)", stream)
    connection.execute(f"CREATE INDEX ON r {index}")
    keys = {
        "int": lambda: ints(*(a for a, _, _ in stream)),
        "text": lambda: texts(*(b for _, b, _ in stream)),
        "composite": lambda: composites(*((a, b) for a, b, _ in stream)),
    }[sort]()
    data = Column.of([b'{"e":%d}' % e for _, _, e in stream])
    return Events(keys, data, np.array([e for _, _, e in stream]))


def rows_in(connection, sort, columns="r, v"):
    """Every row that has a key, as (key, row); without columns, one for each of them all."""
    row = f"(SELECT row_to_json(x)::text FROM (SELECT {columns}) x)" if columns else "''"
    query = f"SELECT {CANONICAL[sort]} AS k, {row} FROM r WHERE {CANONICAL[sort]} IS NOT NULL"
    return sorted(connection.execute(query).fetchall(), key=str)


def whole_cycle(relation, most=AMPLE, pages=None):
    """Read all pages as an engine would."""
    relation.renew()
    of = relation.facts.pages
    rows, page = [], 0
    while page < of:
        read = relation.read(Pages(page, pages or of, of), most)
        assert read.nbytes <= most
        assert 1 <= read.covers <= (pages or of)
        assert len(read.ends) == read.covers
        assert read.ends[-1] == len(read.rows)
        rows += found(read.rows)
        page += read.covers
    assert page == of
    return sorted(rows, key=str)


@pytest.mark.parametrize("join", ["inner", "left", "semi", "anti"])
@pytest.mark.parametrize("sort", SORTS)
def test_pages_partitions_and_keys_are_what_sql_gives(sort, join, connection, relation_of):
    events = load(connection, sort)
    names, _, fields = SORTS[sort]
    columns = ["r", "v"] if join in ("inner", "left") else {}
    relation = relation_of("r", columns, fields, names, join, names)
    expected = rows_in(connection, sort, "r, v" if columns else "")
    assert whole_cycle(relation) == expected
    assert whole_cycle(relation, most=30_000) == expected
    assert whole_cycle(relation, pages=1) == expected

    of_key = Counter(expected)
    for at in range(0, len(events), 40):
        key = events.keys.slice(at, at + 1)
        read = relation.read(Partition(key), 60_000)
        assert read.nbytes <= 60_000
        got = Counter(found(read.rows))
        names_read = {name for name, _ in got}
        there = Counter({pair: n for pair, n in of_key.items() if pair[0] in names_read})
        assert got == there if columns else set(got) == set(there)
        asked = key.texts[0].decode() or int(key.values[0])
        assert asked in names_read or asked not in {name for name, _ in of_key}

    some = events.keys.take(np.unique(events.keys.values, return_index=True)[1])
    read = relation.read(Keys(some), AMPLE)
    assert read.covers == len(some)
    asked = {some.texts[i].decode() or int(some.values[i]) for i in range(len(some))}
    wanted = Counter({pair: n for pair, n in of_key.items() if pair[0] in asked})
    assert Counter(found(read.rows)) == (wanted if columns else Counter(set(wanted)))


@pytest.mark.parametrize("join", SQL)
@pytest.mark.parametrize("sort", SORTS)
def test_every_algorithm_joins_as_sql_does(sort, join, connection, relation_of):
    events = load(connection, sort)
    names, _, fields = SORTS[sort]
    same = " AND ".join(f"s.{name} = r.{name}" for name in names)
    expected = sorted(connection.execute(SQL[join].format(same=same)).fetchall(), key=repr)
    columns = ["r", "v"] if join in ("inner", "left") else {}
    no_row = null_row([b'"r"', b'"v"'])
    for algorithm in ALGORITHMS:
        relation = relation_of("r", columns, fields, names, join, names)
        engine = Engine(algorithm, relation.facts, 200_000, parameters=Parameters(keys=50))
        driver = MasterJoin(engine, relation)
        answers, at = [], 0
        while at < len(events) or engine.pending:
            offered = engine.offer(events.slice(at, min(at + 70, len(events))))
            answers.append(offered.answers)
            at += offered.accepted
            answers.append(driver.step())
        outputs = [
            json.loads(output)
            for part in answers
            if part is not None
            for output in splice(
                JoinKind(join), part.events, part.entries, part.starts, no_row
            ).outputs
        ]
        got = sorted(((o["e"], o.get("r"), o.get("v")) for o in outputs), key=repr)
        assert got == expected, algorithm
        assert driver.step() is None
        assert idle(connection), "nothing is held open while nothing waits"


def idle(connection):
    states = connection.execute(
        "SELECT state FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        " AND backend_type = 'client backend'"
    ).fetchall()
    return all(state == "idle" for (state,) in states)


@pytest.mark.parametrize("sort", SORTS)
def test_a_scan_gives_the_rows_of_the_slots_that_the_mapper_would(sort, connection, relation_of):
    load(connection, sort)
    names, _, fields = SORTS[sort]
    relation = relation_of("r", ["r"], fields, names, master_key=names, slots=12)
    everything = rows_in(connection, sort, "r")
    keys = (
        ints(*(k for k, _ in everything)) if sort == "int" else texts(*(k for k, _ in everything))
    )
    slots = Mapper(12, int_key=sort == "int").slots(keys).tolist()
    assert len(set(slots)) == 12
    for kept in (frozenset({0}), frozenset({3, 4, 11}), frozenset(), frozenset(range(12)), None):
        relation.keep(kept)
        mine = [
            pair
            for pair, slot in zip(everything, slots, strict=True)
            if kept is None or slot in kept
        ]
        assert whole_cycle(relation) == mine
    relation.keep(frozenset({1}))
    with pytest.raises(AssertionError, match="renew"):
        relation.read(Pages(0, 1, relation.facts.pages), AMPLE)


@pytest.fixture
def table(connection):
    connection.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v int, pad text);"
        "INSERT INTO t SELECT i, i, repeat('x', 200) FROM generate_series(1, 2000) i;"
        "CREATE TABLE other (n int)"
    )
    return "t"


def blocks(connection):
    return connection.execute("SELECT pg_relation_size('t') / 8192").fetchone()[0]


def test_facts_are_exact_and_new_only_if_something_was_written(table, connection, relation_of):
    relation = relation_of(table, ["v"])
    first = relation.facts
    assert idle(connection), "to know the table is no reason to hold a transaction open"
    assert (first.pages, first.unique, first.by_key) == (blocks(connection), True, True)
    # Not always at once: the server's own transactions, such as autovacuum's, are writes as well.
    assert None in (relation.renew() for _ in range(20))
    connection.execute("INSERT INTO other VALUES (1)")
    assert relation.renew() == first, "nobody can tell cheaply which table was written"
    connection.execute("INSERT INTO t SELECT i, i, '' FROM generate_series(3000, 20000) i")
    grown = relation.renew()
    assert grown is not None
    assert grown.pages == blocks(connection) > 2 * first.pages
    connection.execute("DELETE FROM t WHERE id > 100")
    relation.rest()
    connection.execute("VACUUM t")
    shrunk = relation.renew()
    assert shrunk is not None
    assert shrunk.pages == blocks(connection) < first.pages


def test_a_unique_index_that_is_dropped_makes_keys_many_rowed(table, connection, relation_of):
    relation = relation_of(table, ["v"])
    assert relation.facts.unique
    connection.execute("ALTER TABLE t DROP CONSTRAINT t_pkey; INSERT INTO t VALUES (1, 2, '')")
    facts = relation.renew()
    assert facts is not None
    assert not facts.unique
    assert not facts.by_key
    connection.execute("DELETE FROM t WHERE id = 1")
    relation.rest()
    connection.execute("CREATE UNIQUE INDEX ON t (id)")
    facts = relation.renew()
    assert facts is not None
    assert facts.unique
    assert facts.by_key
    assert relation_of(table, {}, join="semi").facts.unique, "one row says all that semi asks"


def test_pages_need_a_snapshot(table, relation_of, connection):
    relation = relation_of(table, ["v"])
    pages = relation.facts.pages

    def refused(page):
        with pytest.raises(AssertionError, match="renew"):
            relation.read(Pages(page, 1, pages), AMPLE)
        return True

    assert refused(0)
    relation.renew()
    relation.read(Pages(0, 1, pages), AMPLE)
    relation.read(Pages(1, 1, pages), AMPLE)
    assert refused(0), "the next cycle is another snapshot"
    relation.renew()
    relation.read(Pages(0, 1, pages), AMPLE)
    relation.rest()
    assert refused(1)
    relation.renew()
    relation.read(Pages(1, 1, pages), AMPLE)
    connection.execute("UPDATE t SET v = -1 WHERE id = 5")
    assert found(relation.read(Keys(ints(5)), AMPLE).rows) == [(5, '{"v":-1}')], "as it is now"
    assert idle(connection)
    assert refused(2), "it has ended the cycle"
    relation.renew()
    assert (5, '{"v":-1}') in found(relation.read(Partition(ints(5)), AMPLE).rows)
    assert refused(2)


@pytest.mark.parametrize("read_ahead", [True, False])
def test_a_cycle_sees_one_state_whatever_b_is(read_ahead, table, relation_of, connection):
    """What is read ahead with another b, or for another page, is cut or dropped, never joined."""
    relation = relation_of(table, ["v"], read_ahead=read_ahead)
    chance = random.Random(5)
    for _ in range(5):
        relation.renew()
        of = relation.facts.pages
        expected = dict(connection.execute("SELECT id, v FROM t").fetchall())
        seen, page = {}, 0
        while page < of:
            if page and chance.random() < 0.1:
                relation.read(Pages(chance.randrange(1, of), 3, of), AMPLE)
            read = relation.read(Pages(page, chance.randint(1, 30), of), AMPLE)
            for key, row in found(read.rows):
                assert key not in seen
                seen[key] = json.loads(row)["v"]
            page += read.covers
            connection.execute(
                "UPDATE t SET v = -v, pad = pad || 'x' WHERE id %% 7 = %s", [chance.randrange(7)]
            )
        assert seen == expected


def end_others(connection):
    connection.execute(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )


@pytest.mark.parametrize("read_ahead", [True, False])
def test_a_connection_lost_in_mid_cycle_ends_the_cycle(read_ahead, table, relation_of, connection):
    relation = relation_of(table, ["v"], read_ahead=read_ahead)
    pages = relation.facts.pages
    relation.renew()
    relation.read(Pages(0, 4, pages), AMPLE)
    if read_ahead:
        relation._ahead._reading.result()
    end_others(connection)
    if read_ahead:  # what has come by then is still good
        relation.read(Pages(4, 4, pages), AMPLE)
    with pytest.raises(Unavailable, match="PostgreSQL cannot be read"):
        relation.read(Pages(8 if read_ahead else 4, 4, pages), AMPLE)
    with pytest.raises(AssertionError, match="renew"):
        relation.read(Pages(8, 4, pages), AMPLE)
    assert relation.renew() is not None, "another server might have taken over"
    assert len(whole_cycle(relation)) == 2000


def test_a_connection_lost_at_rest_is_noticed_and_made_anew(table, relation_of, connection):
    relation = relation_of(table, ["v"])
    assert relation.facts.pages
    end_others(connection)
    with pytest.raises(Unavailable, match="PostgreSQL cannot be read"):
        relation.renew()
    assert relation.renew() is not None
    relation.read(Pages(0, 4, relation.facts.pages), AMPLE)
    end_others(connection)
    relation.rest()
    assert relation.renew() is not None


def test_what_cannot_be_read_so_is_said_with_the_cure(connection, relation_of):
    connection.execute(
        "CREATE TABLE t (id int, v int); INSERT INTO t VALUES (1, 2);"
        "CREATE VIEW seen AS SELECT * FROM t; CREATE MATERIALIZED VIEW kept AS SELECT * FROM t"
    )
    view = relation_of("seen", ["v"])
    assert not view.facts.by_key
    with pytest.raises(MasterDataError, match=r"no pages to scan.*srj"):
        view.read(Pages(0, 1, 1), AMPLE)
    assert found(view.read(Keys(ints(1)), AMPLE).rows) == [(1, '{"v":2}')]
    relation = relation_of("t", ["v"])
    with pytest.raises(MasterDataError, match=r"CREATE INDEX ON t \(id\)"):
        relation.read(Partition(ints(1)), AMPLE)
    kept = relation_of("kept", ["v"])
    assert whole_cycle(relation) == whole_cycle(kept) == [(1, '{"v":2}')]
    kept.rest()
    relation.rest()
    connection.execute("DROP VIEW seen; DROP MATERIALIZED VIEW kept; DROP TABLE t")
    with pytest.raises(MasterDataError, match=r"does not exist.*dovetail check"):
        relation.renew()
    relation.rest()
    connection.execute("CREATE TABLE t (v int)")
    with pytest.raises(MasterDataError, match="no column 'id' any more"):
        relation.renew()
    connection.execute("DROP TABLE t; CREATE TABLE t AS SELECT 3 AS id, 4 AS v")
    assert whole_cycle(relation) == [(3, '{"v":4}')]


def test_a_table_is_no_longer_scanned_once_another_inherits_from_it(table, connection, relation_of):
    relation = relation_of(table, ["v"])
    first = relation.facts
    relation.renew()
    connection.execute(
        "CREATE TABLE child (LIKE t INCLUDING ALL);"
        "INSERT INTO child VALUES (1, -1, ''), (9999, 2, '');"
        "ALTER TABLE child INHERIT t"
    )
    of = first.pages
    rows = [pair for n in range(of) for pair in found(relation.read(Pages(n, 1, of), AMPLE).rows)]
    assert sorted(rows) == [(i, f'{{"v":{i}}}') for i in range(1, 2001)], "as it was at its start"
    facts = relation.renew()
    assert facts is not None
    assert not facts.by_page
    assert not facts.unique
    with pytest.raises(MasterDataError, match=r"no pages to scan.*srj"):
        relation.read(Pages(0, 1, 1), AMPLE)
    read = relation.read(Keys(ints(1, 2, 9999)), AMPLE)
    assert [(k, json.loads(v)["v"]) for k, v in found(read.rows)] == [
        (1, -1),
        (1, 1),
        (2, 2),
        (9999, 2),
    ]


def test_an_empty_table_is_one_page_without_rows(connection, relation_of):
    connection.execute("CREATE TABLE t (id text PRIMARY KEY, v int)")
    relation = relation_of("t", ["v"], {"id": "text"})
    assert relation.facts.pages == 1
    assert relation._pipeline.key_type is KeyType.TEXT
    assert whole_cycle(relation) == []


def test_a_lock_that_is_held_for_long_is_unavailable_not_a_hang(
    table, database, relation_of, connection, monkeypatch
):
    monkeypatch.setattr("dovetail.master.pipeline._PATIENCE", ("SET lock_timeout = '50ms'",))
    relation = relation_of(table, ["v"])
    assert relation.facts.pages
    with psycopg.connect(database) as other:
        other.execute("LOCK TABLE t IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(Unavailable, match="lock timeout"):
            relation.renew()
    assert relation.renew() is not None


def test_a_slow_database_is_said_to_be_slow_and_given_longer_until_it_is_quick_again(
    table, relation_of, connection
):
    slowly = "CREATE OR REPLACE VIEW slow AS SELECT id, v FROM t WHERE {} AND id = 1"
    connection.execute(slowly.format("pg_sleep(0.5) IS NOT NULL"))
    relation = relation_of("slow", ["v"], limit_s=0.2)
    asked = Keys(ints(1))
    for within in ("0.2 s", "0.4 s"):
        said = rf"looking up 1 keys of slow by id.*: PostgreSQL is slow: .* within {within}"
        with pytest.raises(SlowError, match=said):
            relation.read(asked, AMPLE)
    assert found(relation.read(asked, AMPLE).rows) == [(1, '{"v":1}')]
    connection.execute(slowly.format("true"))
    assert found(relation.read(asked, AMPLE).rows) == [(1, '{"v":1}')]
    connection.execute(slowly.format("pg_sleep(0.5) IS NOT NULL"))
    with pytest.raises(SlowError, match=r"within 0\.2 s"):
        relation.read(asked, AMPLE)


def test_on_spark_a_read_has_as_long_as_any_may_take_at_once(table, database):
    """What fails there is tried again by another worker, which would begin with 5 s once more."""
    settings = Settings("nowhere:9092", database, Path("pipeline.yaml"))
    with closing(spark_relation.relation_of(settings, pipeline(table, ["v"]))) as relation:
        assert relation.facts.pages
        with relation._session.connection() as connection:
            assert connection.execute("SHOW statement_timeout").fetchone() == ("4min",)


def test_who_keeps_other_slots_does_not_wait_for_a_slow_read(table, relation_of):
    """Slots change in a rebalance, which the broker waits for; the database is no slower for it."""
    relation = relation_of(table, ["v"], limit_s=60.0)
    relation.renew()
    slow = sql.SQL("SELECT pg_sleep(60)::text::bytea").format()
    relation._ahead.start(1, lambda: relation._session.value(slow))
    began = time.monotonic()
    relation.keep(frozenset({1}))
    assert time.monotonic() - began < 20
    assert relation.renew() is not None
    assert len(whole_cycle(relation)) < 2000
    shown = relation._session.value(sql.SQL("SHOW statement_timeout").format())
    assert shown == "1min", "which is not doubled"


def test_a_connection_lost_between_reads_by_key_makes_the_next_cycle_a_new_one(
    table, relation_of, connection
):
    relation = relation_of(table, ["v"])
    assert relation.facts.pages
    end_others(connection)
    with pytest.raises(Unavailable, match="PostgreSQL cannot be read"):
        relation.read(Keys(ints(1)), AMPLE)
    assert found(relation.read(Keys(ints(1)), AMPLE).rows) == [(1, '{"v":1}')]
    assert relation.renew() is not None


def test_auto_learns_of_an_index_also_while_it_reads_no_pages(table, connection, relation_of):
    """It has read by key until the index goes; the clock is the test's."""
    relation, now = relation_of(table, ["v"]), [0.0]
    auto = Auto(relation.facts, 1 << 20, lambda: now[0], policy=NoCache())
    driver = MasterJoin(auto, relation, clock=lambda: now[0])

    def asked(key):
        driver.offer(Events(ints(key), Column.of([b"{}"]), np.array([key])))
        answered = 0
        while (answers := driver.step()) is not None:
            answered += len(answers)
        return answered, auto.choice.algorithm

    assert asked(5) == (1, "srj")
    connection.execute("ALTER TABLE t DROP CONSTRAINT t_pkey")
    assert asked(6) == (1, "srj"), "not every read is a reason to look"
    now[0] += 61
    assert asked(7) == (1, "meshjoin")
    connection.execute("CREATE UNIQUE INDEX ON t (id)")
    assert asked(8) == (1, "meshjoin")
    assert {name for name, _ in auto.ranking()} >= {"srj", "meshjoin"}


def test_rows_are_as_of_a_moment_by_the_databases_clock(table, relation_of, connection):
    def shown():
        return connection.execute("SELECT extract(epoch FROM clock_timestamp())").fetchone()[0]

    relation = relation_of(table, ["v"])
    relation.now()
    before, now, after = shown(), relation.now(), shown()
    assert float(before) - 1 < now <= float(after)
