"""When the disk phase cannot keep up, events are shed; none is lost, and it ends by itself."""

from __future__ import annotations

import itertools
import json
import os
import signal
from collections import Counter

import psycopg
import pytest

from dovetail.pipeline.spec import Engine, Layout
from tests.e2e.conftest import ENGINE, LAYOUT

KEYS = 400_000
HOT = 40
WAVE = 300
"""Events that are sent at a time, about ten times a second."""
SPEC = {
    "source": {"partitions": 2, "fields": {"sale": "int", "product": "int"}},
    "key": "product",
    "master": {"table": "goods", "key": "id", "columns": ["name"]},
    "memory": "16MiB",
    "slots": 4,
}
# A batch of Spark's takes half a second, however little there is to do.
WHEN_BEHIND = "1s" if ENGINE is Engine.SERVICES else "3s"
BRAKE = """
CREATE TABLE brake (seconds float);
INSERT INTO brake VALUES (0);
CREATE FUNCTION braked() RETURNS bool LANGUAGE plpgsql VOLATILE AS
  'BEGIN PERFORM pg_sleep(seconds) FROM brake WHERE seconds > 0; RETURN true; END';
ALTER TABLE goods RENAME TO fast;
CREATE VIEW goods AS SELECT * FROM fast WHERE braked();
"""
BRAKED_S = 0.002 if ENGINE is Engine.SPARK else 0.0005
"""For each row that is read."""


def fill(database):
    """Key k has k mod 4 master rows: none, one, two or three."""
    with psycopg.connect(database) as connection:
        connection.execute("CREATE TABLE goods (id int, name text)")
        connection.execute(
            "INSERT INTO goods SELECT k, 'row ' || n FROM generate_series(1, %s) k,"
            " generate_series(1, k %% 4) n",
            (KEYS,),
        )
        connection.execute("CREATE INDEX ON goods (id)")
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE goods")


@pytest.fixture
def goods(database):
    fill(database)
    if ENGINE is Engine.SPARK or LAYOUT is Layout.FUSED:
        with psycopg.connect(database) as connection:
            connection.execute(BRAKE)


def _product(number):
    """Keys with every number of rows, among the hot ones and among the others."""
    return number // 10 % HOT if number % 10 == 0 else HOT + number * 7_919 % (KEYS - HOT)


class Sales:
    """Every tenth event has one of a few keys, which are soon cached; the others never repeat."""

    def __init__(self, pipeline):
        self._pipeline = pipeline
        self._numbers = itertools.count(1)
        self.sent = 0

    def wave(self, events=WAVE):
        numbers = list(itertools.islice(self._numbers, events))
        self._pipeline.send(
            json.dumps({"sale": n, "product": _product(n)}).encode() for n in numbers
        )
        self.sent += events
        self._pipeline.pause(0.1)

    def flow_until(self, satisfied, what):
        for _ in range(1_200):
            self.wave()
            if satisfied(self._pipeline.audit()):
                return
        pytest.fail(f"after {self.sent:,} events: {what}")


def sheds(pipeline):
    return pipeline.figures(pipeline.process_of("mapper"))["shedding"] == 1


class HeldUp:
    """What R takes is more than there is time for."""

    def __init__(self, pipeline, database):
        self._pipeline = pipeline
        self._database = database

    def begin(self):
        """Let the disk phase stand still, where it is a process; else make every row slow."""
        if self._pipeline.has_phases:
            os.kill(self._pipeline.pid("disk_phase-0"), signal.SIGSTOP)
        else:
            self._brake(BRAKED_S)

    def end(self):
        if self._pipeline.has_phases:
            os.kill(self._pipeline.pid("disk_phase-0"), signal.SIGCONT)
        else:
            self._brake(0)

    def _brake(self, seconds):
        with psycopg.connect(self._database) as connection:
            connection.execute("UPDATE brake SET seconds = %s", (seconds,))


@pytest.mark.timeout(600)
def test_an_overload_is_shed_and_accounted_for_and_ends_by_itself(run_pipeline, goods, database):
    spec = {**SPEC, "overload": {"shed": "auto", "when_behind": WHEN_BEHIND}}
    if LAYOUT is Layout.FUSED:
        # PostgreSQL has no statistics of a view, and `auto` would look up one key a query.
        spec["algorithm"] = "srj"
    with run_pipeline(spec) as pipeline:
        sales, held_up = Sales(pipeline), HeldUp(pipeline, database)
        mapper = pipeline.process_of("mapper")
        # On a machine that is busy by itself it may have to shed until then, and should.
        sales.flow_until(
            lambda seen: (
                seen.hits > WAVE
                # A fused node learns what it can serve when first something has to wait.
                and (pipeline.figures(mapper)["service_rate"] or not pipeline.has_phases)
                and not sheds(pipeline)
            ),
            "both phases answer",
        )
        by_itself = pipeline.audit().shed

        held_up.begin()
        sales.flow_until(lambda seen: seen.shed > by_itself + 5 * WAVE, "events are shed")
        figures = pipeline.figures(mapper)
        assert figures["shedding"] == 1
        assert figures["behind_seconds"] > 1
        assert sum(figures[f"slot_rate.{slot}"] for slot in range(SPEC["slots"])) > 0

        # What is cached goes on, although the disk phase stands still.
        hits = pipeline.audit().hits
        sales.flow_until(lambda seen: seen.hits > hits + WAVE, "the cache goes on")
        assert sheds(pipeline)

        held_up.end()
        sales.flow_until(lambda _: not sheds(pipeline), "shedding ends")
        before = pipeline.audit().shed
        sales.wave()
        final = pipeline.drain()
        assert final.problems == []
        assert final.shed == before > by_itself
        assert final.taken == sales.sent
        assert final.taken == final.enriched + final.unmatched + final.shed

        verdict = pipeline.verdict()
        assert verdict.differences == []
        assert (verdict.events, verdict.shed) == (sales.sent, final.shed)
        assert verdict.outputs == verdict.expected == final.outputs > 0
        reasons = Counter(
            headers["reason"] for headers, _ in pipeline.messages(pipeline.topology.shed)
        )
        assert reasons == {"overload: topw": final.shed}
