import itertools
from dataclasses import replace

import numpy as np
import pytest

from dovetail.errors import ConfigError, MasterDataError, TooManyRowsError
from dovetail.join.algorithms import Parameters
from dovetail.join.engine import Engine
from dovetail.join.exchange import Pages
from dovetail.join.pool import LONGS
from dovetail.join.records import START
from tests.unit.engine_kit import engine_for, events_of, read_once, relation_of, rows_each, run_dry


def queue(engine):
    """The pending keys, the oldest first, each with the page at which it started."""
    pending = engine.held.pending
    records = pending.oldest(pending.keys)
    pages = engine.held.pool.longs[records * LONGS + START] % engine.relation.pages
    return list(zip(pending.keys_of(records).values.tolist(), pages.tolist(), strict=True))


def test_the_worked_example_of_ameshjoin_step_by_step():
    """MESHJOIN example 3.1: three pages, w = 1, and b goes from 1 to 2 for the third step."""
    relation = relation_of([0, 1, 2])
    engine = engine_for("ameshjoin", relation, parameters=Parameters(pages=1, events=1))

    assert engine.offer(events_of([0, 1])).accepted == 1
    assert engine.wants() == Pages(0, 1, 3)
    assert len(read_once(engine, relation)) == 0
    assert queue(engine) == [(0, 0)]

    assert engine.offer(events_of([1, 2])).accepted == 1
    assert engine.wants() == Pages(1, 1, 3)
    assert len(read_once(engine, relation)) == 0
    assert queue(engine) == [(0, 0), (1, 1)]

    engine.phase.tune(2, 1)
    assert engine.offer(events_of([2])).accepted == 1
    request = engine.wants()
    assert request == Pages(2, 2, 3)
    assert (request.numbers(), request.runs()) == ([2, 0], [(2, 3), (0, 1)])
    answers = read_once(engine, relation)
    assert rows_each(answers) == [1, 1], "s0 left before page 0 came again, else it had two rows"
    assert queue(engine) == [(2, 2)]
    assert engine.phase.next_page == 1


def test_the_tuner_sets_b_and_w_before_every_step():
    relation = relation_of(range(12))
    plan = {2: (3, 4), 6: (1, 1)}
    tuned = Parameters(pages=1, events=2, tuner=lambda pending: plan[pending])
    engine = engine_for("ameshjoin", relation, parameters=tuned)
    keys = events_of([90, 91, 92, 93, 94, 95, 96, 97])
    assert engine.offer(keys).accepted == 2
    assert engine.wants() == Pages(0, 3, 12)
    read_once(engine, relation)
    assert engine.offer(keys.slice(2, 8)).accepted == 4
    assert engine.wants() == Pages(3, 1, 12)


def test_an_event_stays_until_its_key_has_seen_all_of_r():
    relation = relation_of([7, 7, 1, 7], rows_a_page=1)
    engine = engine_for("meshjoin", relation, parameters=Parameters(pages=1))
    engine.offer(events_of([7]))
    for _ in range(3):
        assert len(read_once(engine, relation)) == 0
    assert rows_each(read_once(engine, relation)) == [3]


def test_a_later_event_shares_what_its_key_has_seen_and_leaves_with_it():
    relation = relation_of([7, 1, 7, 2])
    engine = engine_for("meshjoin", relation, parameters=Parameters(pages=1))
    engine.offer(events_of([7, 2]))
    for _ in range(3):
        read_once(engine, relation)
    engine.offer(events_of([7]))
    assert sorted(rows_each(read_once(engine, relation))) == [1, 2, 2]
    assert engine.wants() is None


def test_of_unique_keys_an_event_leaves_at_its_match():
    relation = relation_of([5, 6, 7], unique=True)
    engine = engine_for("meshjoin", relation, parameters=Parameters(pages=1))
    engine.offer(events_of([6, 6, 9]))
    assert len(read_once(engine, relation)) == 0
    assert rows_each(read_once(engine, relation)) == [1, 1]
    assert rows_each(read_once(engine, relation)) == [0], "9 has seen all of R: it has no row"


def test_no_step_lets_in_more_than_w_events():
    relation = relation_of(range(10))
    engine = engine_for("meshjoin", relation, parameters=Parameters(pages=1, events=3))
    assert engine.offer(events_of(range(10))).accepted == 3
    assert engine.offer(events_of(range(3, 10))).accepted == 0
    read_once(engine, relation)
    assert engine.offer(events_of(range(3, 10))).accepted == 3


def test_whoever_is_dismissed_leaves_his_place_to_the_next():
    relation = replace(relation_of(range(10)).facts, in_parts=True)
    engine = Engine("meshjoin", relation, 200_000, parameters=Parameters(events=1))
    assert engine.offer(events_of([1])).accepted == 1
    engine.wants()
    row = relation_of([1], size=100_000).read(Pages(0, 1, 1))
    with pytest.raises(TooManyRowsError):
        engine.feed(row)
    assert len(engine.dismiss().ids) == 1
    assert engine.offer(events_of([2, 3])).accepted == 1


def test_a_full_pool_is_backpressure_and_everything_comes_in_the_end():
    relation = relation_of(range(100), 5)
    engine = engine_for("meshjoin", relation, memory=20_000)
    events = events_of(list(range(100)) * 3)
    at, done = 0, 0
    refused = False
    while done < len(events):
        accepted = engine.offer(events.slice(at, len(events))).accepted
        refused = refused or accepted < len(events) - at
        at += accepted
        done += len(read_once(engine, relation))
    assert refused


@pytest.mark.parametrize("seed", range(5))
def test_the_newest_keys_start_over_when_the_rows_do_not_fit_and_the_oldest_does_not(seed):
    keys = np.random.default_rng(seed).permutation(np.repeat(range(40), 12)).tolist()
    relation = relation_of(keys, 4, size=200)
    engine = engine_for("meshjoin", relation, memory=40_000)
    engine.phase._rows_a_key = 0.0
    assert engine.offer(events_of(range(40), size=30)).accepted == 40
    rows = dict.fromkeys(range(40))
    for step in itertools.count(1):
        answers = read_once(engine, relation)
        rows |= zip(answers.ids.tolist(), rows_each(answers), strict=True)
        if step * engine.phase.pages >= relation.facts.pages:
            break
    assert rows[0] == 12, "the oldest is done after one cycle"
    assert None in rows.values(), "and others are not, or this tests nothing"
    while engine.pending:
        answers = read_once(engine, relation)
        rows |= zip(answers.ids.tolist(), rows_each(answers), strict=True)
    assert set(rows.values()) == {12}


def drive(engine, relation, events):
    """Let all events in, whenever there is room; return m of each."""
    at, rows = 0, {}
    while at < len(events) or engine.pending:
        offered = engine.offer(events.slice(at, len(events)))
        at += offered.accepted
        read = [read_once(engine, relation)] if engine.pending else []
        for answers in [offered.answers, *read]:
            rows |= zip(answers.ids.tolist(), rows_each(answers), strict=True)
    return rows


@pytest.mark.parametrize("algorithm", ["meshjoin", "ssbj"])
def test_the_rows_of_few_keys_find_room_beside_the_events_of_many(algorithm):
    relation = relation_of(range(0, 2000, 20), 5, size=20)
    engine = engine_for(algorithm, relation, memory=40_100)  # 374 blocks: two a key fill them
    engine.phase._rows_a_key = 0.1
    keys = np.random.default_rng(0).permutation(2000)
    expected = {i: int(key % 20 == 0) for i, key in enumerate(keys)}
    assert drive(engine, relation, events_of(keys.tolist(), size=20)) == expected


def test_the_rows_of_a_key_find_room_beside_its_own_events():
    relation = relation_of([7] * 10 + [8] * 10, 4)
    engine = engine_for("meshjoin", relation, memory=40_000)
    expected = dict.fromkeys(range(1000), 10)
    assert drive(engine, relation, events_of([7] * 1000)) == expected


@pytest.mark.parametrize("algorithm", ["meshjoin", "cmeshjoin"])
def test_a_key_whose_rows_find_no_room_starts_over_when_others_have_left(algorithm):
    """Its 30 rows take 102 blocks of 375, and 23 are kept for rows."""
    relation = relation_of([0] * 30 + [1, 2, 3], 4, size=200)
    engine = engine_for(algorithm, relation, memory=40_000)
    keys = [0, *(1 + i % 5 for i in range(600))]
    events = events_of(keys, size=30)
    let_in = engine.offer(events).accepted
    assert let_in < len(events)
    answered = []
    while engine.pending:
        answered += read_once(engine, relation).ids.tolist()
        if engine.held.draining and engine.pending:
            assert engine.offer(events.slice(let_in, len(events))).accepted == 0
    assert answered[-1] == 0, "the others left before it"
    assert sorted(answered) == list(range(let_in))
    rows = drive(engine_for(algorithm, relation, memory=40_000), relation, events)
    assert rows == {i: [30, 1, 1, 1, 0, 0][key] for i, key in enumerate(keys)}


def test_of_keys_that_do_not_fit_together_one_is_let_go_and_the_other_answered():
    relation = relation_of([0, 1] * 40, 4, size=200)
    engine = engine_for("meshjoin", relation, memory=40_000)
    engine.phase._rows_a_key = 0.0
    # 137 blocks of rows for each key, beside 260 of events.
    assert engine.offer(events_of([0, 1] * 65, size=60)).accepted == 130
    with pytest.raises(TooManyRowsError):
        run_dry(engine, relation)
    gone = engine.dismiss().ids.tolist()
    assert len({name % 2 for name in gone}) == 1
    assert sorted(gone + run_dry(engine, relation)) == list(range(130))


def test_rows_of_one_key_that_can_never_fit_are_an_error_that_names_the_key():
    relation = relation_of([4711] * 200, 4, size=200)
    engine = engine_for("meshjoin", relation, memory=30_000)
    engine.offer(events_of([4711]))
    with pytest.raises(MasterDataError, match="4711"):
        run_dry(engine, relation)


def test_a_page_that_does_not_fit_into_the_disk_buffer_is_an_error():
    with pytest.raises(ConfigError, match="disk buffer"):
        engine_for("meshjoin", relation_of(range(100), 100), memory=30_000)


def test_a_read_that_does_not_fit_into_the_disk_buffer_is_an_error():
    relation = relation_of([1] * 100)
    engine = engine_for("srj", relation, memory=30_000)
    engine.offer(events_of([1]))
    with pytest.raises(MasterDataError, match="disk buffer"):
        read_once(engine, relation)


def test_an_event_that_can_never_fit_is_an_error():
    engine = engine_for("inlj", relation_of([1]), memory=10_000)
    with pytest.raises(ConfigError, match="20000 bytes"):
        engine.offer(events_of([1], size=20_000))


def test_twice_the_relation_is_twice_the_reads_of_a_cycle():
    reads = []
    for size in (50, 100):
        relation = relation_of(range(size), 5)
        engine = engine_for("meshjoin", relation, parameters=Parameters(pages=1))
        engine.offer(events_of([3]))
        run_dry(engine, relation)
        reads.append(engine.figures.reads)
    assert reads[1] == 2 * reads[0]
