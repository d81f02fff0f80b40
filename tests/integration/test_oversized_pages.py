"""A heap block whose rows have long values elsewhere (TOAST) takes more than the disk buffer.

It is read in parts, whoever waits. Only the key of a row that is too large by itself is let go.
"""

import json
from collections import Counter

import numpy as np
import psycopg
import pyarrow as pa
import pytest

from dovetail.api import Postgres, join
from dovetail.errors import MasterDataError, TooManyRowsError, Unavailable
from dovetail.join.columns import Column
from dovetail.join.engine import Engine
from dovetail.join.exchange import Events, Keys, Pages, Partition
from dovetail.join.kinds import JoinKind
from dovetail.join.splice import splice
from dovetail.master.pipeline import PipelineRelation
from dovetail.master.session import Session
from dovetail.master.table.description import describe
from dovetail.master.table.relation import PostgresRelation, session_for
from dovetail.node.master import MasterJoin
from tests.integration.master_kit import ints, pipeline

MEMORY = 400_000
"""A disk buffer of 100,000 bytes; the wide block has 40 rows of 30,000."""
WIDE = range(900, 940)
HUGE = 910


@pytest.fixture
def connection(database):
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(
            "CREATE TABLE t (id int, v text);"
            "ALTER TABLE t ALTER v SET STORAGE EXTERNAL;"
            "INSERT INTO t SELECT i, repeat('x', CASE WHEN i BETWEEN 900 AND 939 THEN 30000"
            " ELSE 60 END) FROM generate_series(0, 2999) i"
        )
        yield connection


@pytest.fixture
def relation(database, connection):
    relation = PipelineRelation(database, pipeline("t", ["v"]))
    yield relation
    relation.close()


def events_of(keys):
    data = Column.of([b'{"id":%d}' % key for key in keys])
    return Events(ints(*keys), data, np.arange(len(keys)))


def joined(algorithm, relation, keys):
    """How long the values are that each key was given, and the keys that were let go."""
    engine = Engine(algorithm, relation.facts, MEMORY)
    driver = MasterJoin(engine, relation)
    events = events_of(keys)
    given, dismissed, at = Counter(), [], 0
    while at < len(events) or engine.pending:
        at += driver.offer(events.slice(at, min(at + 100, len(events)))).accepted
        try:
            answers = driver.step()
        except TooManyRowsError as error:
            named = f"join key {HUGE} " in str(error)
            dismissed += [keys[nth] for nth in engine.dismiss().ids if named]
            continue
        if answers is None:
            continue
        made = splice(JoinKind.INNER, answers.events, answers.entries, answers.starts, b"")
        for output in map(json.loads, made.outputs):
            given[output["id"], len(output["v"])] += 1
    return given, dismissed


def in_sql(connection, keys):
    lengths = connection.execute("SELECT id, length(v) FROM t").fetchall()
    asked = Counter(keys)
    given = Counter()
    for key, length in lengths:
        given[key, length] += asked[key]
    return +given


@pytest.mark.parametrize("unique", [True, False])
@pytest.mark.parametrize("algorithm", ["meshjoin", "ssbj"])
def test_every_event_is_answered_by_a_scan(algorithm, unique, connection, relation):
    if unique:
        connection.execute("ALTER TABLE t ADD PRIMARY KEY (id)")
    else:
        connection.execute("INSERT INTO t SELECT id, 'again' FROM t WHERE id % 3 = 0")
    keys = [*range(0, 3000, 7), *WIDE, *range(2999, 0, -11), *WIDE]
    given, dismissed = joined(algorithm, relation, keys)
    assert not dismissed
    assert given == in_sql(connection, keys)


@pytest.mark.parametrize("unique", [True, False])
def test_a_row_too_large_lets_go_of_its_own_key_alone(unique, connection, relation):
    connection.execute("UPDATE t SET v = repeat('y', 150000) WHERE id = %s", [HUGE])
    connection.execute("VACUUM FULL t")
    if unique:
        connection.execute("ALTER TABLE t ADD PRIMARY KEY (id)")
    keys = [key for key in range(0, 3000, 3) if key != HUGE]
    given, dismissed = joined("meshjoin", relation, keys)
    assert not dismissed, "nobody waits for it"
    assert given == in_sql(connection, keys)
    given, dismissed = joined("meshjoin", relation, [*keys, HUGE, 5, HUGE])
    assert dismissed == [HUGE, HUGE]
    assert given == in_sql(connection, [*keys, 5])


@pytest.mark.parametrize("algorithm", ["meshjoin", "ssbj", "auto"])
def test_the_python_api_reads_such_a_block_too(algorithm, connection, database):
    keys = list(range(0, 3000, 2))
    batches = pa.table({"id": keys}).to_batches(max_chunksize=100)
    # The disk buffer of `auto` is a smaller part of its memory.
    memory = 4 * MEMORY if algorithm == "auto" else MEMORY
    out = pa.Table.from_batches(
        join(batches, Postgres(database, "t"), on="id", algorithm=algorithm, memory=memory)
    )
    lengths = zip(out["id"].to_pylist(), map(len, out["v"].to_pylist()), strict=True)
    assert Counter(lengths) == in_sql(connection, keys)


@pytest.fixture
def stretch(connection):
    """90,000 short rows, in whose midst 100 blocks have 100 MB of long ones."""
    connection.execute(
        "TRUNCATE t; INSERT INTO t SELECT i, 'short' FROM generate_series(0, 44999) i;"
        "INSERT INTO t (v) VALUES (repeat('no key', 100000));"
        "INSERT INTO t SELECT i, repeat('x', 5000) FROM generate_series(45000, 64999) i;"
        "INSERT INTO t SELECT i, 'short' FROM generate_series(65000, 109999) i;"
        "CREATE UNIQUE INDEX ON t (id); ANALYZE t"
    )


@pytest.fixture
def longest(monkeypatch):
    """How long the values were that the database was asked for."""
    lengths, value = [0], Session.value

    def watched(session, query):
        found = value(session, query)
        lengths.append(len(found or b""))
        return found

    monkeypatch.setattr(Session, "value", watched)
    return lambda: max(lengths)


@pytest.mark.parametrize("store", ["pipeline", "postgres"])
def test_what_the_database_builds_is_bounded_however_long_the_rows_are(
    store, stretch, connection, database, relation, longest
):
    if store == "postgres":
        relation = PostgresRelation(
            session_for(database, "t"), describe(connection, "t"), ["id"], ["v"]
        )
    most = 2 << 20
    of, page, place, seen = relation.facts.pages, 0, 0, Counter()
    if store == "pipeline":
        relation.renew()
    while page < of:
        read = relation.read(Pages(page, of - page, of, place), most)
        assert read.nbytes <= most
        seen.update(read.rows.keys.values.tolist())
        page, place = page + read.covers, read.place
    assert seen == Counter(range(110000)), "each row once"
    asked = list(range(45000, 47000))
    while asked:
        read = relation.read(Keys(ints(*asked)), most)
        assert sorted(read.rows.keys.values.tolist()) == sorted(asked[: read.covers])
        asked = asked[read.covers :]
    for key in (10, 45000, 60000):
        read = relation.read(Partition(ints(key)), most)
        assert read.nbytes <= most
        assert key in read.rows.keys.values
    assert longest() < 4 * most, "which is what the sample may take"
    relation.close()


@pytest.mark.parametrize("store", ["pipeline", "postgres"])
def test_rows_that_nobody_knew_to_be_long_are_read_in_smaller_parts(store, connection, database):
    """They are compressed so well that they stay in their blocks: more than 1 GB of them."""
    connection.execute(
        "TRUNCATE t; ALTER TABLE t ALTER v SET STORAGE MAIN;"
        "INSERT INTO t VALUES (1, repeat('x', 400000));"
        "INSERT INTO t SELECT i, v FROM t, generate_series(2, 3000) i;"
        "CREATE UNIQUE INDEX ON t (id); ANALYZE t"
    )
    assert not connection.execute(
        "SELECT pg_relation_size(reltoastrelid) FROM pg_class WHERE relname = 't'"
    ).fetchone()[0]
    asked = Keys(ints(*range(1, 3001)))
    if store == "postgres":
        relation = PostgresRelation(
            session_for(database, "t"), describe(connection, "t"), ["id"], ["v"]
        )
    else:
        relation = PipelineRelation(database, pipeline("t", ["v"]), limit_s=100.0)
        assert relation.facts.pages
        with pytest.raises(Unavailable, match="looking up 3000 keys of t by id again"):
            relation.read(asked, 8 << 20)
    read = relation.read(asked, 8 << 20)
    assert read.covers > 1
    assert sorted(read.rows.keys.values.tolist()) == list(range(1, read.covers + 1))
    relation.close()


def test_a_row_that_is_too_long_to_be_sent_is_no_failure_of_the_database(connection, database):
    connection.execute("CREATE VIEW w AS SELECT 1 AS id, repeat('x', 2000000000 + id) AS v FROM t")
    relation = PipelineRelation(database, pipeline("w", ["v"]))
    assert not relation.facts.by_page
    with pytest.raises(MasterDataError, match=r"too long for PostgreSQL.*longest column"):
        relation.read(Keys(ints(1)), 8 << 20)
    relation.close()
