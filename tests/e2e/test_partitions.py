"""Partitions that are added to the source while the pipeline runs are taken in, and stay so."""

from __future__ import annotations

from confluent_kafka.admin import NewPartitions

from dovetail.stream import loop
from dovetail.stream.acls import settle_topics
from dovetail.stream.topics import admin_of, partitions_of
from dovetail.topology import INGEST
from tests.e2e import shop
from tests.e2e.conftest import ENGINE

ADDED = 2


def test_partitions_that_are_added_are_taken_in_without_a_restart(
    run_within, database, monkeypatch
):
    monkeypatch.setattr(loop, "_NEW_PARTITIONS_MS", 500)
    if ENGINE == "spark":
        from services.spark import enrich

        monkeypatch.setattr(enrich, "_NEW_PARTITIONS_S", 0.5)
    shop.INT.fill(database)
    events = shop.INT.good_events()
    with run_within(shop.INT.spec("inner")) as pipeline:
        pipeline.send(events)
        pipeline.drain()
        topology, admin = pipeline.topology, admin_of(pipeline.settings)
        there = topology.source.partitions + ADDED
        added = admin.create_partitions([NewPartitions(topology.source.name, there)])
        added[topology.source.name].result(30)
        pipeline.send_to(there, events)
        final = pipeline.drain()
        assert final.problems == []
        assert final.taken == 2 * len(events)
        verdict = pipeline.verdict()
        assert verdict.differences == []
        assert verdict.events == 2 * len(events)
        # And the next start refuses neither of the two topics.
        settle_topics(pipeline.settings, topology, INGEST)
        assert partitions_of(admin, topology.source) == there
        assert partitions_of(admin, topology.clean) == there
