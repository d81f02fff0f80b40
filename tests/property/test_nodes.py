"""Any number of nodes gives what SQL gives: all of it, once, each node within its budget."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dovetail.join.algorithms import ALGORITHMS, Parameters
from dovetail.join.columns import Column
from dovetail.join.engine import Engine
from dovetail.join.entry import MasterRows
from dovetail.join.kinds import JoinKind
from dovetail.join.mapper import Mapper
from dovetail.nodes import Node, Nodes, Slots
from dovetail.testing.relation import MemoryRelation
from tests.property.engine_cases import Outputs, cases, int_keys

MODEST = settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
SMALL, DISK_BUFFER = 8_000, 12_000


class Driven:
    """A relation in memory, as a node reads it."""

    def __init__(self, rows, case):
        self._relation = MemoryRelation(rows, case.rows_a_page, unique=case.unique)
        self.facts = self._relation.facts

    def read(self, request, most):
        read = self._relation.read(request)
        assert read.nbytes <= most
        return read


def master_rows(case):
    rows = Column.of([b'{"r":%d}' % i for i in range(len(case.master))])
    return MasterRows(case.make_keys(case.master), rows)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@MODEST
@given(
    case=cases(),
    nodes=st.integers(1, 3),
    steps=st.lists(st.integers(1, 50), min_size=1, max_size=6),
    depth=st.integers(1, 3),
    window=st.integers(1, 20),
)
def test_nodes_give_what_sql_gives(algorithm, case, nodes, steps, depth, window):
    mapper = Mapper(8, int_key=case.make_keys is int_keys)
    slots = Slots.in_turn(mapper.slots, slots=8, nodes=nodes)
    parts = [Driven(rows, case) for rows in slots.split_rows(master_rows(case))]
    engines = [
        Engine(
            algorithm,
            part.facts,
            SMALL + DISK_BUFFER,
            parameters=Parameters(events=window, keys=5),
            disk_buffer=DISK_BUFFER,
        )
        for part in parts
    ]
    out = Outputs()
    events = case.events()
    with Nodes([Node(*pair) for pair in zip(engines, parts, strict=True)], slots, depth=depth) as n:
        at = step = 0
        while at < len(events):
            end = min(at + steps[step % len(steps)], len(events))
            for answers in n.offer(events.slice(at, end)):
                out.take(answers)
            at, step = end, step + 1
        for answers in n.finish():
            out.take(answers)
    assert sorted(out.ids) == events.ids.tolist()
    for kind in JoinKind:
        assert out.sorted(kind) == case.expected(kind), kind
    assert all(engine.allocated <= engine.budget for engine in engines)
