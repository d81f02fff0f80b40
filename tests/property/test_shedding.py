"""Shedding loses nothing, and no strategy beats the optimum."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.join.columns import Column
from dovetail.join.exchange import Events
from dovetail.join.shedding.buffer import WorkingBuffer
from dovetail.join.shedding.optimal import optimal_loss
from dovetail.join.shedding.strategies import ClusterSampling, KeepW, SampleW, TopW
from tests.property.engine_cases import int_keys, text_keys

FREE = settings(deadline=None, max_examples=150)


class KnownFrequencies:
    """f_R of an int key is the key; of a text, its length."""

    def frequency(self, keys):
        lengths = np.diff(keys.texts.bounds)
        return np.where(lengths > 0, lengths, keys.values).astype(float)


def strategy_named(name, seed):
    known = KnownFrequencies()
    chance = np.random.default_rng(seed)
    return {
        "keep-w": KeepW(),
        "sample-w": SampleW(chance),
        "topw": TopW(known),
        "cluster-sampling": ClusterSampling(known, chance),
    }[name]


NAMES = st.sampled_from(["keep-w", "sample-w", "topw", "cluster-sampling"])
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("arrive"), st.lists(st.integers(0, 9), max_size=12)),
        st.tuples(st.just("resize"), st.integers(1, 12)),
        st.tuples(st.just("take"), st.none()),
    ),
    max_size=30,
)


def facts(events):
    """Each event as a whole, so that one that is mixed up with another is noticed."""
    keys = zip(events.keys.values.tolist(), events.keys.texts, strict=True)
    return list(zip(events.ids.tolist(), keys, events.data, strict=True))


class Model:
    """The buffer as the strategies' table says it: a sorted list."""

    def __init__(self, w):
        self.w = w
        self.held = []

    def cut(self):
        ranked = sorted(self.held, key=lambda one: (-one[0], one[1][0]))
        self.held = sorted(ranked[: self.w], key=lambda one: one[1][0])
        return sorted((fact for _, fact in ranked[self.w :]), key=lambda fact: fact[0])


@FREE
@given(
    name=NAMES,
    seed=st.integers(0, 99),
    w=st.integers(1, 10),
    operations=OPERATIONS,
    make_keys=st.sampled_from([int_keys, text_keys]),
)
def test_every_event_is_taken_or_shed_once_and_whole(name, seed, w, operations, make_keys):
    buffer = WorkingBuffer(strategy_named(name, seed), w)
    twin = strategy_named(name, seed)
    model = Model(w)
    arrived, taken, shed = [], [], []
    for operation, given_ in operations:
        if operation == "arrive":
            first = len(arrived)
            data = Column.of(
                [b"x" * (i % 5) + b"%d" % i for i in range(first, first + len(given_))]
            )
            events = Events(make_keys(given_), data, np.arange(first, first + len(given_)))
            arrived += facts(events)
            model.held += zip(twin.priorities(events.keys).tolist(), facts(events), strict=True)
            out = buffer.arrive(events)
        elif operation == "resize":
            model.w = given_
            out = buffer.resize(given_)
        else:
            batch = facts(buffer.take())
            assert batch == [fact for _, fact in model.held], "the best, in order of arrival"
            taken += batch
            model.held = []
            continue
        assert out.reason == name
        assert facts(out.events) == model.cut()
        shed += facts(out.events)
        assert len(buffer) <= buffer.capacity
    taken += facts(buffer.take())
    assert sorted(taken + shed) == arrived
    assert buffer.nbytes == 0


def best_of_all_choices(stream, w, c_loop, request, at=0, held=0):
    """Try everything: keep or shed each event, hand a full buffer over or stall."""
    if at == len(stream):
        return 0
    choices = [stream[at] + best_of_all_choices(stream, w, c_loop, request, at + 1, held)]
    if held < w:
        choices.append(best_of_all_choices(stream, w, c_loop, request, at + 1, held + 1))
    elif at >= request:
        choices.append(best_of_all_choices(stream, w, c_loop, at + c_loop, at, 0))
    return min(choices)


@FREE
@given(
    stream=st.lists(st.integers(0, 9), max_size=9),
    w=st.integers(1, 3),
    c_loop=st.integers(1, 6),
    first_request=st.integers(0, 7),
)
def test_the_optimum_is_that_of_trying_everything(stream, w, c_loop, first_request):
    tried = best_of_all_choices(stream, w, c_loop, first_request)
    assert optimal_loss(stream, w, c_loop, first_request) == tried


@FREE
@given(
    name=NAMES,
    seed=st.integers(0, 99),
    stream=st.lists(st.integers(0, 20), max_size=60),
    w=st.integers(1, 6),
    c_loop=st.integers(1, 12),
)
def test_no_strategy_loses_less_than_the_optimum(name, seed, stream, w, c_loop):
    buffer = WorkingBuffer(strategy_named(name, seed), w)
    loss = 0
    for at in range(0, len(stream), c_loop):
        some = stream[at : at + c_loop]
        events = Events(int_keys(some), Column.of([b"{}"] * len(some)), np.arange(len(some)))
        loss += int(buffer.arrive(events).events.keys.values.sum())
        buffer.take()
    assert loss >= optimal_loss(stream, w, c_loop, first_request=c_loop)
    assert loss >= optimal_loss(stream, w, c_loop)
