"""Portions: every slot answers every offset once, however often runs are killed on their way."""

from __future__ import annotations

from collections import Counter

import hypothesis.strategies as st
from hypothesis import given

from dovetail.pipeline.spec import Pipeline
from dovetail.stream.late import Late
from dovetail.stream.slot_state import SlotState
from dovetail.topology import Topology
from services.spark.backfill_portions import Portion, Span, Work

SLOTS = 4


class Inputs:
    """Two inputs that grow, and slots that answer them."""

    def __init__(self):
        self.ends = [0, 0]
        self.states = {slot: SlotState() for slot in range(SLOTS)}
        self.answered = Counter()

    def work(self):
        places = tuple(
            frozenset(state.position(number) for state in self.states.values())
            for number in range(2)
        )
        return Work(places, tuple(self.ends))

    def answer(self, portion, slots):
        for slot in slots:
            state = self.states[slot]
            for number in portion.inputs_for(state):
                span = portion.spans[number]
                self.answered.update((slot, number, at) for at in range(span.start, span.end))
            self.states[slot] = SlotState(positions=portion.passed(state))


@given(
    st.lists(
        st.tuples(
            st.lists(st.integers(0, 20), min_size=2, max_size=2),  # what has come meanwhile
            st.integers(1, 9),  # how large a portion is
            st.integers(0, 12),  # how many parts of portions are committed before the kill
            st.integers(1, SLOTS),  # how many nodes there are
        ),
        max_size=8,
    )
)
def test_every_slot_answers_every_offset_once(runs):
    inputs = Inputs()
    for come, most, committed, nodes in [*runs, ([0, 0], 7, 10_000, 2)]:
        left = committed
        inputs.ends = [end + more for end, more in zip(inputs.ends, come, strict=True)]
        for portion in inputs.work().portions(most):
            assert all(len(span) <= most for span in portion.spans)
            for node in range(nodes):
                if left:
                    inputs.answer(portion, range(node, SLOTS, nodes))
                    left -= 1
            if not left:
                break
    every = {
        (slot, number, at)
        for slot in range(SLOTS)
        for number, end in enumerate(inputs.ends)
        for at in range(end)
    }
    assert inputs.answered == Counter(every)
    assert len(inputs.work()) == 0


def test_what_was_deleted_is_passed_over():
    # The broker has nothing below 50 any more; one slot was at 10, another at 60.
    work = Work((frozenset({50, 60}),), (70,), lost=40)
    assert [portion.spans for portion in work.portions(100)] == [(Span(50, 60),), (Span(60, 70),)]
    behind, ahead = SlotState(positions={0: 10}), SlotState(positions={0: 60})
    first = Portion((Span(50, 60),))
    assert first.inputs_for(behind) == {0}
    assert first.inputs_for(ahead) == frozenset()
    assert first.passed(ahead) == {0: 60}


def test_slots_that_are_apart_show_that_a_run_was_interrupted():
    spec = {
        "name": "sales",
        "source": {"fields": {"sku": "int"}},
        "key": "sku",
        "master": {"table": "products", "columns": ["price"]},
        "slots": 2,
    }
    topology = Topology(Pipeline.model_validate(spec))
    together = Late(3, {0: SlotState(positions={0: 5}), 1: SlotState(positions={0: 5})})
    apart = Late(3, {0: SlotState(positions={0: 5})})
    assert together.positions(topology)["sales.shed"] == {5}
    assert apart.positions(topology)["sales.shed"] == {0, 5}
