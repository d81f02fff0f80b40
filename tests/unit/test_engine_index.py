import numpy as np
import pytest

from dovetail.join.algorithms import Parameters
from dovetail.join.exchange import Keys, Partition, Read
from tests.unit.engine_kit import engine_for, events_of, read_once, relation_of, rows_each, run_dry


def zipf(events, keys, seed=3):
    weights = 1 / np.arange(1, keys + 1)
    return np.random.default_rng(seed).choice(keys, events, p=weights / weights.sum()).tolist()


def reads_for(algorithm, stream, relation, memory=60_000):
    engine = engine_for(algorithm, relation, memory, parameters=Parameters(pages=1))
    events = events_of(stream)
    at = 0
    while at < len(events):
        at += engine.offer(events.slice(at, len(events))).accepted
        read_once(engine, relation)
    run_dry(engine, relation)
    return engine.figures.reads


def test_the_oldest_keys_partition_answers_everything_pending_that_it_can():
    relation = relation_of(range(40), 10)
    engine = engine_for("hybridjoin", relation)
    engine.offer(events_of([17, 3, 11, 25, 17, 19]))
    request = engine.wants()
    assert isinstance(request, Partition)
    assert request.key.values.tolist() == [17]
    assert sorted(read_once(engine, relation).ids.tolist()) == [0, 2, 4, 5]
    assert engine.wants().key.values.tolist() == [3]


def test_a_key_without_a_row_is_answered_by_the_partition_that_does_not_hold_it():
    relation = relation_of([1, 2, 30, 31], 2)
    engine = engine_for("hybridjoin", relation)
    engine.offer(events_of([15, 99]))
    assert rows_each(read_once(engine, relation)) == [0]
    assert rows_each(read_once(engine, relation)) == [0]


def test_no_partition_is_read_that_answers_nothing():
    relation = relation_of(range(200), 10)
    engine = engine_for("hybridjoin", relation, 30_000)
    events = events_of(zipf(2000, 260))
    at = 0
    while at < len(events) or engine.wants() is not None:
        at += engine.offer(events.slice(at, len(events))).accepted
        assert len(read_once(engine, relation)) > 0


@pytest.mark.parametrize("seed", range(3))
def test_hybridjoin_reads_no_more_than_meshjoin_or_inlj(seed):
    """HYBRIDJOIN theorems 1 and 2, with the same memory for all three."""
    stream, relation = zipf(3000, 300, seed), relation_of(range(300), 10)
    hybrid = reads_for("hybridjoin", stream, relation)
    assert hybrid <= reads_for("meshjoin", stream, relation)
    assert hybrid <= reads_for("inlj", stream, relation)


def test_an_intermittent_stream_is_answered_without_waiting_for_more():
    relation = relation_of(range(40), 10)
    engine = engine_for("hybridjoin", relation)
    for key in (3, 30):
        assert engine.wants() is None
        engine.offer(events_of([key]))
        assert len(read_once(engine, relation)) == 1


def test_a_lookup_asks_for_the_oldest_distinct_keys():
    engine = engine_for("srj", relation_of(range(40)), parameters=Parameters(keys=3))
    engine.offer(events_of([9, 4, 9, 9, 7, 5, 4]))
    request = engine.wants()
    assert isinstance(request, Keys)
    assert request.keys.values.tolist() == [9, 4, 7]


def test_an_event_that_arrives_during_its_keys_lookup_is_answered_by_it():
    relation = relation_of(range(40))
    engine = engine_for("inlj", relation)
    engine.offer(events_of([9, 4]))
    request = engine.wants()
    engine.offer(events_of([9]))
    assert engine.wants() is request, "a request stands until it is fed"
    assert len(engine.feed(relation.read(request))) == 2


def test_nothing_can_be_fed_that_was_not_asked_for():
    relation = relation_of([1])
    engine = engine_for("inlj", relation)
    with pytest.raises(ValueError, match="wants"):
        engine.feed(relation.read(Keys(events_of([1]).keys)))


def test_one_lookup_answers_all_its_keys_also_those_without_rows():
    relation = relation_of(range(10))
    engine = engine_for("srj", relation)
    engine.offer(events_of([3, 70, 71, 4]))
    assert sorted(rows_each(read_once(engine, relation))) == [0, 0, 1, 1]
    assert engine.wants() is None


def test_a_lookup_may_cover_less_than_was_asked():
    relation = relation_of(range(10))
    engine = engine_for("srj", relation)
    engine.offer(events_of([3, 70, 4]))
    first = engine.wants().keys.slice(0, 2)
    answers = engine.feed(Read.whole(relation.read(Keys(first)).rows, covers=2))
    assert sorted(answers.ids.tolist()) == [0, 1]
    assert engine.wants().keys.values.tolist() == [4]
