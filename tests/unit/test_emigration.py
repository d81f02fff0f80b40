"""An engine whose cache is elsewhere: who is chosen to go there."""

import pytest

from dovetail.join.emigration import Emigration
from dovetail.join.engine import Engine
from dovetail.join.entry import Entries
from tests.unit.engine_kit import events_of, relation_of, run_dry

WITHOUT_CACHE = ("inlj", "meshjoin", "ameshjoin", "hybridjoin")
WITH_CACHE = ("cmeshjoin", "cachejoin", "pcsrj", "ssbj", "ssbj-index", "srj")


class Shop:
    def __init__(self, algorithm, *, rule=None, rows=range(100)):
        self.relation = relation_of(list(rows), 10)
        self.policy = Emigration(rule or algorithm)
        self.engine = Engine(algorithm, self.relation.facts, 200_000, policy=self.policy)

    def ask(self, *keys):
        self.engine.offer(events_of(keys))
        run_dry(self.engine, self.relation)
        return self.policy.collected()


@pytest.mark.parametrize("algorithm", WITHOUT_CACHE)
def test_without_a_cache_nobody_goes(algorithm):
    assert len(Shop(algorithm).ask(*[1] * 50, 2, 3)) == 0


@pytest.mark.parametrize("algorithm", WITH_CACHE)
def test_whoever_is_asked_for_often_goes_with_all_its_rows_and_how_often(algorithm):
    shop = Shop(algorithm, rows=[1, 1, *range(2, 100)])
    gone = shop.ask(*[1] * 20, 2)
    assert gone.keys.values.tolist() == [1]
    assert gone.entries.rows_each().tolist() == [2]
    assert gone.events.tolist() == [20]
    assert gone.cycle == shop.engine.cycle


@pytest.mark.parametrize("algorithm", WITH_CACHE)
def test_nothing_stays_in_the_engines_own_memory(algorithm):
    shop = Shop(algorithm)
    shop.ask(*[1, 2, 3] * 20)
    assert len(shop.engine.held.cached) == 0
    assert shop.engine.held.free == shop.engine.held.blocks
    shop.engine.warm(Entries.of(events_of([5]).keys, shop.relation._rows))
    assert len(shop.engine.held.cached) == 0


@pytest.mark.parametrize("rule", ["srj", "auto"])
def test_who_was_looked_up_twice_goes_whether_at_once_or_one_after_the_other(rule):
    shop = Shop("srj", rule=rule)
    assert shop.ask(1, 2, 2).keys.values.tolist() == [2]
    assert shop.ask(1, 3).keys.values.tolist() == [1]


def test_a_threshold_asks_for_two_events_at_the_same_time():
    shop = Shop("cachejoin")
    assert shop.ask(1, 2, 2).keys.values.tolist() == [2]
    assert len(shop.ask(1, 3)) == 0


def test_the_inequality_asks_for_more_events_of_a_key_with_more_rows():
    shop = Shop("ssbj", rows=[*[1] * 20, *range(2, 100)])
    assert shop.ask(*[1] * 8, *[2] * 8).keys.values.tolist() == [2]
    assert shop.ask(*[1] * 60).keys.values.tolist() == [1]


def test_who_was_collected_is_not_collected_again():
    shop = Shop("ssbj")
    assert len(shop.ask(*[1] * 20)) == 1
    nobody = shop.policy.collected()
    assert (len(nobody), len(nobody.entries), len(nobody.events)) == (0, 0, 0)


def test_of_several_feeds_all_are_collected_in_their_order():
    shop = Shop("ssbj-index")
    for key in (11, 55, 93):
        shop.engine.offer(events_of([key] * 20))
        run_dry(shop.engine, shop.relation)
    gone = shop.policy.collected()
    assert gone.keys.values.tolist() == [11, 55, 93]
    assert gone.entries.keys().values.tolist() == [11, 55, 93]


def test_the_rule_stays_when_the_engine_goes_on_with_another_algorithm():
    shop = Shop("hybridjoin", rule="auto")
    for other, algorithm in enumerate(("ssbj", "srj", "meshjoin"), start=2):
        shop.engine.switch(algorithm)
        assert shop.engine.policy is shop.policy
        assert shop.ask(*[1] * 20, other).keys.values.tolist() == [1]


def test_what_was_seen_lately_is_remembered_within_the_memory_given():
    assert 2500 < Emigration("srj", memory=5000).allocated <= 5000
    assert 2500 < Emigration("auto", memory=5000).allocated <= 5000
    assert Emigration("ssbj").allocated == 0
