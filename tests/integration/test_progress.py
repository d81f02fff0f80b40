"""What a slot's last owner had answered, read back from a real broker."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from dovetail.contracts.progress_pb2 import Progress
from dovetail.settings import Settings
from dovetail.stream.progress import ProgressReader
from dovetail.stream.rdkafka import Producer
from dovetail.stream.topics import ensure_topics
from dovetail.topology import Keeps, Topic

SLOT = 1


@pytest.fixture
def settings(bootstrap):
    return Settings(bootstrap, "", Path())


@pytest.fixture
def topic(settings, kafka_namespace):
    topic = Topic(f"{kafka_namespace}progress", SLOT + 1, Keeps.LATEST)
    ensure_topics(settings, [topic])
    return topic


def answered(number, offset):
    of = Progress.Answered(offset=offset, events=8, bits=b"\x01")
    return Progress(slot=SLOT, number=number, answered=[of])


def test_the_last_progress_of_a_number_counts(settings, topic):
    """One of an earlier life of the ledger, whose numbers began at 0 again, is passed over."""
    stale, other, valid = answered(7, 100), answered(8, 200), answered(7, 3)
    with (
        closing(Producer(settings.client())) as producer,
        closing(ProgressReader(settings, topic)) as reader,
    ):
        for progress in (stale, other, valid, other):
            producer.send(topic.name, progress.SerializeToString(), SLOT, key=b"%d" % SLOT)
        producer.flush(30)
        assert reader.read(SLOT, 7) == valid
        assert reader.read(SLOT, 8) == other
