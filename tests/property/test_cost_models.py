"""What must hold of every model, whatever the figures."""

from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dovetail.errors import ConfigError
from dovetail.join.cost import meshjoin, ssbj
from dovetail.join.cost.factors import NAMES, TYPICAL, Factors, Work
from dovetail.join.cost.popularity import CountedPopularity, ZipfPopularity
from dovetail.join.cost.sizing import models
from dovetail.join.cost.workload import Workload

ALL = sorted(set(models()) - {"ssbj-index", "ameshjoin"})  # these two have another one's model
unhurried = settings(deadline=None, max_examples=25)

sizes = st.floats(10, 500)
laws = st.builds(
    ZipfPopularity,
    rows=st.integers(5_000, 20_000_000),
    skew=st.floats(0, 1.5),
    rows_a_key=st.floats(1, 5),
)
keys = st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 5)), min_size=5, max_size=200)
counted = keys.map(lambda pairs: CountedPopularity(*zip(*[(1, 1), *pairs] * 20, strict=True)))
workloads = st.builds(
    Workload,
    popularity=st.one_of(laws, counted),
    row_bytes=sizes,
    event_bytes=sizes,
    pointer_bytes=st.floats(0, 16),
    fudge=st.floats(1, 3),
    ordered=st.booleans(),
    unique=st.booleans(),
)
slower = st.builds(
    lambda scales: Factors(
        *(getattr(TYPICAL, name) * by for name, by in zip(NAMES, scales, strict=True))
    ),
    st.lists(st.floats(0.1, 10), min_size=len(NAMES), max_size=len(NAMES)),
)
shares = st.floats(0.001, 1.5)


def in_memory(workload, share):
    """A budget, as a share of R."""
    return max(share * workload.rows * workload.row_bytes, 4 * workload.page_bytes)


@unhurried
@given(st.sampled_from(ALL), workloads, slower, shares, st.floats(1, 10))
def test_more_memory_never_lowers_the_best_rate(name, workload, factors, share, more):
    ask = models()[name].highest_rate
    budget = in_memory(workload, share)
    less, greater = ask(workload, factors, budget), ask(workload, factors, budget * more)
    assert greater.rate >= less.rate * (1 - 1e-6)


@unhurried
@given(st.sampled_from(ALL), workloads, slower, shares)
def test_a_plan_stays_within_its_budget_and_its_parts_are_not_negative(
    name, workload, factors, share
):
    budget = in_memory(workload, share)
    plan = models()[name].highest_rate(workload, factors, budget)
    assert plan.memory <= budget * (1 + 1e-9)
    assert min(plan.parts.values()) >= 0
    assert 0 <= plan.hit_share <= 1


@unhurried
@given(st.sampled_from(ALL), workloads, slower, st.floats(10, 2e6))
def test_the_memory_for_a_rate_gives_that_rate(name, workload, factors, rate):
    model = models()[name]
    try:
        least = model.least_memory(workload, factors, rate)
    except ConfigError:
        assume(False)
    assert least.rate >= rate * (1 - 1e-6)
    assume(least.memory >= 4 * workload.page_bytes)  # less is refused
    back = model.highest_rate(workload, factors, least.memory * (1 + 1e-9))
    assert back.rate >= rate * (1 - 1e-5)


@unhurried
@given(st.sampled_from(ALL), workloads, slower, shares)
def test_the_rate_in_a_memory_needs_no_more_than_that_memory(name, workload, factors, share):
    model = models()[name]
    budget = in_memory(workload, share)
    rate = model.highest_rate(workload, factors, budget).rate
    assert model.least_memory(workload, factors, rate * (1 - 1e-6)).memory <= budget * (1 + 1e-5)


@unhurried
@given(workloads, slower, shares)
def test_memory_for_all_of_r_makes_ssbj_a_main_memory_join(workload, factors, share):
    plan = ssbj.highest_rate(workload, factors, workload.in_memory_bytes * (1 + share))
    a_hit = Work(take=1, probe=1, output=workload.popularity.matches)
    assert plan.rate == pytest.approx(1 / factors.cost(a_hit))
    assert plan.memory == workload.in_memory_bytes


@unhurried
@given(workloads, slower, st.floats(10, 1e6))
def test_ssbj_never_needs_more_than_all_of_r(workload, factors, rate):
    try:
        plan = ssbj.least_memory(workload, factors, rate)
    except ConfigError:
        assume(False)
    assert plan.memory <= workload.in_memory_bytes


@unhurried
@given(workloads, st.floats(0.1, 1e9), st.floats(0, 1))
def test_no_other_cache_takes_less_than_the_smaller_sides(workload, events, share):
    other = share * workload.rows
    waiting = (1 - float(workload.popularity.share(other))) * events * workload.residence
    held = other * workload.cached_row_bytes + waiting * workload.pending_event_bytes
    assert float(ssbj.smaller_sides(workload, events)) <= held * (1 + 1e-9)


def zipf(rows, skew, row_bytes=120, event_bytes=100):
    return Workload(ZipfPopularity(rows, skew), row_bytes, event_bytes)


@unhurried
@given(st.integers(10_000, 5_000_000), st.floats(0, 1.2), st.floats(0, 0.5), st.floats(100, 1e6))
def test_higher_skew_never_needs_more_memory_for_ssbj(rows, skew, more, rate):
    even = ssbj.least_memory(zipf(rows, skew), TYPICAL, rate)
    skewed = ssbj.least_memory(zipf(rows, skew + more), TYPICAL, rate)
    assert skewed.memory <= even.memory * (1 + 1e-6)


# Where reading R is what costs. An event's own cost takes time from reading: near the rate at
# which it takes all, any algorithm's memory grows without bound, but for Theorem 3.
READING = replace(TYPICAL, take=1e-12, probe=1e-12, output=1e-12, append=1e-12, evict=1e-12)


@unhurried
@given(st.integers(10_000, 5_000_000), st.floats(0.2, 1.2), st.floats(100, 1e6))
def test_double_the_rate_needs_less_than_double_the_memory_for_ssbj(rows, skew, rate):
    once = ssbj.least_memory(zipf(rows, skew), READING, rate)
    twice = ssbj.least_memory(zipf(rows, skew), READING, 2 * rate)
    assert twice.memory < 2 * once.memory


@unhurried
@given(workloads, slower, st.integers(1, 500), st.floats(1, 1e5))
def test_double_r_doubles_the_scans_cycle(workload, factors, pages, events):
    rows = round(max(workload.rows, 2 * workload.rows_a_page))
    once, twice = (
        Workload(ZipfPopularity(size, 1.0), workload.row_bytes, workload.event_bytes)
        for size in (rows, 2 * rows)
    )
    assert meshjoin.cycle(twice, factors, pages, events) == pytest.approx(
        2 * meshjoin.cycle(once, factors, pages, events)
    )


@unhurried
@given(workloads, slower, st.floats(0.1, 100), st.floats(0, 1))
def test_a_refined_prediction_moves_towards_the_measurement_and_never_past_it(
    workload, factors, off, weight
):
    work = meshjoin.loop(workload, 30, 1000)
    before = factors.cost(work)
    after = factors.refined(work, before * off, weight).cost(work)
    low, high = sorted((before, before * off))
    assert low * (1 - 1e-9) <= after <= high * (1 + 1e-9)
