from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from dovetail.audit import Audit, _ledger, _problems
from dovetail.pipeline.spec import Pipeline
from dovetail.stream.ledger import parse
from dovetail.stream.slot_state import SlotState, as_stages, beginnings
from dovetail.topology import Topology

SALES = Pipeline.model_validate(
    {
        "name": "sales",
        "source": {"fields": {"sku": "int"}, "partitions": 3},
        "key": "sku",
        "master": {"table": "products", "columns": ["price"]},
        "engine": "spark",
    }
)
CHAIN = Pipeline.model_validate(
    {
        **SALES.model_dump(mode="json"),
        "then": [{"key": "sku", "master": {"table": table, "columns": [table]}} for table in "ab"],
    }
)
COUNTS = st.fixed_dictionaries(
    {
        name: st.integers(0, 10**12)
        for name in ("enriched", "unmatched", "parked", "dead.empty", "dead.x", "shed.topw")
    }
)
STATES = st.builds(
    lambda counts, hits, positions, cut: SlotState(
        Counter({**counts, "in": sum(counts.values()), "hits": hits, "outputs": hits}),
        positions,
        cut=cut,
    ),
    COUNTS,
    st.integers(0, 100),
    st.dictionaries(st.integers(0, 2), st.integers(0, 2**63 - 1)),
    st.dictionaries(st.integers(0, 2), st.integers(0, 2**63 - 1)),
)


@given(STATES)
def test_a_state_is_read_as_it_was_written(state):
    assert SlotState.parse(state.text) == state
    assert SlotState.of_message(state.message) == state


@given(STATES, STATES, STATES)
def test_every_table_of_a_chain_has_a_text_of_its_own(first, second, third):
    state = SlotState(first.counts, first.positions, (second.counts, third.counts))
    texts = [state.of_link(number).text for number in (1, 2, 3)]
    assert SlotState.parse(*texts) == state
    assert SlotState.of_message(state.message) == state
    assert SlotState.parse(texts[0]).of_link(2) == SlotState(), "a table that was added since"


@given(st.lists(STATES, max_size=5))
def test_the_slots_add_up_to_the_stages_of_the_services(states):
    topology = Topology(SALES)
    committed = as_stages(states, topology)
    seen = audited(committed, topology)
    assert seen.problems == []
    assert seen.drained
    total = sum((state.counts for state in states), Counter())
    assert seen.taken == total["in"]
    assert seen.dead_lettered == total["dead.empty"] + total["dead.x"]
    assert seen.shed == total["shed.topw"]
    assert (seen.enriched, seen.parked) == (total["enriched"], total["parked"])
    assert (seen.hits, seen.outputs) == (total["hits"], total["outputs"])
    positions = {number: at.offset for number, at in committed["ingest"].items()}
    assert positions == beginnings(states, 3)


def audited(committed, topology):
    stages = {service: _ledger(found) for service, found in committed.items()}
    return Audit(stages, topology, 0, list(_problems(stages, topology)))


def test_the_tables_of_a_chain_add_up_with_the_copies_that_they_make():
    state = SlotState(
        Counter({"in": 10, "enriched": 6, "outputs": 9, "unmatched": 3, "dead.empty": 1}),
        {0: 10},
        (
            Counter({"in": 9, "enriched": 7, "outputs": 14, "unmatched": 2, "hits": 4}),
            Counter({"in": 14, "enriched": 13, "outputs": 20, "parked": 1}),
        ),
    )
    topology = Topology(CHAIN)
    seen = audited(as_stages([state, SlotState()], topology), topology)
    assert seen.problems == []
    assert seen.drained
    assert (seen.taken, seen.copies, seen.outputs, seen.hits) == (10, 3 + 7, 20, 4)
    assert (seen.enriched, seen.unmatched, seen.parked) == (13, 5, 1)
    lost = SlotState(state.counts, state.positions, (state.further[0], Counter({"in": 15})))
    assert audited(as_stages([lost], topology), topology).problems


def test_a_partition_is_read_from_where_the_slowest_slot_is():
    states = [SlotState(positions={0: 5, 1: 9}), SlotState(positions={0: 7})]
    assert beginnings(states, 3) == {0: 5, 1: 0, 2: 0}


def test_the_text_of_many_partitions_fits_beside_an_offset():
    counts = Counter({f"dead.{'x' * 20}{number}": 10**15 for number in range(20)})
    state = SlotState(counts, dict.fromkeys(range(128), 10**15))
    assert len(state.text) < 4096


def test_an_order_to_read_from_elsewhere_is_obeyed_once():
    state = SlotState(Counter({"in": 9, "enriched": 9}), {0: 5, 1: 9}, (Counter({"in": 9}),))
    moved = state.moved(7, {0: 2})
    assert moved == SlotState(
        Counter({"in": 9, "enriched": 9, "moved": 7}), {0: 2, 1: 9}, (Counter({"in": 9}),)
    )
    assert SlotState.parse(moved.text, "in=9") == moved
    assert moved.moved(7, {0: 2}) is moved
    assert moved.moved(6, {1: 0}) is moved
    assert moved.moved(8, {1: 0}).positions == {0: 2, 1: 0}


@given(st.lists(STATES, min_size=1, max_size=5), st.integers(1, 9), st.integers(1, 9))
def test_the_sum_does_not_change_when_slots_read_from_elsewhere(states, first, later):
    topology = Topology(SALES)
    there = [state.moved(first, {0: 0}) for state in states]
    part = [there[0].moved(first + later, {1: 0}), *there[1:]]
    for slots, number in ((there, first), (part, first + later * (len(states) == 1))):
        committed = as_stages(slots, topology)
        seen = audited(committed, topology)
        assert seen.problems == []
        assert seen.taken == sum(state.counts["in"] for state in states)
        # As of ingest: done when all slots have done it.
        assert {parse(at.text)["moved"] for at in committed["ingest"].values()} == {number}
