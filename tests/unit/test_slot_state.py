from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from dovetail.audit import Audit, _ledger, _problems
from dovetail.pipeline.spec import Pipeline
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
COUNTS = st.fixed_dictionaries(
    {
        name: st.integers(0, 10**12)
        for name in ("enriched", "unmatched", "parked", "dead.empty", "dead.invalid-json")
    }
)
STATES = st.builds(
    lambda counts, hits, positions: SlotState(
        Counter({**counts, "in": sum(counts.values()), "hits": hits, "outputs": hits}), positions
    ),
    COUNTS,
    st.integers(0, 100),
    st.dictionaries(st.integers(0, 2), st.integers(0, 2**63 - 1)),
)


@given(STATES)
def test_a_state_is_read_as_it_was_written(state):
    assert SlotState.parse(state.text) == state


@given(st.lists(STATES, max_size=5))
def test_the_slots_add_up_to_the_stages_of_the_services(states):
    topology = Topology(SALES)
    committed = as_stages(states, 3)
    stages = {service: _ledger(found) for service, found in committed.items()}
    seen = Audit(stages, topology, 0, list(_problems(stages, topology)))
    assert seen.problems == []
    assert seen.drained
    total = sum((state.counts for state in states), Counter())
    assert seen.taken == total["in"]
    assert seen.dead_lettered == total["dead.empty"] + total["dead.invalid-json"]
    assert (seen.enriched, seen.parked) == (total["enriched"], total["parked"])
    assert (seen.hits, seen.outputs) == (total["hits"], total["outputs"])
    positions = {number: at.offset for number, at in committed["ingest"].items()}
    assert positions == beginnings(states, 3)


def test_a_partition_is_read_from_where_the_slowest_slot_is():
    states = [SlotState(positions={0: 5, 1: 9}), SlotState(positions={0: 7})]
    assert beginnings(states, 3) == {0: 5, 1: 0, 2: 0}


def test_the_text_of_many_partitions_fits_beside_an_offset():
    counts = Counter({f"dead.{'x' * 20}{number}": 10**15 for number in range(20)})
    state = SlotState(counts, dict.fromkeys(range(128), 10**15))
    assert len(state.text) < 4096
