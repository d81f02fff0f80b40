from __future__ import annotations

from collections import Counter
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tests.chaos.schedule import (
    KILLS_A_ROUND,
    NODES,
    ROUND_S,
    STAGES,
    Kind,
    Runner,
    large_of,
    lead_s,
    schedule,
)

SEEDS = st.integers(0, 2**32)
RUNNERS = st.sampled_from(list(Runner))


@given(SEEDS, RUNNERS)
def test_a_seed_gives_one_schedule(seed, runner):
    assert schedule(seed, ROUND_S, runner=runner) == schedule(seed, ROUND_S, runner=runner)


@given(SEEDS, st.integers(1, 3), RUNNERS)
def test_a_round_has_every_large_fault_and_kills_of_all_kinds_of_processes(seed, rounds, runner):
    faults = schedule(seed, rounds * ROUND_S, runner=runner)
    processes = {"control", *STAGES[runner]}
    kinds = Counter(fault.kind for fault in faults)
    assert Counter(large_of(runner) * rounds).items() <= kinds.items()
    kills = KILLS_A_ROUND[runner] * rounds + len(processes)
    assert sum(fault.kills for fault in faults) == kills
    killed = Counter()
    for fault in faults:
        killed[fault.service.partition("-")[0]] += fault.kills
    assert all(killed[service] >= 3 for service in processes)
    assert kinds[Kind.KILL_TWICE] > 0


@given(SEEDS, RUNNERS)
def test_one_process_of_each_kind_is_killed_alone_before_all_else(seed, runner):
    processes = {"control", *STAGES[runner]}
    faults = schedule(seed, ROUND_S, runner=runner)
    first = faults[: len(processes)]
    assert {fault.service.partition("-")[0] for fault in first} == processes
    assert {fault.kind for fault in first} == {Kind.KILL}
    for one, other in pairwise(faults[: len(processes) + 1]):
        assert other.at - one.at > 20


@given(SEEDS, st.floats(30, 2 * ROUND_S), RUNNERS)
def test_faults_come_in_order_within_the_time_and_hit_nodes_that_are_there(seed, seconds, runner):
    nodes = set(range(NODES))
    before = 0.0
    for fault in schedule(seed, seconds, runner=runner):
        assert before <= fault.at <= seconds + lead_s(runner)
        before = fault.at
        _, dash, number = fault.service.partition("-")
        assert not dash or int(number) in nodes
        assert set(fault.nodes) <= nodes
        assert nodes.isdisjoint(fault.new_nodes)
        nodes = (nodes - set(fault.nodes)) | set(fault.new_nodes)
        assert nodes
