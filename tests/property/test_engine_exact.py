"""Every algorithm gives what SQL gives: all of it, once, within the budget."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dovetail.join.algorithms import ALGORITHMS, Parameters
from dovetail.join.engine import Engine, fed
from dovetail.join.in_order import InOrder
from dovetail.join.kinds import JoinKind
from dovetail.join.pending import UNBOUNDED
from dovetail.join.scan import Scan
from dovetail.join.seeds import SEEDS
from tests.property.engine_cases import Case, Outputs, cases, colliding_keys, int_keys

MODEST = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
SMALL, DISK_BUFFER = 16_000, 12_000


def bytes_really_allocated(engine):
    pool = engine.held.pool
    owners = [a if a.base is None else a.base for a in pool if a is not SEEDS]
    return sum({id(array): array.nbytes for array in owners}.values())


def drive(engine, relation, case, steps, *, between=lambda _: None, feed_often=True):
    """Offer batches of the sizes given, over and over, with reads in between."""
    engine._slice = [1, 200, 1 << 20][len(steps) % 3]
    out = Outputs()
    events = case.events()
    at = step = 0
    while at < len(events) or engine.wants() is not None:
        size = steps[step % len(steps)]
        step += 1
        offered = engine.offer(events.slice(at, min(at + size, len(events))))
        at += offered.accepted
        out.take(offered.answers)
        assert bytes_really_allocated(engine) + engine.disk_buffer <= engine.budget
        between(step)
        request = engine.wants()
        if request is not None and (feed_often or not offered.accepted or step % 2):
            read = relation.read(request)
            assert read.nbytes <= engine.disk_buffer
            for answers in fed(engine, read):
                out.take(answers)
        assert engine.pending == at - len(out.ids)
    return out


def check(out, case):
    assert sorted(out.ids) == case.events().ids.tolist()
    for kind in JoinKind:
        assert out.sorted(kind) == case.expected(kind), kind


steps = st.lists(st.integers(0, 50), min_size=1, max_size=6).filter(any)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@MODEST
@given(case=cases(), steps=steps, pages=st.integers(0, 5), window=st.integers(1, 40))
def test_an_algorithm_gives_what_sql_gives(algorithm, case, steps, pages, window):
    relation = case.relation()
    given = Parameters(pages=pages, events=window, keys=1 + window // 4)
    engine = Engine(
        algorithm,
        relation.facts,
        SMALL + DISK_BUFFER,
        parameters=given,
        disk_buffer=DISK_BUFFER,
    )
    check(drive(engine, relation, case, steps), case)
    assert engine.wants() is None, "an idle stream causes no reads"
    assert engine.held.pending_blocks == engine.held.collected_blocks == 0, "nothing leaks"
    engine.held.cached.shrink(0)
    assert engine.held.free == engine.held.blocks


@MODEST
@given(
    case=cases(),
    steps=steps,
    tunings=st.lists(st.tuples(st.integers(1, 9), st.integers(1, 30)), min_size=1),
)
def test_b_and_w_may_change_before_every_step(case, steps, tunings):
    relation = case.relation()
    engine = Engine("ameshjoin", relation.facts, SMALL + DISK_BUFFER, disk_buffer=DISK_BUFFER)

    def retune(step):
        assert isinstance(engine.phase, Scan)
        engine.phase.tune(*tunings[step % len(tunings)])

    check(drive(engine, relation, case, steps, between=retune), case)


@MODEST
@given(
    case=cases(),
    steps=steps,
    switches=st.lists(st.sampled_from([None, None, *ALGORITHMS]), min_size=1, max_size=12),
)
def test_the_algorithm_may_change_at_any_step(case, steps, switches):
    relation = case.relation()
    engine = Engine("ssbj", relation.facts, SMALL + DISK_BUFFER, disk_buffer=DISK_BUFFER)

    def switch(step):
        name = switches[step] if step < len(switches) else None
        if name:
            engine.switch(name)

    check(drive(engine, relation, case, steps, between=switch, feed_often=False), case)


@pytest.mark.parametrize("algorithm", ["srj", "ssbj", "cachejoin", "meshjoin"])
@MODEST
@given(case=cases(), steps=steps, distance=st.integers(0, 20))
def test_no_answer_is_further_from_its_place_than_the_order_constraint(
    algorithm, case, steps, distance
):
    relation = case.relation()
    engine = Engine(
        algorithm,
        relation.facts,
        SMALL + DISK_BUFFER,
        disk_buffer=DISK_BUFFER,
        distance=distance,
    )
    out = drive(engine, relation, case, steps)
    check(out, case)
    places = (np.array(out.ids) + 5) // 3
    assert np.abs(places - np.arange(len(places))).max() <= distance


@MODEST
@given(case=cases(most_events=60), steps=steps)
def test_a_pool_that_is_too_full_for_the_rows_sets_keys_back_and_loses_none(case, steps):
    """The smallest pool there is: the collected rows of a few keys fill them."""
    relation = case.relation()
    engine = Engine("meshjoin", relation.facts, 5_400 + DISK_BUFFER, disk_buffer=DISK_BUFFER)
    engine.phase._rows_a_key = 0.0
    check(drive(engine, relation, case, steps), case)


@pytest.mark.parametrize("algorithm", ["meshjoin", "cmeshjoin", "ssbj"])
@MODEST
@given(seed=st.integers(0, 1 << 30), steps=steps, distance=st.sampled_from([UNBOUNDED, 10, 60]))
def test_a_key_whose_rows_fill_half_a_pool_is_answered_when_others_have_left(
    algorithm, seed, steps, distance
):
    chance = np.random.default_rng(seed)
    counts = chance.choice([0, 1, 5, 40, 90, 120], 5)
    master = chance.permutation(np.repeat(np.arange(5), counts)).tolist()
    stream = chance.integers(0, 6, 100).tolist()
    case = Case(master, stream, int_keys, unique=False, rows_a_page=10, padding=30)
    relation = case.relation()
    memory = 9_000 + DISK_BUFFER
    engine = Engine(algorithm, relation.facts, memory, disk_buffer=DISK_BUFFER, distance=distance)
    out = drive(engine, relation, case, steps)
    check(out, case)
    if distance != UNBOUNDED:
        places = (np.array(out.ids) + 5) // 3
        assert np.abs(places - np.arange(len(places))).max() <= distance


@pytest.mark.parametrize("algorithm", ["srj", "ssbj", "hybridjoin", "cmeshjoin"])
@MODEST
@given(case=cases(), steps=steps, room=st.sampled_from([1, 600, 5_000, 1 << 20]))
def test_answers_can_be_had_in_the_order_of_the_stream(algorithm, case, steps, room):
    relation = case.relation()
    memory = SMALL + DISK_BUFFER
    engine = Engine(algorithm, relation.facts, memory, disk_buffer=DISK_BUFFER)
    ordered = InOrder(engine, room)
    out = Outputs()
    events = case.events()
    at = step = 0
    while at < len(events) or ordered.wants() is not None:
        size = steps[step % len(steps)]
        step += 1
        offered = ordered.offer(events.slice(at, min(at + size, len(events))))
        at += offered.accepted
        out.take(offered.answers)
        while ordered.answering:
            out.take(ordered.more())
        request = ordered.wants()
        if request is not None:
            for answers in fed(ordered, relation.read(request)):
                out.take(answers)
        assert ordered.nbytes <= room
    assert out.ids == events.ids.tolist()
    assert ordered.nbytes == 0
    check(out, case)


updates = st.lists(
    st.tuples(st.integers(0, 60), st.sampled_from([0, 0, 0, 1, 20])), min_size=1, max_size=8
)


def updated(master, moved, added):
    """R after updates: its rows lie elsewhere, and some have gone or come."""
    moved %= len(master) + 1
    return [*master[moved:], *master[:moved], *range(added)][added // 2 :]


class Judge:
    """Knows every R that there was, and holds answers against them."""

    def __init__(self, case, masters):
        self._case = case
        self._masters = masters
        self.answered = []

    def judge(self, answers, possible):
        """Each event has all rows that its key had in one of the possible ones, and no others."""
        out = Outputs()
        out.take(answers)
        events = [(name + 5) // 3 for name in answers.ids.tolist()]
        self.answered += events
        found = {event: [] for event in events}
        for event, row in out.pairs[JoinKind.LEFT]:
            found[event] += [] if row is None else [row]
        for event, rows in found.items():
            assert sorted(rows) in [self._rows_of(event, number) for number in possible]

    def _rows_of(self, event, number):
        wanted = self._case.stream[event]
        return [1000 * number + i for i, key in enumerate(self._masters[number]) if key == wanted]


def drive_over_updates(algorithm, case, masters, steps, pages, exchanges):
    """A read answers with R as it is now and never with a mixture; a hit, with R as it once was."""
    relations = [case.version(master, number) for number, master in enumerate(masters)]
    engine = Engine(
        algorithm,
        relations[0].facts,
        SMALL + DISK_BUFFER,
        parameters=Parameters(pages=pages, keys=7),
        disk_buffer=DISK_BUFFER,
    )
    events = case.events()
    judge = Judge(case, masters)
    now = at = step = 0
    while at < len(events) or engine.wants() is not None:
        offered = engine.offer(events.slice(at, min(at + steps[step % len(steps)], len(events))))
        at += offered.accepted
        judge.judge(offered.answers, range(now + 1))
        if exchanges[step % len(exchanges)] and now + 1 < len(relations):
            now += 1
            engine.renew(relations[now].facts)
        request = engine.wants()
        if request is not None:
            for answers in fed(engine, relations[now].read(request)):
                judge.judge(answers, [now])
        assert bytes_really_allocated(engine) + engine.disk_buffer <= engine.budget
        step += 1
    assert sorted(judge.answered) == list(range(len(events)))
    assert engine.held.pending_blocks == engine.held.collected_blocks == 0


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@MODEST
@given(
    case=cases(),
    updates=updates,
    steps=steps,
    pages=st.integers(0, 3),
    exchanges=st.lists(st.booleans(), min_size=1, max_size=20),
)
def test_r_may_become_another_at_any_step(algorithm, case, updates, steps, pages, exchanges):
    masters = [case.master]
    for update in updates:
        masters.append(updated(masters[-1], *update))
    drive_over_updates(algorithm, case, masters, steps, pages, exchanges)


@pytest.mark.parametrize("unique", [True, False])
@pytest.mark.parametrize("seed", range(10))
def test_rows_that_move_in_mid_cycle_are_met_once(seed, unique):
    """A cycle of many steps, and as many rows: whatever a key has seen of the last R shows."""
    chance = np.random.default_rng(seed)
    case = Case(
        master=(chance.permutation(40) if unique else chance.integers(0, 20, 60)).tolist(),
        stream=chance.integers(0, 45 if unique else 22, 200).tolist(),
        make_keys=int_keys,
        unique=unique,
        rows_a_page=2,
        padding=0,
    )
    masters = [case.master]
    for moved in chance.integers(0, 60, 12).tolist():
        masters.append(updated(masters[-1], moved, 0))
    exchanges = (chance.random(100) < 0.1).tolist()
    for algorithm in ("meshjoin", "cmeshjoin", "ssbj"):
        drive_over_updates(algorithm, case, masters, [3, 0, 1], 2, exchanges)


@pytest.mark.parametrize("seed", range(40))
def test_a_key_sees_every_page_once_even_if_it_is_done_in_the_middle_of_a_step(seed):
    """Pages of one row, and a step that reads several: ends and starts fall within steps."""
    chance = np.random.default_rng(seed)
    case = Case(
        master=chance.integers(0, 8, 23).tolist(),
        stream=chance.integers(0, 9, 80).tolist(),
        make_keys=int_keys,
        unique=False,
        rows_a_page=1,
        padding=0,
    )
    relation = case.relation()
    engine = Engine("ameshjoin", relation.facts, SMALL + DISK_BUFFER, disk_buffer=DISK_BUFFER)

    def retune(_):
        engine.phase.tune(int(chance.integers(1, 8)), 5)

    check(drive(engine, relation, case, [1, 3, 0, 2], between=retune), case)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("make_keys", [int_keys, colliding_keys])
def test_a_longer_skewed_stream_through_a_nearly_full_pool(algorithm, make_keys):
    """Hundreds of keys enter and leave in all orders, so that the table is never at rest."""
    chance = np.random.default_rng(11)
    for unique in (True, False):
        names = np.minimum(chance.zipf(1.2, 900) - 1, 250)
        master = chance.permutation(220) if unique else chance.integers(0, 230, 400)
        case = Case(
            master=master.tolist(),
            stream=names.tolist(),
            make_keys=make_keys,
            unique=unique,
            rows_a_page=7,
            padding=20,
        )
        relation = case.relation()
        given = Parameters(pages=3, keys=20)
        engine = Engine(
            algorithm,
            relation.facts,
            SMALL + DISK_BUFFER,
            parameters=given,
            disk_buffer=DISK_BUFFER,
        )
        check(drive(engine, relation, case, [200]), case)
