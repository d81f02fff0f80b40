"""engine: spark over a broker that forgets the offsets of a group after a minute, not a week.

Nobody is a member of the application's group, so that a broker forgets its offsets although it
runs: whatever it needs must stand elsewhere.
"""

from __future__ import annotations

import os
import time
import uuid
from contextlib import closing

import pytest
from confluent_kafka import Consumer, TopicPartition

from deploy.local import kafka
from deploy.local.home import Home
from deploy.local.stack import Stack
from dovetail.stream.offsets import CommittedOffsets
from dovetail.testing.spark import SparkPipeline
from tests.conftest import DOVETAIL
from tests.e2e import shop

pytestmark = pytest.mark.skipif(
    not os.environ.get("DOVETAIL_SPARK"), reason="make test-spark runs it: it waits for minutes"
)
FORGETFUL = {"offsets.retention.minutes": 1, "offsets.retention.check.interval.ms": 1_000}


@pytest.fixture(scope="session")
def stack(stack_environ):
    with pytest.MonkeyPatch.context() as patch:
        for name, value in FORGETFUL.items():
            patch.setitem(kafka.SETTINGS, name, value)
        home = Home(DOVETAIL / "test-forgetting", DOVETAIL)
        stack = Stack(home, environ=stack_environ, usual_ports={})
        stack.wipe()
        with stack:
            yield stack


@pytest.mark.timeout(900)
def test_what_was_answered_is_known_when_the_broker_has_forgotten_all_offsets(
    stack, database, spark, tmp_path
):
    shop.INT.fill(database)
    events = shop.INT.good_events()
    spec = {"name": f"test-{uuid.uuid4().hex[:12]}", **shop.INT.spec("inner")}
    pipeline = SparkPipeline(tmp_path, stack.bootstrap, database, spec, spark, stays=True)
    with pipeline:
        pipeline.send(events)
        pipeline.drain()
        wait_until_forgotten(pipeline)
        pipeline.send(events)  # to the run that has gone on all the time
        pipeline.drain()
        wait_until_forgotten(pipeline)
        pipeline._stop()
        pipeline.send(events)  # to another run
        final = pipeline.drain()
        assert final.problems == []
        assert final.taken == 3 * len(events)
        verdict = pipeline.verdict()
        assert verdict.differences == []
        assert final.outputs == verdict.outputs == verdict.expected > 0


def wait_until_forgotten(pipeline):
    """Commit an offset as a group that nobody joins, and wait until it is gone."""
    settings, source, group = pipeline.settings, pipeline.topology.source, f"witness-{uuid.uuid4()}"
    with closing(Consumer(settings.client({"group.id": group}))) as consumer:
        consumer.commit(offsets=[TopicPartition(source.name, 0, 1)], asynchronous=False)
    with closing(CommittedOffsets(settings, group, source)) as witness:
        assert witness.read()
        while witness.read():
            time.sleep(1)
