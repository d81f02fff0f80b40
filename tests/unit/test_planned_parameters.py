"""What a named algorithm runs with, against the best that its cost model has."""

from dataclasses import replace

import pytest

from dovetail.join.algorithms import ALGORITHMS, Parameters
from dovetail.join.auto import Auto
from dovetail.join.cost import meshjoin, srj
from dovetail.join.cost.factors import TYPICAL
from dovetail.join.cost.footprint import engine_workload
from dovetail.join.cost.popularity import ZipfPopularity
from dovetail.join.emigration import Emigration
from dovetail.join.phase import Relation
from tests.unit.test_engine_auto import Drive, Time

ROWS, ROWS_A_PAGE, ROW_BYTES = 200_000, 50, 120.0
RELATION = Relation(ROWS // ROWS_A_PAGE, 8192, unique=True, rows=ROWS)
MEMORY = 8 << 20
SLOW = replace(TYPICAL, seek=1.6e-3, page=2.1e-4, request=1e-3, key=8e-6)


def named(algorithm, **options):
    return Auto(RELATION, MEMORY, Time(), factors=SLOW, among=(algorithm,), **options)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_named_algorithm_runs_and_says_what_its_model_promises(algorithm):
    auto = named(algorithm)
    assert auto.engine.algorithm == algorithm
    assert auto.choice.reason.startswith(f"the pipeline names it; {algorithm} promises ")
    assert auto.choice.rate > 1
    assert auto.allocated <= MEMORY


@pytest.mark.parametrize("algorithm", ["ssbj", "cachejoin", "srj"])
def test_a_named_algorithm_stays_however_slow_it_is(algorithm):
    drive = Drive(lambda _: 0.05, among=(algorithm,))
    drive.run(300)
    assert drive.auto.engine.algorithm == algorithm
    assert {choice.algorithm for choice in drive.auto.choices} == {algorithm}


def workload():
    popularity = ZipfPopularity(ROWS, 0.5)
    page = ROWS_A_PAGE * ROW_BYTES
    return engine_workload(popularity, ROW_BYTES, 120.0, page_bytes=page, unique=True)


def test_b_of_a_scan_is_the_best_of_all():
    """By trying every b, with as many events as then fit."""
    load, room = workload(), named("meshjoin").engine.budget

    def rate(pages):
        buffer = pages * load.buffer_bytes
        an_event = meshjoin.memory(load, pages, 1).total - buffer
        events = (room - buffer) / an_event
        return meshjoin.rate(load, SLOW, pages, events) if events > 0 else 0.0

    best = max(range(1, RELATION.pages), key=rate)
    auto = named("meshjoin")
    assert auto.choice.rate == pytest.approx(rate(best), rel=0.02)
    planned = best * load.buffer_bytes
    least = MEMORY / 16
    assert max(planned, least) * 0.8 < auto.disk_buffer < max(planned, least) * 1.3


def test_k_is_the_smallest_batch_with_nearly_all_the_throughput():
    most = srj.throughput(SLOW, srj.LARGEST_BATCH)
    best = next(k for k in range(1, 8193) if srj.throughput(SLOW, k) >= 0.95 * most)
    auto = named("srj")
    assert auto.engine.parameters.keys == best
    assert auto.engine.parameters.cache_share > 0.85, "all that a batch does not need"


def test_a_batch_is_no_larger_than_its_buffer_holds():
    drive = Drive(lambda _: 0.01, among=("srj",), factors=SLOW)
    drive.run(300)
    assert 1 < drive.auto.engine.parameters.keys < srj.best_batch(SLOW, 0.0)


def test_a_disk_half_is_planned_by_the_model_of_its_phase_alone():
    alone = named("ssbj", policy=Emigration("ssbj"))
    assert alone.choice.rate == named("meshjoin").choice.rate
    assert alone.choice.rate < named("ssbj").choice.rate


def test_ameshjoin_plans_for_the_highest_rate_while_events_have_to_stay_outside():
    drive = Drive(lambda _: 1e-3, memory=400_000, among=("ameshjoin",), factors=SLOW)
    drive.run(300)
    tuner = drive.auto.engine.parameters.tuner
    assert tuner is not None
    highest = meshjoin.highest_rate(drive.auto._workload(), drive.auto.factors, tuner._memory)
    assert tuner.plan.rate == pytest.approx(highest.rate, rel=0.3)
    assert drive.auto.engine.parameters != Parameters()
