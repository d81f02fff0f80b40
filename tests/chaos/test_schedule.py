from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from tests.chaos.schedule import KILLS_A_ROUND, LARGE, NODES, ROUND_S, Kind, schedule

SEEDS = st.integers(0, 2**32)
KINDS_OF_SERVICES = {"control", "ingest", "mapper", "cache_phase", "disk_phase"}


@given(SEEDS)
def test_a_seed_gives_one_schedule(seed):
    assert schedule(seed, ROUND_S) == schedule(seed, ROUND_S)


@given(SEEDS, st.integers(1, 3))
def test_a_round_has_every_large_fault_and_twenty_kills_of_all_kinds_of_services(seed, rounds):
    faults = schedule(seed, rounds * ROUND_S)
    kinds = Counter(fault.kind for fault in faults)
    assert Counter(LARGE * rounds).items() <= kinds.items()
    assert sum(fault.kills for fault in faults) == KILLS_A_ROUND * rounds
    killed = Counter()
    for fault in faults:
        killed[fault.service.partition("-")[0]] += fault.kills
    assert all(killed[service] >= 2 for service in KINDS_OF_SERVICES)
    assert kinds[Kind.KILL_TWICE] > 0


@given(SEEDS, st.floats(30, 2 * ROUND_S))
def test_faults_come_in_order_within_the_time_and_hit_nodes_that_are_there(seed, seconds):
    nodes = set(range(NODES))
    before = 0.0
    for fault in schedule(seed, seconds):
        assert before <= fault.at <= seconds
        before = fault.at
        _, dash, number = fault.service.partition("-")
        assert not dash or int(number) in nodes
        assert set(fault.nodes) <= nodes
        assert nodes.isdisjoint(fault.new_nodes)
        nodes = (nodes - set(fault.nodes)) | set(fault.new_nodes)
        assert nodes
