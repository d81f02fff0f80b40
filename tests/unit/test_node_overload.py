"""A fused node's guard on a simulated clock: a node that reads R for so many misses a second."""

from __future__ import annotations

import numpy as np
import pytest

from dovetail.join.caching import Hits
from dovetail.join.shedding.strategies import KeepW
from dovetail.testing.fakes import join_keys
from services.node.overload import NodeGuard

NOTHING = np.empty(0, np.int64)
STEP_S = 0.1
INTAKE_S = 1e-6
"""What a node takes for an event without reading R."""


class Node:
    """Every second event is a hit; `serves` misses a second are read for; few may wait for R."""

    def __init__(self, serves, room=2_000, when_behind=4.0):
        self.now, self.serves, self.room = 0.0, serves, room
        self.guard = NodeGuard(when_behind, KeepW(), lambda: self.now)
        self.outside = self.pending = 0
        self.hits = self.answered = self.shed = self.hits_shed = 0

    def step(self, arriving):
        self.outside += arriving
        taken = 0
        # As the disk half does: while there is room, and no more than there is time for.
        while self.outside and self.pending < self.room and taken * INTAKE_S < STEP_S:
            events = min(1_000, self.outside)
            self.take(events)
            taken += events
        read = min(self.pending, int(self.serves * STEP_S))
        self.pending -= read
        self.answered += read
        self.guard.worked(taken * INTAKE_S, STEP_S - taken * INTAKE_S)
        self.now += STEP_S
        self.guard.look(self.outside, self.pending)

    def take(self, events):
        places = np.arange(events)
        hits = Hits(places[::2], np.empty(0, np.uint8), NOTHING, places[1::2])
        kept = self.guard.admit(join_keys(places.tolist()), hits)
        kept = np.ones(events, np.bool_) if kept is None else kept
        self.outside -= events
        self.pending += int(kept[hits.misses].sum())
        self.hits += int(kept[hits.positions].sum())
        self.hits_shed += int((~kept[hits.positions]).sum())
        self.shed += int((~kept).sum())

    def run(self, seconds, rate):
        for _ in range(round(seconds / STEP_S)):
            self.step(int(rate * STEP_S))


def behind(node):
    return node.guard.figures()["behind_seconds"]


def test_what_can_be_served_is_not_shed():
    node = Node(serves=10_000)
    node.run(60, rate=15_000)
    assert (node.shed, node.guard.figures()["shedding"]) == (0, 0)


def test_a_burst_that_is_served_in_time_is_not_shed():
    node = Node(serves=10_000)
    node.run(10, rate=10_000)
    node.run(1, rate=40_000)
    node.run(10, rate=5_000)
    assert node.shed == 0


@pytest.mark.parametrize("factor", [1.5, 3, 20])
def test_an_overload_is_shed_down_to_what_r_can_serve_and_no_hit_is(factor):
    node = Node(serves=1_000)
    node.run(20, rate=1_000)
    node.run(60, rate=2_000 * factor)
    before, arrived = node.answered, node.hits
    node.run(60, rate=2_000 * factor)
    assert node.guard.figures()["shedding"] == 1
    assert behind(node) < 4
    assert node.hits_shed == 0
    assert node.hits - arrived == pytest.approx(60 * 1_000 * factor, rel=0.1)
    assert node.answered - before > 0.8 * 60 * 1_000, "R is not left idle"


def test_shedding_ends_with_the_overload():
    node = Node(serves=1_000)
    node.run(60, rate=6_000)
    assert node.shed
    node.run(30, rate=1_000)
    assert node.guard.figures()["shedding"] == 0
    before = node.shed
    node.run(30, rate=1_000)
    assert node.shed == before


def test_while_r_is_away_misses_are_shed_and_taken_again_afterwards():
    node = Node(serves=1_000)
    node.run(60, rate=3_000)
    node.serves = 0
    node.run(60, rate=3_000)
    assert node.guard.figures()["shedding"] == 1
    node.serves = 1_000
    node.run(60, rate=1_500)
    assert node.guard.figures()["shedding"] == 0


def test_what_waited_and_is_read_again_does_not_count_as_answered():
    node = Node(serves=1_000)
    node.run(20, rate=3_000)
    node.guard.drop()
    node.outside += node.pending
    node.pending = 0
    node.run(60, rate=1_000)
    assert node.guard.figures()["shedding"] == 0
    assert behind(node) < 1


def test_what_little_was_let_in_is_not_taken_for_all_that_can_be_served():
    # A read takes its time however few keys it is for.
    node = Node(serves=10, room=100)
    node.run(200, rate=2_000)
    assert node.guard.figures()["shedding"] == 1
    node.serves = 10_000
    node.run(60, rate=2_000)
    assert node.guard.figures()["shedding"] == 0
