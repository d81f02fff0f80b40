"""Messages whose memory is handed over: they arrive as they were, and the memory comes back."""

from __future__ import annotations

import uuid

import numpy as np
import psutil
import pytest

from dovetail.settings import Settings
from dovetail.stream.rdkafka import KafkaFailure, Parcel, Producer
from dovetail.stream.topics import ensure_topics
from dovetail.topology import Topic
from dovetail.verify import read_all

MIB = 1 << 20


@pytest.fixture
def settings(stack, tmp_path):
    return Settings(stack.bootstrap, stack.database_url, tmp_path)


@pytest.fixture
def topic(settings):
    topic = Topic(f"parcels-{uuid.uuid4().hex}", 1)
    ensure_topics(settings, [topic])
    return topic


def filled(value):
    parcel = Parcel(len(value))
    parcel.data[:] = np.frombuffer(value, np.uint8)
    return parcel


def test_parcels_arrive_as_they_were_also_where_the_queue_is_full(settings, topic):
    # librdkafka copies small ones into what it sends, and sends large ones from where they are.
    expected = [bytes([number]) * size for number in range(20) for size in (1, 100, 200_000)]
    with Producer(settings.client({"queue.buffering.max.messages": 5})) as producer:
        for value in expected:
            parcel = filled(value)
            producer.give(topic.name, parcel, 0)
            assert parcel.address is None
        producer.flush(30)
    assert [message.value() for message in read_all(settings, topic)] == expected


def test_what_is_refused_stays_the_callers(settings, topic):
    with Producer(settings.client({"message.max.bytes": 1000})) as producer:
        parcel = filled(b"x" * 2000)
        with pytest.raises(KafkaFailure, match=f"to {topic.name}"):
            producer.give(topic.name, parcel, 0)
        assert bytes(parcel) == b"x" * 2000


def test_the_memory_comes_back_whatever_becomes_of_the_transaction(settings, topic):
    own = {"transactional.id": uuid.uuid4().hex, "message.max.bytes": 2 * MIB}
    process = psutil.Process()
    with Producer(settings.client(own)) as producer:
        producer.init_transactions(30)

        def transactions(count):
            for number in range(count):
                producer.begin()
                for _ in range(10):
                    producer.give(topic.name, filled(bytes(MIB)), 0)
                producer.flush(30)
                producer.abort(30) if number % 2 else producer.commit(30)

        transactions(6)
        before = process.memory_info().rss
        transactions(20)
        assert process.memory_info().rss - before < 100 * MIB  # of 200 that went through
    # What was never given away goes with its owner.
    before = process.memory_info().rss
    for _ in range(200):
        filled(bytes(MIB))
    assert process.memory_info().rss - before < 100 * MIB
