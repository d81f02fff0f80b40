from __future__ import annotations

import json

import numpy as np
import pytest

from dovetail.demo.events import Kind, SalesEvents
from dovetail.demo.popularity import product_ids
from dovetail.errors import ConfigError

NOON = 1_767_268_800_000


def batch_of(count, **settings):
    return SalesEvents(**{"keys": 10_000, **settings}).batch(1, np.full(count, NOON))


def test_the_bytes_of_a_seed_never_change():
    values = batch_of(3, seed=1).values()
    assert values[0] == (
        b'{"sale_id":1,"product_id":6836,"customer_id":49240,"quantity":5,"amount":1902.20,'
        b'"channel":"till","sold_at":"2026-01-01T12:00:00.000Z"}'
    )


def test_every_kind_of_bad_event_occurs():
    kinds = np.bincount(batch_of(20_000, bad=0.5).kinds, minlength=len(Kind))
    assert kinds.min() > 0


def test_the_shares_are_those_asked_for():
    kinds = batch_of(200_000, no_match=0.1, bad=0.05).kinds
    assert np.mean(kinds == Kind.NO_MATCH) == pytest.approx(0.1, rel=0.05)
    assert np.mean(kinds > Kind.NO_MATCH) == pytest.approx(0.05, rel=0.05)


def test_no_event_is_bad_if_none_is_wanted():
    batch = batch_of(20_000, no_match=0, bad=0)
    assert not batch.kinds.any()
    assert not batch.tombstones.any()


def test_the_most_popular_product_is_the_permutations_first():
    events = [json.loads(value) for value in batch_of(20_000, no_match=0, bad=0).values()]
    counts = np.bincount([event["product_id"] for event in events])
    assert counts.argmax() == product_ids(np.array([1]), 10_000)[0]


def test_some_customers_are_null_and_some_missing():
    events = [json.loads(value) for value in batch_of(20_000, no_match=0, bad=0).values()]
    missing = sum("customer_id" not in event for event in events)
    null = sum(event.get("customer_id", 0) is None for event in events)
    assert missing / len(events) == pytest.approx(0.05, abs=0.01)
    assert null / len(events) == pytest.approx(0.05, abs=0.01)


def test_some_text_is_beyond_ascii():
    channels = {json.loads(v)["channel"] for v in batch_of(5_000, no_match=0, bad=0).values()}
    assert channels == {"till", "web", "shop", "phone", "café"}


def test_a_batch_may_be_empty():
    batch = batch_of(0)
    assert len(batch) == 0
    assert batch.bounds.tolist() == [0]


@pytest.mark.parametrize(
    "shares", [{"bad": -0.1}, {"no_match": 1.1}, {"bad": 0.6, "no_match": 0.6}]
)
def test_impossible_shares_are_refused(shares):
    with pytest.raises(ConfigError, match="share"):
        batch_of(1, **shares)
