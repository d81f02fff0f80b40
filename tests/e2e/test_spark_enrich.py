"""engine: spark gives what SQL gives, each output once, whatever is run again or killed.

A Spark session takes ten seconds to start, so that `make test` has a few of these, and
`make test-spark` all.
"""

from __future__ import annotations

import json
import os
import random
import threading
import uuid
from collections import Counter
from contextlib import contextmanager, suppress

import psutil
import psycopg
import pytest
from confluent_kafka import TopicPartition
from pyspark.errors import PySparkException

from dovetail.demo.catalogue import load_catalogue
from dovetail.demo.generate import MAX_RATE, GenerateSettings, generate
from dovetail.join.line import CrowdedError
from dovetail.pipeline.spec import Algorithm
from dovetail.stream.handler import Move
from dovetail.stream.places import AstrayError
from dovetail.stream.topics import admin_of, ends, unstable
from dovetail.testing.spark import SparkPipeline
from services.spark import enrich_decode, enrich_node
from services.spark.enrich import answer
from services.spark.enrich_commit import take_over
from services.spark.enrich_node import Job
from tests.e2e import shop, test_chain, test_order
from tests.e2e.test_join_kinds import (
    assert_dead_letters_say_why,
    assert_unmatched_say_why,
    ways_of_answers,
)
from tests.e2e.test_kill import KEYS, SALES, assert_exact

SHAPES = {"int": shop.INT, "text": shop.TEXT, "composite": shop.COMPOSITE}
ALL = bool(os.environ.get("DOVETAIL_SPARK"))
only_in_test_spark = pytest.mark.skipif(not ALL, reason="make test-spark runs it")


@pytest.fixture
def run_on_spark(stack, kernels, database, spark, tmp_path):
    def run(spec, **options):
        named = {"name": f"test-{uuid.uuid4().hex[:12]}", **spec}
        return SparkPipeline(tmp_path, stack.bootstrap, database, named, spark, **options)

    return run


def combinations():
    if ALL:
        return [(kind, shape) for kind in ("inner", "left", "semi", "anti") for shape in SHAPES]
    return [("left", "composite")]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("join", "shape"), combinations())
def test_the_application_gives_what_sql_gives(join, shape, run_on_spark, database):
    of = SHAPES[shape]
    of.fill(database)
    with run_on_spark(of.spec(join)) as pipeline:
        events = [*of.good_events(), *of.bad_events()]
        for sent in (1, 2):  # by the disk phase, then mostly by the cache
            pipeline.send(events)
            final = pipeline.drain()
            assert final.problems == []
            assert final.taken == sent * len(events)
        verdict = pipeline.verdict()
        assert verdict.differences == []
        assert final.drained
        assert final.taken == verdict.events
        assert final.outputs == verdict.outputs == verdict.expected > 0
        assert final.unmatched == verdict.unmatched
        assert (verdict.unmatched > 0) == (join != "left")
        assert_dead_letters_say_why(pipeline, of)
        assert_unmatched_say_why(pipeline, join)


@only_in_test_spark
@pytest.mark.timeout(300)
@pytest.mark.parametrize("algorithm", list(Algorithm))
def test_every_algorithm_gives_what_sql_gives(algorithm, run_on_spark, database):
    shop.INT.fill(database)
    with psycopg.connect(database) as connection:
        connection.execute("CREATE INDEX ON goods (id)")
    spec = {**shop.INT.spec("inner"), "algorithm": str(algorithm)}
    with run_on_spark(spec) as pipeline:
        for _ in range(3):
            pipeline.send(shop.INT.good_events())
            final = pipeline.drain()
        assert final.problems == []
        verdict = pipeline.verdict()
        assert verdict.differences == []
        assert final.outputs == verdict.outputs == verdict.expected > 0


@pytest.mark.timeout(300)
def test_what_is_run_again_whole_or_in_part_is_written_once(run_on_spark, database):
    shop.INT.fill(database)
    events = [*shop.INT.good_events(), *shop.INT.bad_events()]
    with run_on_spark(shop.INT.spec("inner")) as pipeline:
        pipeline.send(events)
        job = begun(pipeline)
        # One of two nodes has committed: that is where a kill inside a batch leaves it.
        reports = by_one_node(pipeline, job, None)
        assert 0 < sum((report.counts for report in reports), Counter())["in"] < len(events)
        halfway = pipeline.audit()
        assert halfway.problems == []
        assert not halfway.drained
        final = pipeline.drain()
        assert_as_sql(pipeline, final, len(events))

        # The batch once more, as a driver does that was killed before it knew of the commit.
        answer(pipeline.source(), begun(pipeline), None)
        assert pipeline.audit() == final
        # And by what a dead driver has left behind.
        with pytest.raises(PySparkException, match=f"run {job.run} of .* is over"):
            answer(pipeline.source(), job, None)
        assert_as_sql(pipeline, pipeline.audit(), len(events))


def begun(pipeline):
    """What a driver tells its workers when it begins."""
    run, _ = take_over(pipeline.settings, pipeline.topology)
    return Job(pipeline.settings, pipeline.spec, run, {})


def assert_as_sql(pipeline, final, sent):
    assert final.problems == []
    assert final.drained
    assert final.taken == sent
    verdict = pipeline.verdict()
    assert verdict.differences == []
    assert final.outputs == verdict.outputs == verdict.expected > 0
    assert_dead_letters_say_why(pipeline, shop.INT)


def by_one_node(pipeline, job, shelf):
    """Run a batch of which only the first node comes to its end."""
    rows = (
        pipeline.source()
        .selectExpr(*enrich_decode.SOURCE)
        .mapInArrow(
            lambda parts: enrich_decode.decode(job.pipeline, shelf, parts),
            enrich_decode.SPARK_SCHEMA,
        )
        .where("node = 0")
        .repartitionById(job.pipeline.nodes, "node")
        .mapInArrow(lambda parts: enrich_node.enrich(job, parts), enrich_node.SCHEMA)
        .collect()
    )
    return [enrich_node.Report.of(row.report) for row in rows]


@only_in_test_spark
@pytest.mark.timeout(300)
def test_what_was_deleted_unread_is_lost_and_beyond_the_end_nothing_is_read(run_on_spark, database):
    shop.INT.fill(database)
    events = shop.INT.good_events()
    with run_on_spark(shop.INT.spec("inner")) as pipeline:
        source, admin = pipeline.topology.source, admin_of(pipeline.settings)
        pipeline.send(events)
        pipeline.drain()
        answered = ends(admin, source)[0]
        pipeline.send(events)
        delete_before(admin, source, answered + 5)
        final = pipeline.drain()
        assert final.problems == []
        assert (final.lost, final.taken) == (5, 2 * len(events))
        assert "+ lost 5 +" in final.equation()

        pipeline.application.move(Move(1, {0: 10_000}))
        with pytest.raises(AstrayError, match="was read up to 10000"):
            pipeline.application.start()
        pipeline.application.stop()
        pipeline.application.move(Move(2, {0: ends(admin, source)[0]}))
        pipeline.send(events)
        final = pipeline.drain()
        assert final.problems == []
        assert (final.lost, final.taken) == (5, 3 * len(events))


@only_in_test_spark
@pytest.mark.timeout(300)
def test_without_its_states_it_answers_nothing_once_more(run_on_spark, database):
    shop.INT.fill(database)
    events = shop.INT.good_events()
    with run_on_spark(shop.INT.spec("inner")) as pipeline:
        topology, admin = pipeline.topology, admin_of(pipeline.settings)
        pipeline.send(events)
        pipeline.drain()
        admin.delete_topics([topology.states.name])[topology.states.name].result(30)
        with pytest.raises(AstrayError, match="has nothing of what was read"):
            pipeline.application.start()
        pipeline.application.stop()
        # Whoever knows where it ended says so, and it goes on there.
        read_to = dict(enumerate(ends(admin, topology.source)))
        pipeline.application.move(Move(1, read_to))
        pipeline.send(events)
        final = pipeline.drain()
        assert final.problems == []
        assert final.taken == len(events)


def delete_before(admin, topic, offset):
    for deletion in admin.delete_records([TopicPartition(topic.name, 0, offset)]).values():
        deletion.result(30)


@only_in_test_spark
@pytest.mark.timeout(300)
def test_a_chain_that_is_run_again_whole_or_in_part_is_written_once(
    run_on_spark, database, tmp_path
):
    test_chain.fill(database)
    events = list(test_chain.sales(test_chain.EVENTS, 1))
    with run_on_spark(test_chain.CHAIN) as pipeline:
        pipeline.send(events)
        by_one_node(pipeline, begun(pipeline), tmp_path)
        halfway = pipeline.audit()
        assert halfway.problems == []
        assert halfway.outputs > 0
        assert not halfway.drained
        final = pipeline.drain()
        assert final.outputs > halfway.outputs
        answer(pipeline.source(), begun(pipeline), tmp_path)
        assert pipeline.audit() == final
        assert final.problems == []
        assert final.copies > 0
        verdict = pipeline.verdict()
        assert verdict.differences == []
        assert final.taken == verdict.events == len(events)
        assert final.outputs == verdict.outputs == verdict.expected > 0


@only_in_test_spark
@pytest.mark.timeout(300)
def test_answers_that_crowd_the_line_are_fewer_at_a_time_when_it_is_tried_again(
    run_on_spark, database
):
    with psycopg.connect(database) as connection:
        connection.execute("CREATE TABLE goods (id bigint, name text)")
        connection.execute(
            "INSERT INTO goods SELECT id, repeat('x', 4000) FROM generate_series(1, 400) id,"
            " generate_series(1, 3)"
        )
        connection.execute("CREATE INDEX ON goods (id)")
    spec = {**test_order.spec("srj", "source"), "memory": "4MiB", "nodes": 1}
    chance = random.Random(5)
    with run_on_spark(spec) as pipeline:
        pipeline.send(
            json.dumps({"sale": sale, "id": chance.randint(1, 440)}).encode()
            for sale in range(3_000)
        )
        tries = 0
        while not pipeline.audit().drained:
            tries += 1
            assert tries < 10
            try:
                pipeline.drain()
            except PySparkException as error:
                assert CrowdedError.__name__ in str(error)  # noqa: PT017 - it need not be raised
        assert tries > 1, "the line had room for all"
        verdict = pipeline.verdict()
        assert verdict.differences == []
        assert verdict.outputs > 3_000
        by_slot, _ = test_order.disorders(pipeline)
        assert max(by_slot) == 0


@only_in_test_spark
@pytest.mark.timeout(900)
def test_the_driver_is_killed_between_and_inside_batches_and_the_output_stays_exact(
    run_pipeline, database
):
    load_catalogue(database, rows=KEYS, report=lambda _: None)
    with run_pipeline({**SALES, "nodes": 2, "engine": "spark"}) as pipeline:
        send(pipeline, 0, 20_000)
        pipeline.wait_until(lambda seen: seen.drained, "a batch is committed")
        pipeline.kill("enrich")
        sent = 20_000
        for everything in (True, False):
            # While it is dead, so that a batch has them all and takes its time.
            send(pipeline, sent, 200_000)
            sent += 200_000
            with held_inside_a_batch(pipeline) as family:
                pipeline.kill("enrich")
                if everything:
                    for process in family[1:]:
                        process.kill()
                    assert pipeline.audit().taken < sent, "a batch was under way"
            # What outlives the driver goes on with its batch, and may come to its end.
            assert pipeline.audit().problems == []
        assert_exact(pipeline, sent)
        assert ways_of_answers(pipeline) == {"cache", "disk"}


def send(pipeline, first, count):
    settings = GenerateSettings(
        rate=MAX_RATE, skew=1.0, seed=7, keys=KEYS, count=count, first=first + 1
    )
    topic = pipeline.topology.source.name
    generate(settings, pipeline.settings.client(), topic, lambda _: None, threading.Event())


def watch_for_writes(pipeline):
    """Give a look at whether outputs are in an open transaction: they are for a moment only."""
    admin = admin_of(pipeline.settings)
    return lambda: bool(unstable(admin, pipeline.topology.enriched))


@contextmanager
def held_inside_a_batch(pipeline):
    """Hold the driver and all below it while outputs are in an open transaction."""
    is_writing = watch_for_writes(pipeline)
    while is_writing():  # what was left open is undone by a successor
        pipeline.pause(0.01)
    while True:
        while not is_writing():
            pipeline.pause(0.01)
        driver = psutil.Process(pipeline.pid("enrich"))
        family = [driver, *driver.children(recursive=True)]
        for process in family:
            process.suspend()
        try:
            if is_writing():
                yield family
                return
        finally:
            for process in family:
                with suppress(psutil.NoSuchProcess):
                    process.resume()
