"""A sink as Kafka makes it for a user: what is too large for it is parked, the rest comes."""

from __future__ import annotations

import json
import uuid

import psycopg
import pytest
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from dovetail.settings import Settings
from dovetail.stream.topics import admin_of

SLOTS = 4
KEYS = range(2000)
LARGE, HUGE = 7, 1_999
"""One whose output every sink takes, almost; and one whose output is too large."""
SPEC = {
    "source": {"partitions": 2, "fields": {"id": "int"}},
    "key": "id",
    "master": {"table": "goods", "columns": ["name"]},
    "memory": "128MiB",
    "slots": SLOTS,
}


def fill(database):
    with psycopg.connect(database) as connection:
        connection.execute("CREATE TABLE goods (id bigint PRIMARY KEY, name text)")
        # Rows of a few kilobytes, so that batches are as large as they get.
        connection.execute(
            "INSERT INTO goods SELECT n, repeat('x', 3000) FROM generate_series(0, 1999) n"
        )
        for key, size in ((LARGE, 1_040_000), (HUGE, 1_060_000)):
            connection.execute("UPDATE goods SET name = repeat('y', %s) WHERE id = %s", (size, key))


def set_largest(settings, topic, size):
    entry = ConfigEntry("max.message.bytes", str(size), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = admin_of(settings)
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(30)


@pytest.mark.timeout(300)
def test_what_the_sink_does_not_take_is_parked_and_taken_once_it_does(run_within, stack, database):
    fill(database)
    name = f"test-{uuid.uuid4().hex[:12]}"
    sink, settings = f"{name}.enriched", Settings(stack.bootstrap, database, None)
    admin = admin_of(settings)
    kafkas_own = {"max.message.bytes": "1048588"}
    admin.create_topics([NewTopic(sink, SLOTS, 1, config=kafkas_own)])[sink].result(30)
    events = [json.dumps({"id": key}).encode() for key in KEYS]
    with run_within({**SPEC, "name": name}) as pipeline:
        for _ in range(3):  # by the disk phase, and then by the cache as well
            pipeline.send(events)
            final = pipeline.drain()
        assert final.problems == []
        assert (final.parked, final.outputs) == (3, 3 * len(events) - 3)
        parked = list(pipeline.messages(pipeline.topology.parked))
        assert {value for _, value in parked} == {b'{"id": %d}' % HUGE}
        assert {headers["reason"] for headers, _ in parked} == {"output-too-large"}
        assert all("takes messages of 1,048,588" in headers["detail"] for headers, _ in parked)
        assert pipeline.verdict().differences == []

        set_largest(pipeline.settings, sink, 2 << 20)
        pipeline.send([value for _, value in parked])
        final = pipeline.drain()
        assert final.problems == []
        assert (final.parked, final.outputs) == (3, 3 * len(events))
        assert pipeline.verdict().differences == []
