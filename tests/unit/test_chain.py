import json

import numpy as np
import pytest

from dovetail.join.chain import Batch, Chain, Link, LinkKeys
from dovetail.join.columns import Column, JoinKeys
from dovetail.join.engine import Engine
from dovetail.join.entry import MasterRows
from dovetail.join.exchange import Keys
from dovetail.join.kinds import JoinKind
from dovetail.join.splice import null_row
from dovetail.testing.relation import MemoryRelation


def table(*rows):
    """Master rows: pairs of an int key and the columns that it has."""
    keys = JoinKeys.of_ints(np.array([key for key, _ in rows], np.int64))
    return MemoryRelation(MasterRows(keys, Column.of([as_json(row) for _, row in rows])), 2)


def as_json(value):
    return json.dumps(value, separators=(",", ":")).encode()


def link(relation, key, *nulls, kind=JoinKind.LEFT, algorithm="srj", memory=100_000):
    def keys(events):
        values = [json.loads(event).get(key) for event in events]
        missing = np.array([value is None for value in values], bool)
        return LinkKeys(JoinKeys.of_ints(np.array([v or 0 for v in values], np.int64)), missing)

    no_row = null_row([as_json(name) for name in nulls])
    return Link(Engine(algorithm, relation.facts, memory), kind, keys, no_row)


def batch(*events):
    return Batch(Column.of([as_json(event) for event in events]), np.arange(len(events)) + 100)


class Run:
    """Drives a chain over its relations and keeps what comes out."""

    def __init__(self, chain, *relations):
        self.chain = chain
        self.relations = relations
        self.events, self.ids, self.dropped, self.done = [], [], [], []

    def offer(self, events):
        accepted, made = self.chain.offer(events)
        self.take(made)
        return accepted

    def feed(self, want):
        self.take(self.chain.feed(want.link, self.relations[want.link].read(want.request)))

    def run_dry(self):
        while wants := self.chain.wants():
            for want in wants:
                self.feed(want)

    def take(self, made):
        for part in made.outputs:
            self.events += [json.loads(event) for event in part.data]
            self.ids += part.ids.tolist()
        self.dropped += [(at, part.ids.tolist()) for at, part in made.dropped]
        self.done += made.done.tolist()


PRODUCTS = table((1, {"price": 5, "store": 9}), (2, {"price": 6, "store": None}))
CUSTOMERS = table((7, {"name": "x"}))
STORES = table((9, {"city": "y"}))


def shop(kind=JoinKind.LEFT):
    return Chain(
        [
            link(PRODUCTS, "product", "price", "store", kind=kind, algorithm="ssbj"),
            link(CUSTOMERS, "customer", "name", algorithm="hybridjoin"),
            link(STORES, "store", "city", algorithm="inlj"),
        ]
    )


def test_an_event_is_enriched_by_each_table_and_a_missing_row_does_not_lose_the_others():
    run = Run(shop(), PRODUCTS, CUSTOMERS, STORES)
    events = batch(
        {"product": 1, "customer": 7}, {"product": 3, "customer": 7}, {"product": 2, "customer": 8}
    )
    assert run.offer(events) == 3
    run.run_dry()
    assert sorted(run.events, key=str) == sorted(
        [
            {"product": 1, "customer": 7, "price": 5, "store": 9, "name": "x", "city": "y"},
            {"product": 3, "customer": 7, "price": None, "store": None, "name": "x", "city": None},
            {"product": 2, "customer": 8, "price": 6, "store": None, "name": None, "city": None},
        ],
        key=str,
    )
    assert sorted(run.ids) == sorted(run.done) == [100, 101, 102]
    assert run.dropped == []


def test_an_event_without_a_key_is_passed_on_by_left_and_dropped_by_inner_without_a_read():
    run = Run(shop(), PRODUCTS, CUSTOMERS, STORES)
    run.offer(batch({"product": None, "customer": None}))
    assert run.events[0]["city"] is None
    assert run.done == [100]
    assert run.chain.wants() == []

    run = Run(shop(JoinKind.INNER), PRODUCTS, CUSTOMERS, STORES)
    run.offer(batch({"product": None, "customer": 7}))
    assert (run.events, run.dropped, run.done) == ([], [(0, [100])], [100])


def test_a_key_may_come_from_an_earlier_tables_row():
    run = Run(shop(), PRODUCTS, CUSTOMERS, STORES)
    run.offer(batch({"product": 1}))
    run.run_dry()
    asked = [request for request in STORES.reads if isinstance(request, Keys)]
    assert asked[-1].keys.values.tolist() == [9]


def test_an_event_with_several_rows_is_done_when_the_last_of_them_is_out():
    several = table((1, {"store": 9}), (1, {"store": 8}), (1, {"store": None}))
    run = Run(
        Chain(
            [
                link(several, "product", "store"),
                link(STORES, "store", kind=JoinKind.INNER, algorithm="inlj"),
            ]
        ),
        several,
        STORES,
    )
    run.offer(batch({"product": 1}))
    run.feed(run.chain.wants()[0])
    assert run.dropped == [(1, [100])], "the one without a store"
    assert run.done == []
    run.run_dry()
    assert run.ids == [100]
    assert run.dropped == [(1, [100]), (1, [100])]
    assert run.done == [100]


def fan_out():
    """A first link that makes 40 events of one, and a second that has room for a few."""
    many = table(*[(1, {"store": n, "padding": "p" * 200}) for n in range(40)])
    stores = table(*[(n, {"city": n}) for n in range(40)])
    chain = Chain(
        [
            link(many, "product", "store", "padding", algorithm="hybridjoin", memory=60_000),
            link(stores, "store", "city", memory=9_000, algorithm="inlj"),
        ]
    )
    return Run(chain, many, stores)


def test_a_backlog_holds_up_the_links_before_it_to_the_start():
    run = fan_out()
    assert run.offer(batch({"product": 1}, {"product": 2})) == 2
    run.feed(run.chain.wants()[0])
    assert 0 < run.chain.backlog < 40
    assert run.chain.backlog_bytes > run.chain.backlog * 200
    assert [want.link for want in run.chain.wants()] == [1], "the first link is not read for"
    assert run.offer(batch({"product": 3})) == 0
    run.run_dry()
    assert sorted(event["city"] for event in run.events if event["product"] == 1) == list(range(40))
    assert run.chain.backlog == 0
    assert run.offer(batch({"product": 3})) == 1


def test_a_link_is_fed_only_what_it_asked_for_and_once():
    run = fan_out()
    run.offer(batch({"product": 1}))
    want = run.chain.wants()[0]
    read = run.relations[0].read(want.request)
    with pytest.raises(ValueError, match="link 1 asked for nothing"):
        run.chain.feed(1, read)
    run.chain.feed(0, read)
    with pytest.raises(ValueError, match="link 0 asked for nothing"):
        run.chain.feed(0, read)


def test_the_first_link_lets_in_the_first_events_and_those_without_a_key_among_them():
    relation = table((1, {"a": 1}))
    chain = Chain([link(relation, "product", "a", memory=9_000)])
    run = Run(chain, relation)
    events = batch(*[{"product": n if n % 2 else None, "padding": "p" * 100} for n in range(200)])
    accepted = run.offer(events)
    assert 0 < accepted < 200
    assert accepted % 2 == 1, "it ends at an event that has a key"
    assert len(run.ids) == (accepted + 1) // 2, "those without one are out at once"
    assert chain.offer(events.slice(0, 0)).accepted == 0


def test_a_link_is_not_offered_more_while_the_one_behind_it_has_a_backlog():
    products = table((1, {"brand": 1}), (2, {"brand": 2}))
    brands = table(*[(1, {"store": n, "padding": "p" * 200}) for n in range(40)], (2, {"store": 9}))
    stores = table(*[(n, {"city": n}) for n in range(40)])
    chain = Chain(
        [
            link(products, "product", "brand", algorithm="inlj"),
            link(brands, "brand", "store", "padding", algorithm="inlj", memory=60_000),
            link(stores, "store", "city", algorithm="inlj", memory=9_000),
        ]
    )
    run = Run(chain, products, brands, stores)
    run.offer(batch({"product": 1}))
    run.feed(chain.wants()[0])
    run.offer(batch({"product": 2}))
    second, first = chain.wants()
    assert (second.link, first.link) == (1, 0)
    run.feed(second)
    backlog = chain.backlog
    assert backlog > 0
    run.feed(first)
    assert chain.backlog == backlog + 1
    run.run_dry()
    assert len(run.events) == 41
