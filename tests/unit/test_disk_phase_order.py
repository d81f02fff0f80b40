"""The disk phase of a pipeline that keeps an order: it gets hits too, and sends in its turn."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from dovetail.join.columns import Column
from dovetail.join.entry import Entries, MasterRows
from dovetail.testing.fakes import InMemoryMaster, event_batch, join_keys
from tests.unit.test_disk_phase_handler import Disk

ORDERS = ["key", "source", {"within": 2}]
AWAY = "PostgreSQL cannot be read"
FROM_CACHE = b'{"name":"cached"}'


def batch(*keys, cached=(), first_offset=0):
    """Events of these keys, of which the cache knows some; all of them have one row there."""
    events = [(key, json.dumps({"id": key}).encode()) for key in keys]
    made = event_batch(events, first_offset=first_offset)
    if not cached:
        return made
    known = join_keys(cached)
    entries = Entries.of(known, MasterRows(known, Column.of([FROM_CACHE] * len(cached))))
    of_key = dict(zip(cached, Column(entries.data, entries.bounds), strict=True))
    return replace(made, entries=Column.of([of_key.get(key, b"") for key in keys]))


def sent(disk):
    """The offset of each output's event, and which phase answered it."""
    return [
        (int(output.headers[b"origin"].rpartition(b"/")[2]), output.headers[b"via"])
        for output in disk.producer.sent[disk.topology.enriched.name]
    ]


@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_a_hit_is_answered_by_what_the_cache_had(order):
    disk = Disk(order=order)
    counts = disk.take(batch(7, 1, cached=[7]))
    assert sent(disk) == [(0, b"cache"), (1, b"disk")]
    assert disk.values(disk.topology.enriched)[0] == b'{"id": 7,"name":"cached"}'
    assert counts == {"in": 2, "enriched": 2, "outputs": 2, "hits": 1}


def test_by_key_a_hit_overtakes_whoever_waits_but_for_events_of_its_key():
    disk = Disk(order="key")
    disk.master.outage = AWAY
    disk.take(batch(1, 2))
    disk.now += 1
    disk.take(batch(1, 7, cached=[1, 7], first_offset=2))
    assert sent(disk) == [(3, b"cache")]
    disk.master.outage = ""
    disk.now += 10
    disk.step()
    after = [one for one in sent(disk)[1:] if one[0] in (0, 2)]
    assert after == [(0, b"disk"), (2, b"disk")]


def test_by_source_nobody_overtakes():
    disk = Disk(order="source")
    disk.master.outage = AWAY
    disk.take(batch(7, 1, 8, cached=[7, 8]))
    assert sent(disk) == [(0, b"cache")]
    assert disk.handler.figures()["held_bytes"] > Disk().handler.figures()["held_bytes"]
    disk.master.outage = ""
    disk.now += 10
    disk.step()
    assert sent(disk) == [(0, b"cache"), (1, b"disk"), (2, b"cache")]


def test_within_a_distance_some_may_overtake():
    disk = Disk(order={"within": 2})
    disk.master.outage = AWAY
    disk.take(batch(1, 7, 8, 9, cached=[7, 8, 9]))
    assert sent(disk) == [(1, b"cache"), (2, b"cache")]
    disk.master.outage = ""
    disk.now += 10
    disk.step()
    assert sent(disk)[2:] == [(0, b"disk"), (3, b"cache")]


def test_what_is_parked_holds_up_nobody():
    huge = [b'{"name":"' + b"x" * 4000 + b'"}'] * 500
    disk = Disk(InMemoryMaster({1: [b'{"name":"x"}'], 13: huge}), order="source")
    counts = disk.take(batch(13, 7, 1, cached=[7]))
    while disk.handler.busy:
        counts += disk.step()
    assert counts["parked"] == 1
    assert sent(disk) == [(1, b"cache"), (2, b"disk")]


def test_what_stands_in_line_is_not_committed_and_dropped_with_the_rest():
    disk = Disk(order="source")
    disk.master.outage = AWAY
    disk.take(batch(1, 7, cached=[7]))
    assert disk.handler.offsets({0: 1}, {0}) == {}
    disk.handler.drop()
    disk.master.outage = ""
    disk.now += 10
    disk.take(batch(1, 7, cached=[7]))
    assert sent(disk) == [(0, b"disk"), (1, b"cache")]
