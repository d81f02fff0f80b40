"""What a loop does in one turn after another, whatever happens to its partitions meanwhile."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from dovetail.settings import Settings
from dovetail.stream import loop as loops
from dovetail.stream.handler import Handler, Step
from dovetail.stream.loop import Loop
from dovetail.stream.places import Span
from dovetail.stream.rdkafka import Records
from dovetail.topology import Keeps, Stage, Topic


class Seen(Handler):
    def __init__(self):
        self.records = []

    def handle(self, records, _producer, _ledger):
        self.records += zip(records.partitions.tolist(), records.offsets.tolist(), strict=True)


class Group:
    """A broker's view of two partitions, and both clients of a loop that reads them."""

    is_done = False

    def __init__(self):
        self.held = [0, 1]
        self.members = {"g.0"}
        self.spans = {0: Span(0, 100), 1: Span(0, 100)}
        self.offsets = {0: 0, 1: 0}
        self.at = {0: 0, 1: 0}
        self.astray = set()
        self.happens = []
        """What a consume brings about, one after the other."""
        self.taken_over = []

    # of the consumer

    def assignment(self):
        return self.held

    def consume(self, *_):
        return (self.happens.pop(0) if self.happens else Records.none)()

    def committed(self, _timeout_s):
        return {number: (self.offsets[number], "") for number in self.held}

    def rewind(self, committed):
        self.at = {number: offset for number, (offset, _) in committed.items()}
        return True

    def next(self, partition, count):
        """Read so many records of a partition."""
        first, self.at[partition] = self.at[partition], self.at[partition] + count
        return Records(
            np.full(count, partition, np.int32),
            np.arange(first, first + count),
            np.zeros(count, np.int64),
            np.zeros(0, np.uint8),
            np.zeros(count + 1, np.int64),
            np.zeros(count, np.bool_),
        )

    def positions(self):
        return dict(self.at)

    def reaches_a_broker(self, _timeout_s):
        return True

    def lag(self):
        return {}

    def group_metadata(self):
        return None

    # of the producer

    def begin(self):
        pass

    def send_offsets(self, _topic, offsets, _group, _timeout_s):
        self.offsets |= {number: offset for number, (offset, _) in offsets.items()}

    def commit(self, _timeout_s):
        pass

    def close(self):
        pass


@pytest.fixture
def group(monkeypatch):
    group = Group()

    def producer_of(_settings, name, _written):
        group.taken_over.append(name)
        return group

    monkeypatch.setattr(loops, "members", lambda *_: set(group.members))
    monkeypatch.setattr(loops, "admin_of", lambda _: None)
    monkeypatch.setattr(loops, "spans", lambda *_: group.spans)
    monkeypatch.setattr(loops, "producer_of", producer_of)
    monkeypatch.setattr(loops, "_HALTED_S", 0)
    return group


@pytest.fixture
def loop(group):
    stage = Stage("cache_phase", Topic("x.mapped", 2, Keeps.UNREAD), (), per_node=True)
    settings = Settings("nowhere:1", "postgresql://nowhere/none", "pipeline.yaml")
    loop = Loop(stage, "g", settings, Seen(), Step(64, 1 << 20, 0.0), lambda *_: None)
    loop._consumer = loop._producer = group
    loop._assign([0, 1])
    return loop


def test_what_was_consumed_before_a_halt_is_read_again_also_if_partitions_go_meanwhile(loop, group):
    group.spans[1] = Span(50, 100)  # somebody has deleted what it had not read
    group.happens = [lambda: group.next(0, 2)]
    loop._turn()
    assert loop.halted
    assert loop._handler.records == []

    def revoked():
        group.held = [0]
        loop._revoke([1])
        return group.next(0, 2)

    group.happens = [revoked]
    loop._turn()
    group.happens = [lambda: group.next(0, 2)]
    loop._turn()
    assert not loop.halted
    assert loop._handler.records == [(0, 0), (0, 1)]
    assert group.offsets[0] == 2


def test_a_node_that_joined_later_is_taken_over_from_when_it_is_lost_every_time(loop, group):
    loop._turn()

    def joined():
        group.held, group.members = [0], {"g.0", "g.1"}
        loop._revoke([1])
        return Records.none()

    def lost():
        group.held, group.members = [0, 1], {"g.0"}
        loop._assign([1])
        return Records.none()

    for times in (1, 2):
        group.happens = [joined]
        loop._turn()
        group.happens = [lost]
        loop._turn()
        assert group.taken_over == ["g.1"] * times


def test_the_dead_are_taken_over_from_before_their_offsets_are_waited_for(loop, group, monkeypatch):
    """They may pend: whoever read them first would wait for a transaction's time."""
    loop._turn()
    group.members = {"g.0", "g.1"}
    loop._revoke([])
    loop._turn()
    order = []
    committed = group.committed
    monkeypatch.setattr(group, "committed", lambda limit: order.append("read") or committed(limit))
    monkeypatch.setattr(
        loops,
        "producer_of",
        lambda *_: order.append("taken over") or SimpleNamespace(close=lambda: None),
    )
    group.members = {"g.0"}
    loop._assign([])
    loop._read_from_committed()
    assert order == ["taken over", "read"]
