"""A node never takes more than its budget, whatever comes and whenever it has to begin anew."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.join.algorithms import ALGORITHMS
from dovetail.testing.fakes import InMemoryMaster
from services.node.settings import step as step_of
from tests.unit.node_kit import Node, pipeline_of

MEMORY = 4 << 20
KEYS = 4_000
DEEDS = st.lists(
    st.one_of(
        st.tuples(st.just("take"), st.integers(1, 3_000), st.floats(0, 1.5)),
        st.tuples(st.just("read"), st.integers(1, 5), st.just(0.0)),
        st.tuples(st.just("drop"), st.just(0), st.just(0.0)),
    ),
    min_size=3,
    max_size=12,
)


def allocated(node):
    """What the arrays really take that hold anything between two steps."""
    engine = node.disk.join.engine
    window = node.disk.window
    columns = [value for value in vars(window).values() if isinstance(value, np.ndarray)]
    engine = getattr(engine, "engine", engine)
    return engine.held.pool.nbytes + engine.disk_buffer + sum(one.nbytes for one in columns)


@pytest.mark.parametrize("algorithm", [*ALGORITHMS, "auto"])
@given(
    deeds=DEEDS,
    rows=st.integers(1, 3),
    row_bytes=st.integers(1, 1_500),
    note_bytes=st.integers(0, 400),
    seed=st.integers(0, 99),
)
@settings(max_examples=8, deadline=None)
def test_a_budget_is_kept_at_every_step(algorithm, deeds, rows, row_bytes, note_bytes, seed):
    row = b'{"name":"' + b"x" * row_bytes + b'"}'
    master = InMemoryMaster({key: [row] * rows for key in range(0, KEYS, 2)}, 20)
    pipeline = pipeline_of(algorithm, MEMORY)
    node, random, note = Node(pipeline, master), np.random.default_rng(seed), "y" * note_bytes
    size = step_of(pipeline)
    in_all = answered = 0

    def step(keys=()):
        nonlocal answered
        sent = node.step(keys, note)
        answered += sum(
            len({message.headers[b"origin"] for message in sent.sent[topic.name]})
            for topic in (node.topology.enriched, node.topology.unmatched)
        )
        figures = node.figures()
        parts = [size for name, size in figures.items() if name.startswith("component_bytes.")]
        assert figures["held_bytes"] == sum(parts)
        assert figures["held_bytes"] <= figures["budget_bytes"] == MEMORY
        assert allocated(node) <= figures["held_bytes"]

    for deed, most, skew in deeds:
        if deed == "take" and not node.handler.full:
            count = min(most, size.max_records, size.max_bytes // (note_bytes + 30))
            weights = 1 / np.arange(1, KEYS + 1) ** skew
            keys = random.choice(KEYS, count, p=weights / weights.sum())
            in_all += count
            step(keys)
        elif deed == "read":
            for _ in range(most):
                step()
        elif deed == "drop":
            in_all -= int(node.figures()["pending_events"]) + _outside(node)
            node.handler.drop()
            node.handler.open(0, node.ledger)
    while node.handler.busy:
        step()
    assert answered == in_all


def _outside(node):
    """Events that have arrived and are not let in."""
    return sum(
        len(one.events) if one.events is not None else sum(len(piece) for piece in one.pieces)
        for one in node.disk._arrivals
    )
