"""From one layout of the services to the other, on a real broker."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from dovetail.errors import ConfigError, Unavailable
from dovetail.pipeline.spec import Layout, Pipeline
from dovetail.settings import Settings
from dovetail.stream.engines import left_by_services, require_layout, require_no_progress
from dovetail.stream.ledger import Ledger
from dovetail.stream.topics import ensure_topics
from dovetail.topology import CACHE_PHASE, DISK_PHASE, INGEST, MAPPER, Topology

DRAINED = {
    INGEST: "clean=9,dead.empty=1,in=10",
    MAPPER: "in=9,mapped=9",
    CACHE_PHASE: "enriched=5,hits=5,in=9,missed=4",
    DISK_PHASE: "enriched=4,in=4",
}


class Services:
    """What the services leave on the broker, in either layout."""

    def __init__(self, settings, pipeline):
        self.settings = settings
        self.split = Topology(pipeline.model_copy(update={"layout": Layout.SPLIT}))
        self.fused = Topology(pipeline.model_copy(update={"layout": Layout.FUSED}))

    def consumer(self, service, **further):
        group = self.split.group(service)
        return Consumer(self.settings.client({"group.id": group, **further}))

    def leave(self, **ledgers):
        for service, text in {**DRAINED, **ledgers}.items():
            topic = self.split.stage(service).reads.name
            with closing(self.consumer(service)) as consumer:
                at = TopicPartition(topic, 0, 10, text)
                consumer.commit(offsets=[at], asynchronous=False)


@pytest.fixture
def services(bootstrap, kafka_namespace):
    pipeline = Pipeline.model_validate(
        {
            "name": f"{kafka_namespace}sales",
            "source": {"fields": {"sku": "int"}, "partitions": 2},
            "key": "sku",
            "master": {"table": "products", "columns": ["price"]},
            "slots": 2,
        }
    )
    settings = Settings(bootstrap, "postgresql://nobody@nowhere/none", Path("unused"))
    services = Services(settings, pipeline)
    ensure_topics(settings, services.fused.topics())
    return services


def test_a_new_pipeline_may_have_either_layout(services):
    for topology in (services.split, services.fused):
        require_layout(services.settings, topology)


def test_a_drained_pipeline_may_change_to_either_layout(services):
    services.leave()
    for topology in (services.split, services.fused):
        require_layout(services.settings, topology)


@pytest.mark.parametrize(
    ("left", "events"),
    [
        ({MAPPER: "in=7,mapped=7", CACHE_PHASE: "enriched=3,in=7,missed=4"}, 2),
        ({CACHE_PHASE: "enriched=3,in=6,missed=3", DISK_PHASE: "enriched=3,in=3"}, 3),
        ({DISK_PHASE: "enriched=3,in=3,progress=7"}, 1),
    ],
)
def test_a_node_does_not_start_before_the_phases_have_answered_all(services, left, events):
    services.leave(**left)
    with pytest.raises(ConfigError, match=f"^{events} events of .* start it as it was"):
        require_layout(services.settings, services.fused)
    require_layout(services.settings, services.split)


@pytest.mark.parametrize("service", [MAPPER, CACHE_PHASE, DISK_PHASE])
def test_a_node_waits_as_long_as_a_stage_of_the_split_layout_is_there(services, service):
    services.leave()
    member = f"{services.split.group(service)}.0"
    stage = services.consumer(service, **{"group.instance.id": member, "session.timeout.ms": 6_000})
    with closing(stage):
        stage.subscribe([services.split.stage(service).reads.name])
        deadline = time.monotonic() + 60
        while not stage.assignment():
            assert time.monotonic() < deadline
            stage.poll(0.1)
        with pytest.raises(Unavailable, match=f"run the pipeline still .{member}"):
            require_layout(services.settings, services.fused)


def test_ingest_and_spark_do_not_start_where_a_node_has_answered_ahead(services):
    services.leave(**{INGEST: "clean=9,dead.empty=1,enriched=10,in=20,progress=3"})
    ledger = Ledger()
    ledger.open(0, "clean=9,enriched=1,in=10,progress=3")
    with pytest.raises(ConfigError, match="start it as it was laid out before, drain it"):
        require_no_progress(ledger, 0, services.split.source)
    ledger.open(0, "clean=9,enriched=1,in=10")
    require_no_progress(ledger, 0, services.split.source)
    with pytest.raises(ConfigError, match=r"start it with layout: fused once more, drain it"):
        left_by_services(services.settings, services.split)
    require_layout(services.settings, services.fused)
