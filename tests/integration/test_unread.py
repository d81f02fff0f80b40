"""What waits in front of ingest is records, not the offsets that transactions leave behind."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Producer

from dovetail.settings import Settings
from dovetail.stream.topics import admin_of, ends, ensure_topics
from dovetail.stream.unread import Unread
from dovetail.topology import Topic


@pytest.fixture
def settings(bootstrap):
    return Settings(bootstrap, "postgresql://nowhere/none", "pipeline.yaml")


@pytest.fixture
def topic(settings, kafka_namespace):
    topic = Topic(f"{kafka_namespace}source", 3)
    ensure_topics(settings, [topic])
    return topic


@pytest.fixture
def producer(bootstrap, kafka_namespace):
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": kafka_namespace})
    producer.init_transactions()
    return producer


def test_markers_and_aborted_records_are_not_waiting(settings, topic, producer):
    producer.begin_transaction()
    producer.produce(topic.name, b"committed", partition=0)
    producer.produce(topic.name, b"committed", partition=1)
    producer.commit_transaction()
    producer.begin_transaction()
    for _ in range(1_000):
        producer.produce(topic.name, b"aborted", partition=2)
    producer.flush()
    producer.abort_transaction()
    # A record and its marker each; a thousand aborted ones and theirs, once it is written.
    deadline = time.monotonic() + 30
    while ends(admin_of(settings), topic) != [2, 2, 1_001]:
        assert time.monotonic() < deadline, ends(admin_of(settings), topic)
        time.sleep(0.05)
    unread = Unread(settings, topic)
    assert unread.behind({0: 0, 1: 0, 2: 0}) == {0, 1}
    assert unread.behind({0: 1, 1: 0, 2: 500}) == {1}
    assert unread.behind({0: 1, 1: 1}) == set()
    assert unread.behind({}) == set()
    producer.begin_transaction()
    producer.produce(topic.name, b"later", partition=2)
    producer.commit_transaction()
    assert unread.behind({0: 1, 1: 1, 2: 0}) == {2}


def test_an_open_transaction_is_not_waiting_yet(settings, topic, producer):
    producer.begin_transaction()
    producer.produce(topic.name, b"open", partition=0)
    producer.flush()
    unread = Unread(settings, topic)
    assert unread.behind({0: 0}) == set()
    producer.commit_transaction()
    assert unread.behind({0: 0}) == {0}
