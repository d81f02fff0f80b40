import itertools

import numpy as np
import pytest

from dovetail.errors import ConfigError
from dovetail.join.columns import Column, JoinKeys
from dovetail.join.entry import Entries, MasterRows
from dovetail.join.exchange import Events
from dovetail.join.keys import hash_text_many
from dovetail.join.phase import Relation
from dovetail.join.shedding.buffer import WorkingBuffer, highest
from dovetail.join.shedding.choice import (
    Criterion,
    Relationship,
    strategy_for,
    strategy_named,
)
from dovetail.join.shedding.frequency import KnownFrequencies, LearntFrequencies, most_keys
from dovetail.join.shedding.optimal import optimal_loss
from dovetail.join.shedding.strategies import ClusterSampling, KeepW, SampleW, TopW


class KeyIsFrequency:
    """f_R of a key is the key itself: for streams that are written down as their f_R."""

    def frequency(self, keys):
        return keys.values.astype(float)


def events_of(keys, first_id=0):
    data = Column.of([b'{"e":%d}' % i for i in range(first_id, first_id + len(keys))])
    ids = np.arange(first_id, first_id + len(keys))
    return Events(JoinKeys.of_ints(np.array(keys, np.int64)), data, ids)


def seeded(seed=1):
    return np.random.default_rng(seed)


def every_strategy(seed=1):
    frequencies = KeyIsFrequency()
    return [
        KeepW(),
        SampleW(seeded(seed)),
        TopW(frequencies),
        ClusterSampling(frequencies, seeded(seed)),
    ]


def entries_with(rows_of):
    """One entry for each key, with so many rows."""
    keys = JoinKeys.of_ints(np.array(list(rows_of), np.int64))
    owners = np.repeat(keys.values, list(rows_of.values()))
    return Entries.of(keys, MasterRows(JoinKeys.of_ints(owners), Column.of([b"{}"] * len(owners))))


def teach(frequencies, rows_of):
    entries = entries_with(rows_of)
    frequencies.learn(entries.data, entries.bounds[:-1])


def asked(frequencies, keys):
    return frequencies.frequency(JoinKeys.of_ints(np.array(keys, np.int64))).tolist()


def loss_through_the_buffer(strategy, stream, w, c_loop):
    """Rows lost when the join takes the buffer every c_loop events."""
    buffer = WorkingBuffer(strategy, w)
    lost = 0
    for at in range(0, len(stream), c_loop):
        lost += int(buffer.arrive(events_of(stream[at : at + c_loop])).events.keys.values.sum())
        buffer.take()
    return lost


# The working buffer


def test_keep_w_keeps_the_first_that_arrive():
    buffer = WorkingBuffer(KeepW(), 3)
    assert len(buffer.arrive(events_of([9, 9]))) == 0
    shed = buffer.arrive(events_of([9, 9, 9], first_id=2))
    assert shed.reason == "keep-w"
    assert shed.events.ids.tolist() == [3, 4]
    assert list(shed.events.data) == [b'{"e":3}', b'{"e":4}']
    taken = buffer.take()
    assert taken.ids.tolist() == [0, 1, 2]
    assert list(taken.data) == [b'{"e":0}', b'{"e":1}', b'{"e":2}']
    assert len(buffer) == 0


def test_topw_keeps_the_most_frequent_in_their_order_of_arrival():
    buffer = WorkingBuffer(TopW(KeyIsFrequency()), 3)
    assert buffer.arrive(events_of([5, 1, 7, 2])).events.ids.tolist() == [1]
    shed = buffer.arrive(events_of([6, 0], first_id=4))
    assert shed.events.ids.tolist() == [3, 5]
    assert buffer.take().keys.values.tolist() == [5, 7, 6]


def test_of_events_that_are_equally_frequent_the_earliest_stay():
    buffer = WorkingBuffer(TopW(KeyIsFrequency()), 2)
    buffer.arrive(events_of([4, 4]))
    assert buffer.arrive(events_of([4, 5, 4], first_id=2)).events.ids.tolist() == [1, 2, 4]
    assert buffer.take().ids.tolist() == [0, 3]


def test_a_buffer_that_was_taken_starts_afresh():
    buffer = WorkingBuffer(TopW(KeyIsFrequency()), 1)
    buffer.arrive(events_of([9, 8]))
    assert buffer.cut == 8
    buffer.take()
    assert buffer.cut == 0
    assert len(buffer.arrive(events_of([1]))) == 0


@pytest.mark.parametrize("strategy", every_strategy(), ids=lambda s: s.name)
def test_a_smaller_w_sheds_at_once_and_a_larger_one_lets_more_in(strategy):
    buffer = WorkingBuffer(strategy, 10)
    buffer.arrive(events_of(range(1, 9)))
    shed = buffer.resize(3)
    assert (len(shed), shed.reason, len(buffer), buffer.capacity) == (5, strategy.name, 3, 3)
    assert len(buffer.resize(5)) == 0
    assert len(buffer.arrive(events_of([9, 9], first_id=8))) == 0
    assert len(buffer.take()) == 5


@pytest.mark.parametrize("w", [0, -1])
def test_a_buffer_without_room_is_refused(w):
    with pytest.raises(ConfigError, match="shed the whole stream"):
        WorkingBuffer(KeepW(), w)
    with pytest.raises(ConfigError, match="shed the whole stream"):
        WorkingBuffer(KeepW(), 1).resize(w)


@pytest.mark.parametrize("strategy", every_strategy(), ids=lambda s: s.name)
def test_bytes_are_those_of_the_arrays_that_the_buffer_holds(strategy):
    buffer = WorkingBuffer(strategy, 20)
    stream = events_of([k % 5 + 1 for k in range(42)])
    for at in range(0, 42, 7):
        buffer.arrive(stream.slice(at, at + 7))
        held = [buffer._priorities]
        for part in buffer._held:
            held += [part.keys.values, part.keys.texts.data, part.keys.texts.bounds]
            held += [part.data.data, part.data.bounds, part.ids]
        views = [array for array in held if isinstance(array.base, np.ndarray)]
        assert not views, "a view holds on to the whole buffer below it"
        assert buffer.nbytes == sum(array.nbytes for array in held) > 0
    buffer.take()
    assert buffer.nbytes == 0


# Chance


@pytest.mark.parametrize("at", [1, 3])
def test_the_same_seed_sheds_the_same_events_in_whatever_batches(at):
    def taken(sizes):
        buffer = WorkingBuffer(every_strategy(seed=5)[at], 10)
        first = 0
        for size in sizes:
            keys = [1 + i % 4 for i in range(first, first + size)]
            buffer.arrive(events_of(keys, first_id=first))
            first += size
        return buffer.take().ids.tolist()

    assert taken([100]) == taken([1, 9, 40, 50])


def test_sample_w_keeps_every_event_equally_often_whenever_it_arrives():
    strategy = SampleW(seeded(3))
    kept = np.zeros(12)
    for _ in range(4000):
        buffer = WorkingBuffer(strategy, 3)
        buffer.arrive(events_of([1] * 5))
        buffer.arrive(events_of([1] * 7, first_id=5))
        kept[buffer.take().ids] += 1
    # 3 of 12, over 4,000 trials: 1,000 each, with a standard deviation of 27.
    assert np.abs(kept - 1000).max() < 4 * 27


def test_cluster_sampling_estimates_sums_over_the_join_without_bias():
    """An event's chance of being kept is f_R ÷ cut: dividing by it gives the whole again."""
    keys = [1, 2, 3, 4, 5, 10, 20, 40] * 5
    values = np.arange(len(keys)) % 7
    strategy = ClusterSampling(KeyIsFrequency(), seeded(4))
    estimates = []
    for _ in range(4000):
        buffer = WorkingBuffer(strategy, 12)
        buffer.arrive(events_of(keys))
        cut = buffer.cut
        taken = buffer.take()
        rows = taken.keys.values
        chances = np.minimum(1.0, rows / cut)
        estimates.append(np.sum(rows * values[taken.ids] / chances))
    real = np.sum(np.array(keys) * values)
    error = np.std(estimates) / np.sqrt(len(estimates))
    assert abs(np.mean(estimates) - real) < 4 * error
    assert error < 0.01 * real


def test_cluster_sampling_keeps_an_event_of_more_rows_more_often():
    strategy = ClusterSampling(KeyIsFrequency(), seeded(6))
    kept = np.zeros(100)
    for _ in range(2000):
        buffer = WorkingBuffer(strategy, 10)
        buffer.arrive(events_of([1] * 50 + [3] * 50))
        kept[buffer.take().ids] += 1
    assert kept[50:].sum() / kept[:50].sum() == pytest.approx(3, rel=0.15)


# The choice


@pytest.mark.parametrize(
    ("relationship", "criterion", "strategy"),
    [
        ("many-to-one", "max-subset", KeepW),
        ("many-to-one", "random-sample", SampleW),
        ("many-to-many", "max-subset", TopW),
        ("many-to-many", "random-sample", ClusterSampling),
    ],
)
def test_the_strategy_is_that_of_the_papers_table(relationship, criterion, strategy):
    choice = strategy_for(Relationship(relationship), Criterion(criterion))
    made = choice.make(KeyIsFrequency(), seeded())
    assert isinstance(made, strategy)
    assert made.name == choice.strategy
    assert choice.reason


def test_every_relationship_and_criterion_has_a_strategy_of_its_own():
    pairs = itertools.product(Relationship, Criterion)
    assert len({strategy_for(*pair).strategy for pair in pairs}) == 4


def test_unique_keys_make_the_join_many_to_one():
    assert Relationship.of(Relation(unique=True)) == Relationship.MANY_TO_ONE
    assert Relationship.of(Relation(unique=False)) == Relationship.MANY_TO_MANY


# f_R, learnt


def test_a_key_has_as_many_rows_as_its_entry():
    frequencies = LearntFrequencies(10_000)
    teach(frequencies, {7: 3, 8: 0, -1: 12})
    assert asked(frequencies, [8, -1, 7, 7]) == [0, 12, 3, 3]
    teach(frequencies, {7: 4})
    assert asked(frequencies, [7]) == [4]


def test_an_unknown_key_counts_as_the_average_answered_event():
    frequencies = LearntFrequencies(10_000)
    assert asked(frequencies, [1]) == [1]
    teach(frequencies, {7: 4, 8: 0})
    assert asked(frequencies, [1]) == [2]


def test_text_keys_are_learnt_by_their_hash():
    texts = Column.of([b"till", b"web"])
    keys = JoinKeys(hash_text_many(texts.data, texts.bounds), texts)
    rows = MasterRows(keys.take(np.array([1, 1])), Column.of([b"{}", b"{}"]))
    entries = Entries.of(keys, rows)
    frequencies = LearntFrequencies(10_000)
    frequencies.learn(entries.data, entries.bounds[:-1])
    assert frequencies.frequency(keys).tolist() == [0, 2]


@pytest.mark.parametrize("budget", [104, 5_000, 100_000])
def test_learning_stays_within_its_bytes_and_forgets_what_nobody_asks_for(budget):
    frequencies = LearntFrequencies(budget)
    hot = dict.fromkeys(range(4), 50)
    teach(frequencies, hot)
    for batch in range(40):
        assert asked(frequencies, list(hot)) == [50] * 4
        teach(frequencies, {1000 * batch + 100 + key: 1 for key in range(3)})
    assert frequencies.allocated <= budget


def test_too_few_bytes_to_learn_anything_are_refused():
    with pytest.raises(ConfigError, match="give it 104 or more"):
        LearntFrequencies(103)


# f_R, counted beforehand


def test_known_keys_have_their_rows_and_others_the_expected_ones():
    keys = np.array([7, -1, 2**63 - 1], np.int64)
    known = KnownFrequencies(1_000, keys, np.array([3.0, 0.0, 12.0]), expected=0.5)
    assert asked(known, [-1, 7, 8, 2**63 - 1, 0]) == [0, 3, 0.5, 12, 0.5]


def test_nothing_known_makes_all_keys_alike():
    assert asked(KnownFrequencies(0, np.empty(0, np.int64), np.empty(0)), [1, 0, 5]) == [1, 1, 1]


@pytest.mark.parametrize("budget", [24, 100, 5_000, 100_000])
def test_the_first_keys_are_held_within_the_bytes(budget):
    keys = np.random.default_rng(3).permutation(20_000)
    rows = np.arange(20_000, 0, -1).astype(float)
    known = KnownFrequencies(budget, keys, rows, expected=0.0)
    held = most_keys(budget)
    assert known.allocated <= budget
    assert asked(known, keys[:held]) == rows[:held].tolist()
    assert asked(known, keys[held : held + 100]) == [0] * len(keys[held : held + 100])


@pytest.mark.parametrize("name", ["keep-w", "sample-w", "topw", "cluster-sampling"])
def test_a_strategy_can_be_asked_for_by_its_name(name):
    assert strategy_named(name).make(KeyIsFrequency(), seeded()).name == name


def test_of_none_none_is_the_highest():
    assert highest(np.array([3.0, 1.0]), 0).tolist() == [False, False]
    assert highest(np.empty(0), 0).tolist() == []


# The yardstick


FIG_8 = [1, 1, 1, 1, 4, 4, 4, 4]
"""As the paper's Fig. 8 has it: w = 2, c_loop = 4, the frequent ones at the end."""


def test_topw_loses_ten_rows_where_the_best_strategy_stalls_and_loses_four():
    assert loss_through_the_buffer(TopW(KeyIsFrequency()), FIG_8, w=2, c_loop=4) == 10
    assert optimal_loss(FIG_8, w=2, c_loop=4, first_request=4) == 4


def test_a_join_that_is_free_at_the_start_loses_less():
    """[1 1] go at tick 2, [4 4] at tick 6, and the last two wait: two ones are lost."""
    assert optimal_loss(FIG_8, w=2, c_loop=4) == 2


def test_a_join_that_keeps_up_loses_nothing():
    assert optimal_loss([3.0] * 20, w=4, c_loop=4) == 0
    assert optimal_loss([], w=1, c_loop=1) == 0


def test_keep_w_is_as_good_as_the_optimum_if_every_event_has_one_row():
    stream = [1] * 40
    assert loss_through_the_buffer(KeepW(), stream, w=3, c_loop=8) == 25
    assert optimal_loss(stream, w=3, c_loop=8, first_request=8) == 25
