"""A node's one budget: who gets how much of it, as in the engine by itself."""

import numpy as np
import pytest

from dovetail.join.engine import Engine
from dovetail.node.master import MasterJoin
from dovetail.testing.fakes import InMemoryMaster
from tests.unit.engine_kit import events_of
from tests.unit.node_kit import Node, pipeline_of

ROWS_A_PAGE = 10
MIB = 1 << 20
NOTE = "y" * 100
EVENT_BYTES = 125
"""Of an event with such a note: three blocks, whatever its key."""


def master_of(keys):
    row = b'{"name":"' + b"x" * 150 + b'"}'
    order = np.random.default_rng(5).permutation(keys).tolist()
    return InMemoryMaster({key: [row] for key in order}, ROWS_A_PAGE, unique=True)


class Stream:
    """Keys of a Zipf distribution."""

    def __init__(self, keys, skew=1.0):
        self._random = np.random.default_rng(1)
        weights = 1 / np.arange(1, keys + 1) ** skew
        self._weights = self._random.permutation(weights / weights.sum())

    def take(self, count):
        return self._random.choice(len(self._weights), count, p=self._weights)


def through_node(pipeline, keys, rate, steps):
    node, stream = Node(pipeline, master_of(keys)), Stream(keys)
    for _ in range(steps):
        node.step(stream.take(rate), NOTE)
        while node.handler.full:
            node.step()
    return node


def through_engine(node, keys, rate, steps):
    """The engine by itself in the memory of the node's, a read a step as there."""
    master, stream = master_of(keys), Stream(keys)
    its = node.disk.join.engine.engine
    engine = Engine(its.algorithm, master.facts, its.budget, disk_buffer=its.disk_buffer)
    join = MasterJoin(engine, master)
    for _ in range(steps):
        events = events_of(stream.take(rate).tolist(), EVENT_BYTES)
        while len(events):
            accepted = join.offer(events).accepted
            events = events.slice(accepted, len(events))
            join.step()
            while join.answering:
                join.more()
    return engine


def test_a_rate_that_demands_it_makes_the_services_ssbj_a_main_memory_join():
    """SSBJ theorem 3: all of R is cached, and hardly anything waits or is read."""
    node = through_node(pipeline_of("ssbj", 8 * MIB), 400, 16_000, 20)
    assert len(node.cache.cache) > 0.98 * 400
    before = node.figures()
    stream = Stream(400)
    for _ in range(5):
        node.step(stream.take(16_000), NOTE)
    after = node.figures()
    assert after["cache_misses"] - before["cache_misses"] < 0.01 * 5 * 16_000
    assert after["pending_events"] < 0.01 * 16_000


@pytest.mark.parametrize("algorithm", ["ssbj", "ssbj-index"])
def test_a_node_caches_what_the_engine_alone_would(algorithm):
    pipeline = pipeline_of(algorithm, 4 * MIB)
    node = through_node(pipeline, 6_000, 4_000, 40)
    engine = through_engine(node, 6_000, 4_000, 40)
    assert len(engine.held.cached) > 200
    assert len(node.cache.cache) == pytest.approx(len(engine.held.cached), rel=0.1)


def test_memory_that_the_cache_does_not_need_is_for_what_waits_and_the_reverse():
    """Few events wait for a cache that answers nearly all; more do where it can answer few."""
    pipeline = pipeline_of("ssbj", 8 * MIB)
    hot, cold = (through_node(pipeline, keys, 16_000, 20) for keys in (400, 60_000))
    pool = cold.figures()["component_bytes.pool"] + cold.figures()["component_bytes.cache"]
    assert cold.figures()["pending_bytes"] > 0.6 * pool
    assert hot.figures()["cache_used_bytes"] > 5 * hot.figures()["pending_bytes"]
