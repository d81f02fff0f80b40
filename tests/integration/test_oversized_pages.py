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
from dovetail.errors import TooManyRowsError
from dovetail.join.columns import Column
from dovetail.join.engine import Engine
from dovetail.join.exchange import Events
from dovetail.join.kinds import JoinKind
from dovetail.join.splice import splice
from dovetail.master.pipeline import PipelineRelation
from services.disk_phase.join import MasterJoin
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
        at += driver.offer(events.slice(at, min(at + 100, len(events))))
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
