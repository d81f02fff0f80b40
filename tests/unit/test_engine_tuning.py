import pytest

from dovetail.join.algorithms import Parameters
from dovetail.join.cost import meshjoin
from dovetail.join.cost.factors import TYPICAL
from dovetail.join.cost.footprint import engine_workload
from dovetail.join.cost.popularity import ZipfPopularity
from dovetail.join.tuning import SPARE, ArrivalTuner
from tests.unit.engine_kit import engine_for, events_of, read_once, relation_of

LOAD = engine_workload(ZipfPopularity(1e6, 1.0), 120, 100, unique=True)
MEMORY = 20e6


class Time:
    now = 0.0

    def __call__(self):
        return self.now


def tuned_for(rate, tuner=None, seconds=20):
    time = Time() if tuner is None else tuner._clock
    tuner = tuner or ArrivalTuner(LOAD, TYPICAL, MEMORY, time)
    for _ in range(seconds * 10):
        time.now += 0.1
        tuner.arrived(int(rate / 10))
        pages, events = tuner(0)
    return tuner, pages, events


def test_b_and_w_take_the_least_memory_that_keeps_up():
    tuner, pages, events = tuned_for(60_000)
    least = meshjoin.least_memory(LOAD, TYPICAL, SPARE * tuner.rate)
    assert tuner.rate == pytest.approx(60_000, rel=0.01)
    assert meshjoin.keeps_up(LOAD, TYPICAL, tuner.rate, pages, events)
    assert meshjoin.memory(LOAD, pages, events).total == pytest.approx(least.memory, rel=0.1)


def test_a_faster_stream_takes_more_memory_and_a_slower_one_gives_it_back():
    tuner, _, slow = tuned_for(10_000)
    held = tuner.plan.memory
    tuner, _, fast = tuned_for(40_000, tuner)
    assert fast > slow
    assert tuner.plan.memory > held
    tuner, _, again = tuned_for(10_000, tuner)
    assert tuner.plan.memory == pytest.approx(held, rel=0.1)
    assert again < fast


@pytest.mark.parametrize("rate", [2e6, 1e9])
def test_a_rate_beyond_the_memory_gets_the_most_that_the_memory_gives(rate):
    tuner, _, _ = tuned_for(rate)
    assert tuner.plan.memory <= MEMORY
    assert tuner.plan.rate == meshjoin.highest_rate(LOAD, TYPICAL, MEMORY).rate


def test_ameshjoin_reads_as_much_as_the_tuner_says():
    time = Time()
    tuner = ArrivalTuner(LOAD, TYPICAL, MEMORY, time)
    relation = relation_of(range(4000), 10, unique=True)
    engine = engine_for(
        "ameshjoin", relation, 4_000_000, parameters=Parameters(tuner=tuner), disk_buffer=2_000_000
    )
    counts = []
    for rate in (100, 100_000):
        for _ in range(50):
            time.now += 0.1
            tuner.arrived(rate // 10)
            engine.offer(events_of(range(20)))
            request = engine.wants()
            if request is not None:
                counts.append(request.count)
                read_once(engine, relation)
    assert counts[-1] > counts[40]
