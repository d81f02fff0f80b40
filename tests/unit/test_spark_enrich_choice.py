from __future__ import annotations

from dovetail.join.cost.factors import TYPICAL
from dovetail.join.phase import Relation
from services.spark.enrich_choice import LOOKUP, SCAN, Choice

LARGE = Relation(pages=100_000)


def test_few_keys_are_looked_up_and_many_scanned_for():
    choice = Choice(TYPICAL)
    assert choice.between(LARGE, 10) == LOOKUP
    assert choice.between(LARGE, 10_000_000) == SCAN


def test_what_the_relation_cannot_do_is_not_chosen():
    choice = Choice(TYPICAL)
    assert choice.between(Relation(pages=100_000, by_key=False), 1) == SCAN
    assert choice.between(Relation(by_page=False), 10_000_000) == LOOKUP


def test_it_learns_what_either_costs_but_not_from_its_first_time():
    choice = Choice(TYPICAL)
    keys = 100_000
    assert choice.between(LARGE, keys) == SCAN
    choice.scanned(LARGE.pages, 1_000.0)
    assert choice.between(LARGE, keys) == SCAN
    for _ in range(10):
        choice.scanned(LARGE.pages, 1_000.0)
    assert choice.between(LARGE, keys) == LOOKUP
    for _ in range(11):
        choice.looked_up(keys, 10_000.0)
    assert choice.between(LARGE, keys) == SCAN


def test_the_first_lookups_are_of_few_keys_and_say_what_many_would_cost():
    choice = Choice(TYPICAL)
    keys = 10_000
    assert choice.between(LARGE, keys) == LOOKUP
    for seconds in (5.0, 0.1, 0.3):
        assert choice.is_to_try(LARGE)
        choice.tried(200, seconds)
    assert not choice.is_to_try(LARGE)
    assert choice.between(LARGE, keys) == SCAN
    assert choice.between(LARGE, 100) == LOOKUP


def test_nothing_is_tried_where_lookups_are_the_only_way():
    assert not Choice(TYPICAL).is_to_try(Relation(by_page=False))
