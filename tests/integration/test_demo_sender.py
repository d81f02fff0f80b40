"""The demo's stream in a real broker: the same settings, the same bytes, the same places."""

import threading
import time
from collections import defaultdict
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from dovetail.demo import sender
from dovetail.demo.generate import MAX_RATE, GenerateSettings, generate
from dovetail.demo.sender import KafkaSender
from dovetail.errors import ConfigError, Unavailable

PARTITIONS = 3
SETTINGS = GenerateSettings(
    rate=MAX_RATE,
    count=20_050,
    bad=0.05,
    keys=1000,
    started_at=datetime(2026, 1, 1, tzinfo=UTC),
)


@pytest.fixture
def new_topic(bootstrap, kafka_namespace):
    names = iter(range(100))
    admin = AdminClient({"bootstrap.servers": bootstrap})

    def new():
        name = f"{kafka_namespace}sales-{next(names)}"
        admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(30)
        # The broker answers before all of it knows the topic.
        while name not in admin.list_topics(timeout=30).topics:
            time.sleep(0.05)
        return name

    return new


def run(bootstrap, topic, settings=SETTINGS):
    """Send, and return the summary with every partition's values in order."""
    client = {"bootstrap.servers": bootstrap}
    summary = generate(settings, client, topic, lambda _: None, threading.Event())
    consumer = Consumer({**client, "group.id": topic, "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    values, ended = defaultdict(list), set()
    while len(ended) < PARTITIONS:
        for message in consumer.consume(10_000, 0.2):
            if message.error():
                ended.add(message.partition())
            else:
                values[message.partition()].append(message.value())
    consumer.close()
    return summary, values


def test_two_runs_with_the_same_seed_fill_every_partition_alike(bootstrap, new_topic):
    first, values = run(bootstrap, new_topic())
    second, again = run(bootstrap, new_topic())
    assert values == again
    assert first.kinds == second.kinds
    assert sum(map(len, values.values())) == first.events == SETTINGS.count


def test_another_seed_gives_other_events(bootstrap, new_topic):
    settings = replace(SETTINGS, count=500)
    _, values = run(bootstrap, new_topic(), settings)
    _, others = run(bootstrap, new_topic(), replace(settings, seed=2))
    assert values != others


def test_tombstones_arrive_as_such_and_as_many_as_were_counted(bootstrap, new_topic):
    summary, values = run(bootstrap, new_topic())
    tombstones = sum(value is None for each in values.values() for value in each)
    assert tombstones == summary.kinds["tombstone"] > 0


def test_partitions_are_filled_in_turns(bootstrap, new_topic):
    _, values = run(bootstrap, new_topic())
    assert {number: len(each) for number, each in values.items()} == {0: 6700, 1: 6700, 2: 6650}


def test_a_topic_that_is_not_there_is_refused_before_the_first_event(bootstrap, kafka_namespace):
    with pytest.raises(ConfigError, match="has no topic"):
        KafkaSender({"bootstrap.servers": bootstrap}, f"{kafka_namespace}nowhere")


def test_a_broker_that_is_not_there_is_unavailable(monkeypatch):
    monkeypatch.setattr(sender, "_METADATA_SECONDS", 1.0)
    with pytest.raises(Unavailable, match="cannot be reached"):
        KafkaSender({"bootstrap.servers": "127.0.0.1:1", "log_level": 0}, "sales")
