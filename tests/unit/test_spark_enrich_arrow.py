from collections import Counter
from types import SimpleNamespace

import pytest

from services.spark.enrich_arrow import NONE, USUAL, ArrowLimit

BATCH = 500_000


def reports(*bytes_an_event, events=1_000):
    return [
        SimpleNamespace(counts=Counter({"in": events}), carried_bytes=size * events)
        for size in bytes_an_event
    ]


@pytest.fixture
def limit():
    return ArrowLimit(BATCH)


def test_small_events_need_no_limit_once_they_were_seen(limit):
    assert limit.bytes == USUAL
    limit.note(reports(250, 300))
    assert limit.bytes == NONE


@pytest.mark.parametrize("sizes", [(5_000, 5_000), (100, 2_000)])
def test_large_events_are_weighed(limit, sizes):
    limit.note(reports(250, 300))
    limit.note(reports(*sizes))
    assert limit.bytes == USUAL


def test_a_batch_of_nothing_teaches_nothing(limit):
    limit.note(reports(250))
    limit.note(reports(0, events=0))
    assert limit.bytes == NONE


def test_whoever_begins_knows_nothing(limit):
    limit.note(reports(250))
    limit.begin()
    assert limit.bytes == USUAL
