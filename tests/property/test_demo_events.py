from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.demo.events import OVERSIZED_BYTES, Kind, SalesEvents

unhurried = settings(deadline=None)  # the first call compiles

SALES = SalesEvents(keys=1_000, seed=5, no_match=0.2, bad=0.4)
NOON = 1_767_268_800_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LAST_INSTANT = 253_402_300_799_999  # 9999-12-31T23:59:59.999Z


def at_noon(count):
    return np.full(count, NOON)


def is_json(value):
    try:
        json.loads(value)
    except ValueError:
        return False
    return True


@unhurried
@given(cuts=st.lists(st.integers(0, 400), max_size=6))
def test_a_stream_has_the_same_bytes_whatever_the_size_of_its_batches(cuts):
    edges = [0, *sorted(cuts), 400]
    parts = [
        value
        for start, end in pairwise(edges)
        for value in SALES.batch(1 + start, at_noon(end - start)).values()
    ]
    assert parts == SALES.batch(1, at_noon(400)).values()


@unhurried
@given(milliseconds=st.integers(0, LAST_INSTANT))
def test_sold_at_is_the_instant_it_was_given(milliseconds):
    good = SalesEvents(keys=10, no_match=0, bad=0)
    (value,) = good.batch(1, np.array([milliseconds])).values()
    sold_at = json.loads(value)["sold_at"]
    assert len(sold_at) == 24
    assert datetime.fromisoformat(sold_at) == EPOCH + timedelta(milliseconds=milliseconds)


@unhurried
@given(first=st.integers(0, 2**62), seed=st.integers(0, 2**64))
def test_sale_ids_follow_one_another(first, seed):
    good = SalesEvents(keys=1_000, seed=seed, no_match=0, bad=0)
    events = [json.loads(value) for value in good.batch(first, at_noon(50)).values()]
    assert [event["sale_id"] for event in events] == list(range(first, first + 50))


@unhurried
@given(first=st.integers(0, 2**40))
def test_each_event_is_what_its_kind_says(first):
    batch = SALES.batch(first, at_noon(100))
    for kind, value in zip(batch.kinds, batch.values(), strict=True):
        CHECKS[Kind(kind)](value)


def check_valid(value, lowest, highest):
    event = json.loads(value)
    assert set(event) | {"customer_id"} == {
        "sale_id", "product_id", "customer_id", "quantity", "amount", "channel", "sold_at",
    }  # fmt: skip
    assert lowest <= event["product_id"] <= highest
    assert event.get("customer_id") is None or event["customer_id"] >= 1
    assert 1 <= event["quantity"] <= 9
    assert round(event["amount"], 2) == event["amount"] > 0


CHECKS = {
    Kind.GOOD: lambda value: check_valid(value, 1, 1_000),
    Kind.NO_MATCH: lambda value: check_valid(value, 1_001, 2_000),
    Kind.TRUNCATED: lambda value: require(value.startswith(b"{") and not is_json(value)),
    Kind.KEY_MISSING: lambda value: require("product_id" not in json.loads(value)),
    Kind.KEY_NULL: lambda value: require(json.loads(value)["product_id"] is None),
    Kind.WRONG_TYPE: lambda value: require(isinstance(json.loads(value)["product_id"], str)),
    Kind.UNKNOWN_FIELD: lambda value: require("coupon" in json.loads(value)),
    Kind.EMPTY: lambda value: require(value == b""),
    Kind.TOMBSTONE: lambda value: require(value is None),
    Kind.OVERSIZED: lambda value: require(is_json(value) and len(value) > OVERSIZED_BYTES),
}


def require(truth):
    assert truth
