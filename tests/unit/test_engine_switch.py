import itertools

import pytest

from dovetail.errors import ConfigError
from dovetail.join.algorithms import ALGORITHMS, Parameters
from dovetail.join.exchange import Pages
from tests.unit.engine_kit import engine_for, events_of, read_once, relation_of, rows_each

ONE_PAGE = Parameters(pages=1)


@pytest.mark.parametrize("reads", [1, 3, 5])
@pytest.mark.parametrize(("before", "after"), list(itertools.product(ALGORITHMS, ALGORITHMS)))
def test_a_switch_at_any_step_loses_no_row_and_repeats_none(before, after, reads):
    """Key 7 has a row on every page, so that any page seen twice or not at all shows."""
    relation = relation_of([7, 1] * 6, 2)
    engine = engine_for(before, relation, parameters=ONE_PAGE)
    rows = {}

    def keep(answers):
        rows.update(zip(answers.ids.tolist(), rows_each(answers), strict=True))

    keep(engine.offer(events_of([7, 99, 1])).answers)
    for _ in range(reads):
        if engine.wants() is not None:
            keep(read_once(engine, relation))
    engine.wants()
    engine.switch(after)
    while engine.wants() is not None:
        keep(read_once(engine, relation))
    assert rows == {0: 6, 1: 0, 2: 6}


def test_what_is_cached_stays_and_a_request_under_way_is_asked_anew():
    relation = relation_of(range(40), 10)
    engine = engine_for("srj", relation)
    engine.offer(events_of([1, 2]))
    read_once(engine, relation)
    engine.offer(events_of([3]))
    looked_up = engine.wants()
    engine.switch("ssbj")
    assert engine.wants() != looked_up
    assert len(engine.offer(events_of([1, 2])).answers) == 2


def test_cycles_go_on_counting():
    relation = relation_of(range(40), 10)
    engine = engine_for("meshjoin", relation, parameters=ONE_PAGE)
    for _ in range(8):
        engine.offer(events_of([50]))
        read_once(engine, relation)
    assert engine.cycle == 2
    engine.switch("cmeshjoin")
    assert engine.cycle == 2


def test_a_renewed_r_is_read_from_its_start_and_what_was_learnt_stays():
    engine = engine_for("meshjoin", relation_of([7, 1] * 6, 2), parameters=ONE_PAGE)
    engine.phase.tune(2, 5)
    small, large = relation_of([1] * 6, 2), relation_of([7, 1] * 20, 2)
    engine.offer(events_of([7]))
    read_once(engine, relation_of([7, 1] * 6, 2))
    for relation, pages in ((small, 3), (large, 20)):
        engine.renew(relation.facts)
        assert engine.wants() == Pages(0, 2, pages)
        assert engine.phase.events == 5
    rows = []
    while engine.wants() is not None:
        rows += rows_each(read_once(engine, large))
    assert rows == [20], "none of the rows that it had collected before"
    assert engine.cycle == 1


def test_a_page_that_no_longer_fits_is_said_with_the_cure():
    engine = engine_for("meshjoin", relation_of([1, 2]), 10_000)
    with pytest.raises(ConfigError, match="give the join more memory"):
        engine.renew(relation_of(range(100), 100).facts)
