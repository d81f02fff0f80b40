"""What others write to an internal topic changes no answer and stops nobody."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from dovetail.contracts.migration_pb2 import Migration
from dovetail.join.entry import Entries
from dovetail.pipeline.spec import Engine
from dovetail.testing.fakes import event_batch
from tests.e2e import shop
from tests.e2e.conftest import ENGINE


@pytest.mark.skipif(ENGINE is Engine.SPARK, reason="Spark's application has no internal topics")
@pytest.mark.parametrize("algorithm", ["auto", "meshjoin"])
def test_foreign_messages_are_set_aside_and_the_output_is_sqls(algorithm, run_within, database):
    shop.INT.fill(database)
    spec = {**shop.INT.spec("left"), "algorithm": algorithm}
    with run_within(spec) as pipeline:
        topology = pipeline.topology
        pipeline.send(shop.INT.good_events())
        pipeline.drain()
        others = event_batch([(1, b'{"id":1}')]).to_message("others", 0)
        between = [stage.reads for stage in topology.stages if stage.reads != topology.source]
        entry = Migration(entry=Entries.without_rows().data.tobytes()).SerializeToString()
        producer = Producer(pipeline.settings.client())
        for topic in between:
            for value in (b"hello", others, others[:-3], None):
                producer.produce(topic.name, value, partition=0)
        for key, value in ((b"1", b"hello"), (b"not a number", entry), (b"1", entry), (b"x", None)):
            producer.produce(topology.migrations.name, value, key, partition=0)
        assert producer.flush(30) == 0
        for _ in range(3):
            pipeline.send(shop.INT.good_events())
            assert not pipeline.drain().problems
        verdict = pipeline.verdict()
        assert verdict.differences == []
        assert verdict.outputs == verdict.expected > 0
        kept = [headers for headers, _ in pipeline.messages(topology.foreign)]
        assert len(kept) == 4 * len(between)
        assert {one["origin"].rpartition("/0/")[0] for one in kept} == {
            topic.name for topic in between
        }
