"""The broker is lost with its data, or has forgotten what was read."""

from __future__ import annotations

import json
import shutil
import signal
import time
from contextlib import closing

import httpx
import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from dovetail.errors import ConfigError, StackError
from dovetail.stream.forgotten import require_remembered
from dovetail.stream.topics import admin_of, beginnings, ends
from dovetail.topology import CONTROL, INGEST, Keeps
from tests.chaos.run import KEYS
from tests.recovery.kit import WITHIN_S, Dovetail, assert_exact, goes_on, sales, under_load

pytestmark = pytest.mark.timeout(900)

PARTS = 6
EVENTS_A_PART = 1_000


def archived():
    """The source's events as somebody has kept them: NDJSON, in parts."""
    for part in range(PARTS):
        numbers = range(part * EVENTS_A_PART, (part + 1) * EVENTS_A_PART)
        yield "\n".join(json.dumps(sale(number)) for number in numbers)


def sale(number):
    """One in seven keys has two rows, some have none, and some come again and again."""
    product = number % 50 if number % 3 else number * 31 % (KEYS + 1_000)
    return {
        "sale_id": number,
        "product_id": product,
        "quantity": 1,
        "amount": 9.5,
        "channel": "web",
        "sold_at": "2026-01-31T09:00:00Z",
    }


def post(pipeline, part, lines):
    answer = httpx.post(
        f"{pipeline.url('ingest')}/v1/events",
        content=lines,
        headers={
            "Content-Type": "application/x-ndjson",
            "Idempotency-Key": f"archive/{part:04}",
        },
        timeout=60,
    )
    assert answer.status_code == 202, answer.text
    assert "Idempotent-Replayed" not in answer.headers


def test_a_lost_broker_begins_anew_and_the_source_is_sent_again(make_pipeline, stack):
    content = sales(nodes=2)
    archive = list(archived())
    with make_pipeline(content) as pipeline:
        dovetail = Dovetail(pipeline)
        for part, lines in enumerate(archive[:3]):
            post(pipeline, part, lines)
        pipeline.drain()
        # An order that the database keeps, about offsets that will be no more.
        dovetail("restart --beginning --yes --why 'the price list was wrong'")
        for part, lines in enumerate(archive[3:], start=3):
            post(pipeline, part, lines)

        # Its disk is gone with some of it in flight. Nothing of the pipeline runs then.
        stack.broker.send(signal.SIGKILL)
        for name in pipeline.names():
            pipeline.kill(name)
    stack.broker.stop()
    shutil.rmtree(stack.home.data / "kafka")
    stack.broker.prepare()
    stack.broker.start()
    stack.broker.wait_until_healthy()

    with make_pipeline(content) as pipeline:
        dovetail = Dovetail(pipeline)
        assert dovetail.json("audit pipeline.yaml")["in"] == 0
        assert dovetail.json("cache")["keys"] == []
        for part, lines in enumerate(archive):
            post(pipeline, part, lines)
        audit = assert_exact(pipeline, dovetail, PARTS * EVENTS_A_PART)
        assert audit["unmatched"] > 0


AWAY_S = 120.0
"""Longer than any call waits by itself."""


def test_a_broker_that_is_away_for_two_minutes_is_waited_for(make_pipeline, stack):
    with make_pipeline(sales(nodes=2)) as pipeline:
        dovetail = Dovetail(pipeline)
        with under_load(pipeline) as load:
            goes_on(pipeline)
            lifetimes = {name: pipeline.lifetime(name) for name in pipeline.names()}
            stack.broker.send(signal.SIGKILL)
            ends = time.monotonic() + AWAY_S
            said = {}
            while time.monotonic() < ends:
                pipeline.pause(1)
                for name in pipeline.names():
                    assert httpx.get(f"{pipeline.url(name)}/health", timeout=30).is_success
                    answer = httpx.get(f"{pipeline.url(name)}/ready", timeout=30).json()
                    said.setdefault(name, set()).add(answer.get("reason", ""))
            stack.broker.stop()
            stack.broker.prepare()
            stack.broker.start()
            stack.broker.wait_until_healthy()
            goes_on(pipeline)
        for name, lifetime in lifetimes.items():
            assert pipeline.lifetime(name) > lifetime + AWAY_S, f"{name} has ended meanwhile"
            if name != CONTROL:
                assert any("waiting for the Kafka broker" in reason for reason in said[name]), said
        assert_exact(pipeline, dovetail, load.sent)


def test_forgotten_offsets_are_noticed_and_set_by_hand(make_pipeline):
    content = sales(nodes=1)
    with make_pipeline(content) as pipeline:
        dovetail = Dovetail(pipeline)
        settings, topology = pipeline.settings, pipeline.topology
        admin = admin_of(settings)
        with under_load(pipeline) as load:
            goes_on(pipeline)
        first = load.sent
        internal = [one.reads for one in topology.stages if one.reads.keeps is Keeps.UNREAD]
        dovetail("drain --why 'stopped for weeks'")
        for topic in internal:
            dovetail.until(lambda of=topic: any(beginnings(admin, of)), f"{topic.name} is purged")
        # A stage that has offsets starts, whatever was purged.
        for stage in topology.stages:
            require_remembered(settings, topology, stage)
    stopped_at = time.time_ns() // 1_000_000 + 1
    time.sleep(0.01)
    with under_load(pipeline) as load:  # producers go on meanwhile
        time.sleep(2)

    forget(admin, [topology.group(stage.service) for stage in topology.stages])
    for stage in topology.stages:
        with pytest.raises(ConfigError, match=f"forgotten what {topology.group(stage.service)} "):
            require_remembered(settings, topology, stage)
    with pytest.raises(StackError, match="has forgotten what"), make_pipeline(content):
        pass

    set_offsets(settings, admin, topology, stopped_at)
    delete(admin, [topic.name for topic in (*internal, topology.progress)])
    with make_pipeline(content) as pipeline:
        dovetail = Dovetail(pipeline)
        # It was drained before, and control remembers that.
        dovetail("resume")
        assert_exact(pipeline, dovetail, first + load.sent, taken=load.sent)


def forget(admin, groups):
    """As the broker does when their time is over: what they have read, and the groups."""
    deadline = time.monotonic() + WITHIN_S
    for group in groups:
        while True:
            try:
                admin.delete_consumer_groups([group])[group].result()
                break
            except KafkaException:  # its members count as there until their session is over
                assert time.monotonic() < deadline, f"{group} is not forgotten"
                time.sleep(0.5)


def set_offsets(settings, admin, topology, at_ms):
    """kafka-consumer-groups --reset-offsets --to-datetime …"""
    source = topology.source
    asked = {
        TopicPartition(source.name, number): OffsetSpec.for_timestamp(at_ms)
        for number in range(source.partitions)
    }
    found = {at.partition: done.result().offset for at, done in admin.list_offsets(asked).items()}
    last = ends(admin, source)
    with closing(Consumer(settings.client({"group.id": topology.group(INGEST)}))) as member:
        member.commit(
            offsets=[
                TopicPartition(source.name, number, at if at >= 0 else last[number])
                for number, at in found.items()
            ],
            asynchronous=False,
        )


def delete(admin, names):
    """kafka-topics --delete …"""
    for deletion in admin.delete_topics(names).values():
        deletion.result(30)
    deadline = time.monotonic() + WITHIN_S
    while set(names) & admin.list_topics(timeout=30).topics.keys():
        assert time.monotonic() < deadline, f"{names} are not deleted"
        time.sleep(0.1)
