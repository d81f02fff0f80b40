"""What the pipeline is compared with: what is taken at a time, and where it begins."""

from collections import deque
from types import SimpleNamespace

import numpy as np
import pytest

from bench.baselines import before
from bench.lru_script import Script
from bench.transactional_copy import copy
from dovetail.stream.rdkafka import Records


@pytest.mark.parametrize(
    ("places", "events", "found"),
    [
        ([1_000, 1_010], 200, (200, [900, 910])),
        ([1_000, 1_010, 990], 200, (198, [934, 944, 924])),
        ([50, 1_000], 200, (100, [0, 950])),
    ],
)
def test_a_warm_up_ends_where_the_measured_events_begin(places, events, found):
    assert before(places, events) == found


class Waiting:
    """A confluent consumer with so many messages there; remembers how it was asked."""

    def __init__(self, there):
        self.there = list(range(there))
        self.asked = []

    def consume(self, most, timeout):
        self.asked.append((most, timeout))
        taken, self.there = self.there[:most], self.there[most:]
        return taken


def test_the_script_takes_what_has_arrived_and_does_not_wait_for_more():
    script = SimpleNamespace(consumer=Waiting(7))
    assert Script._arrived(script, 5) == [0, 1, 2, 3, 4]
    assert Script._arrived(script, 5) == [5, 6]
    assert script.consumer.asked == [(1, 1.0), (4, 0)] * 2


def test_the_script_asks_for_the_last_event_alone():
    script = SimpleNamespace(consumer=Waiting(7))
    assert Script._arrived(script, 1) == [0]
    assert script.consumer.asked == [(1, 1.0)]


def records(*offsets):
    return Records(
        np.zeros(len(offsets), np.int32),
        np.array(offsets, np.int64),
        np.zeros(len(offsets), np.int64),
        np.zeros(len(offsets), np.uint8),
        np.arange(len(offsets) + 1, dtype=np.int64),
        np.zeros(len(offsets), np.bool_),
    )


class Broker:
    """Consumer and producer in one; remembers what was done, in order."""

    topic = "sales"

    def __init__(self, *batches):
        self.batches = deque(batches)
        self.done = []
        self.read_up_to = 0

    def consume(self, most, _timeout_s):
        batch = self.batches.popleft()
        assert len(batch) <= most
        if len(batch):
            self.read_up_to = int(batch.offsets[-1]) + 1
        return batch

    def positions(self):
        return {0: self.read_up_to}

    def group_metadata(self):
        return "member"

    def begin(self):
        self.done.append("begin")

    def send_many(self, topic, _partitions, _data, bounds, *, tombstones):
        assert len(tombstones) == len(bounds) - 1
        self.done.append(f"{len(bounds) - 1} to {topic}")

    def send_offsets(self, topic, offsets, group, _timeout_s):
        self.done.append(f"{topic} {offsets} {group}")

    def commit(self):
        self.done.append("commit")


def test_a_copy_commits_whatever_has_arrived_with_its_offsets():
    broker = Broker(records(5, 6), Records.none(), records(7))
    assert copy(broker, broker, "copied", 3) == 2
    assert broker.done == [
        *("begin", "2 to copied", "sales {0: (7, '')} member", "commit"),
        *("begin", "1 to copied", "sales {0: (8, '')} member", "commit"),
    ]
