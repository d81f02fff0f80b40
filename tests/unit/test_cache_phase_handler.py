"""The cache phase against a producer in memory."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from dovetail.join.caching import LEAST
from dovetail.join.columns import Column, JoinKeys
from dovetail.join.entry import Entries, MasterRows
from dovetail.join.mapper import Mapper
from dovetail.node import cache as cache_half
from dovetail.pipeline.shape import Algorithm
from dovetail.pipeline.spec import Pipeline
from dovetail.service.metrics import Latency
from dovetail.stream.batch import EventBatch
from dovetail.stream.ledger import Ledger
from dovetail.stream.migrations import Change
from dovetail.stream.provenance import DETAIL, ORIGIN, REASON
from dovetail.testing.fakes import RecordingProducer, event_batch, join_keys, records_of
from dovetail.topology import CACHE_PHASE, Topology
from services.cache_phase.handler import CacheHandler
from services.cache_phase.settings import budget

SLOTS = 4
NOW = 1_800_000_000.0
ROW = b'{"name":"x"}'


def pipeline(key_type="int", **master):
    return Pipeline.model_validate(
        {
            "name": "sales",
            "algorithm": "srj",
            "source": {"fields": {"id": key_type}},
            "key": "id",
            "master": {"table": "goods", "columns": ["name"], **master},
            "slots": SLOTS,
        }
    )


def with_algorithm(name, memory=16 << 20):
    return pipeline().model_copy(update={"algorithm": Algorithm(name), "memory": memory})


class Topic:
    """Migrations out of memory, and what the cache told of its slots."""

    def __init__(self):
        self.waiting = []
        self.followed = set()
        self.closed = False

    def follow(self, slots):
        self.followed |= set(slots)

    def forget(self, slots):
        self.followed -= set(slots)

    def changes(self):
        waiting, self.waiting = self.waiting, []
        return waiting

    def waiting_for(self):
        return "loading" if self.waiting else ""

    @property
    def loaded(self):
        return float(not self.waiting)

    def close(self):
        self.closed = True


class Cache:
    """A handler with everything around it; its clock is moved by hand."""

    def __init__(self, made=None, memory=1 << 20):
        self.pipeline = made or pipeline()
        self.topology = Topology(self.pipeline)
        self.topic = Topic()
        self.producer = RecordingProducer()
        self.ledger = Ledger()
        self.now = NOW
        self.sink_takes = 1 << 20
        self.handler = CacheHandler(
            self.topology,
            self.topic,
            memory,
            Latency(),
            lambda: self.sink_takes,
            lambda: self.now,
        )

    def migrate(self, *keys, row=ROW, age=0.0, evicted=(), cycle=0, rows=1):
        named = join_keys(keys)
        repeated = join_keys([key for key in keys for _ in range(rows)])
        master = MasterRows(repeated, Column.of([row] * len(repeated)))
        many = np.full(len(keys), 5, np.int64)
        read_at = np.full(len(keys), int((self.now - age) * 1000), np.int64)
        gone = join_keys(evicted) if evicted else JoinKeys.of_ints(np.empty(0, np.int64))
        change = Change(Entries.of(named, master), read_at, many, cycle, gone)
        self.topic.waiting.append(change)
        self.handler.between_steps()

    def step(self, *keys, slot=0):
        events = [(key, json.dumps({"id": key}).encode()) for key in keys]
        self.handler.handle(records_of([(slot, event_batch(events))]), self.producer, self.ledger)
        return self.ledger.commit()

    def hits(self, *keys):
        """Which of these keys are answered."""
        return [key for key in keys if self.step(key)["hits"]]

    def sent(self, topic):
        return self.producer.sent[topic.name]


def test_a_hit_is_answered_with_all_rows_and_says_so_and_a_miss_goes_on():
    cache = Cache()
    cache.migrate(1, rows=2)
    counts = cache.step(1, 2, 1)
    assert counts == {"in": 3, "hits": 2, "missed": 1, "enriched": 2, "outputs": 4}
    outputs = cache.sent(cache.topology.enriched)
    assert [output.value for output in outputs] == [b'{"id": 1,"name":"x"}'] * 4
    assert {output.headers[b"via"] for output in outputs} == {b"cache"}
    assert len(cache.sent(cache.topology.missed)) == 1


def test_a_key_without_rows_is_a_hit_too():
    cache = Cache()
    cache.migrate(1, rows=0)
    assert cache.step(1) == {"in": 1, "hits": 1, "unmatched": 1}


def test_a_migrated_key_has_its_latest_rows():
    cache = Cache()
    cache.migrate(1)
    cache.migrate(1, row=b'{"name":"y"}')
    cache.step(1)
    (output,) = cache.sent(cache.topology.enriched)
    assert output.value == b'{"id": 1,"name":"y"}'


def test_an_eviction_on_the_topic_is_a_miss_from_then_on_and_no_tombstone_is_sent_for_it():
    cache = Cache()
    cache.migrate(1, 2)
    cache.migrate(evicted=[1])
    assert cache.hits(1, 2) == [2]
    assert cache.sent(cache.topology.migrations) == []


def test_who_makes_room_is_deleted_from_the_topic_under_its_own_slot():
    cache = Cache(memory=LEAST)
    for first in range(0, 1000, 50):
        cache.migrate(*range(first, first + 50))
        cache.step(first)
    held = set(cache.hits(*range(1000)))
    tombstones = cache.sent(cache.topology.migrations)
    assert {message.value for message in tombstones} == {None}
    gone = [int(message.key) for message in tombstones]
    assert len(gone) == len(set(gone))
    assert set(gone) == set(range(1000)) - held
    slots = Mapper(SLOTS, int_key=True).slots(JoinKeys.of_ints(np.array(gone))).tolist()
    assert [message.partition for message in tombstones] == slots
    assert cache.handler.figures()["cache_tombstones"] == len(gone)


def test_tombstones_of_texts_are_named_by_the_text():
    cache = Cache(pipeline("text"), LEAST)
    for first in range(0, 1000, 50):
        cache.migrate(*[b"k%d" % key for key in range(first, first + 50)])
    cache.handler.handle(
        records_of([(0, event_batch([(b"k1", b'{"id":"k1"}')]))]), cache.producer, cache.ledger
    )
    names = {message.key for message in cache.sent(cache.topology.migrations)}
    assert b"k0" in names
    assert names < {b"k%d" % key for key in range(1000)}


@pytest.mark.parametrize("algorithm", [str(name) for name in Algorithm])
def test_every_algorithm_keeps_within_its_memory_and_answers_only_what_was_migrated(algorithm):
    made = with_algorithm(algorithm)
    cache = Cache(made, budget(made))
    cache.migrate(*range(100))
    caches = algorithm not in ("inlj", "meshjoin", "ameshjoin", "hybridjoin")
    assert cache.hits(5, 99, 100) == ([5, 99] if caches else [])
    figures = cache.handler.figures()
    assert figures["held_bytes"] <= figures["budget_bytes"]
    assert figures["cache_keys"] == (100 if caches else 0)
    assert figures["cache_refused"] == (0 if caches else 100)


def test_a_slot_given_up_takes_its_keys_along_and_their_tombstones_are_anothers():
    cache = Cache(memory=LEAST)
    cache.handler.assign([0, 1, 2, 3])
    cache.migrate(*range(1000))
    cache.handler.revoke([1, 3])
    assert cache.topic.followed == {0, 2}
    held = cache.hits(*range(1000))
    assert held
    slots = Mapper(SLOTS, int_key=True).slots(JoinKeys.of_ints(np.array(held)))
    assert set(slots.tolist()) == {0, 2}
    assert cache.sent(cache.topology.migrations) == []


def test_an_entry_is_gone_when_its_rows_were_read_too_long_ago():
    cache = Cache(pipeline(refresh="10m"))
    cache.migrate(1, age=300)
    cache.migrate(2, age=0)
    cache.now += 301 + 600 / 20
    cache.handler.between_steps()
    assert cache.hits(1, 2) == [2]
    assert [message.key for message in cache.sent(cache.topology.migrations)] == [b"1"]
    assert cache.handler.figures()["cache_evicted"] == 1


def test_looking_for_what_is_too_old_takes_many_turns_and_no_long_one():
    cache = Cache(pipeline(refresh="100s"), 1 << 20)
    cache.migrate(*range(2000))
    cache.now += 101
    cache.handler.half._looked_at = cache.now
    held = [2000.0]
    for _ in range(11):
        cache.now += 0.5
        cache.handler.between_steps()
        held.append(cache.handler.figures()["cache_keys"])
    assert held[-1] == 0
    assert max(before - after for before, after in pairwise(held)) < 400


def test_an_entry_that_was_old_when_it_arrived_does_not_stay():
    cache = Cache(pipeline(refresh="10m"))
    cache.migrate(1, age=3600)
    cache.now += 31
    cache.handler.between_steps()
    assert cache.hits(1) == []


def test_a_clock_that_is_ahead_keeps_no_row_for_longer():
    cache = Cache(pipeline(refresh="10m"))
    cache.migrate(1, age=-3600)
    cache.now += 601 + 600 / 20
    cache.handler.between_steps()
    assert cache.hits(1) == []


def test_never_is_never():
    cache = Cache(pipeline(refresh="never"))
    assert cache.pipeline.master.refresh == math.inf
    cache.migrate(1)
    cache.now += 10 * 365 * 86_400
    cache.handler.between_steps()
    assert cache.hits(1) == [1]


def test_the_age_of_the_oldest_entry_is_shown():
    cache = Cache(pipeline(refresh="never"))
    assert "cache_oldest_s" not in cache.handler.figures()
    cache.migrate(1, age=100)
    cache.migrate(2, age=30)
    cache.now += 60
    cache.handler.between_steps()
    assert cache.handler.figures()["cache_oldest_s"] == pytest.approx(160, abs=1.1)


def test_figures_count_hits_keys_and_bytes():
    cache = Cache()
    cache.migrate(1, 2, 3)
    cache.step(1, 1, 2, 9)
    figures = cache.handler.figures()
    assert figures["cache_hits"] == 3
    assert figures["cache_keys"] == 3
    assert 0 < figures["cache_used_bytes"] < figures["held_bytes"] <= figures["budget_bytes"]


def test_it_says_what_it_waits_for_and_closes_what_it_reads():
    cache = Cache()
    assert cache.handler.waiting_for() == ""
    cache.topic.waiting = [None]
    assert cache.handler.waiting_for() == "loading"
    cache.handler.close()
    assert cache.topic.closed


@pytest.mark.parametrize("order", ["key", "source", {"within": 9}])
def test_where_an_order_is_kept_all_events_go_on_and_hits_with_their_entries(order):
    ordered = Pipeline.model_validate({**pipeline().model_dump(mode="json"), "order": order})
    cache = Cache(ordered)
    cache.migrate(2, 4)
    counts = cache.step(1, 2, 3, 2, 4)
    assert counts == {"in": 5, "missed": 5}
    assert cache.sent(cache.topology.enriched) == []
    [message] = cache.sent(cache.topology.missed)
    batch = EventBatch.from_message(message.value)
    assert batch.keys.values.tolist() == [1, 2, 3, 2, 4]
    hits = Entries.of(join_keys([2, 4]), MasterRows(join_keys([2, 4]), Column.of([ROW, ROW])))
    two, four = Column(hits.data, hits.bounds)
    assert list(batch.entries) == [b"", two, b"", two, four]


def test_where_an_order_is_kept_events_that_the_cache_does_not_know_go_on_without_a_column():
    ordered = Pipeline.model_validate({**pipeline().model_dump(mode="json"), "order": "key"})
    cache = Cache(ordered)
    cache.step(1, 2)
    [message] = cache.sent(cache.topology.missed)
    assert EventBatch.from_message(message.value).entries is None


def test_where_an_order_is_kept_an_entry_that_no_message_holds_beside_its_event_stays(monkeypatch):
    monkeypatch.setattr(cache_half, "LARGEST_MESSAGE_BYTES", cache_half._FRAME + 200)
    ordered = Pipeline.model_validate({**pipeline().model_dump(mode="json"), "order": "key"})
    cache = Cache(ordered)
    cache.migrate(2)
    cache.migrate(3, row=b'{"name":"%s"}' % (b"x" * 300))
    cache.step(3, 2, 3)
    [message] = cache.sent(cache.topology.missed)
    batch = EventBatch.from_message(message.value)
    assert batch.keys.values.tolist() == [3, 2, 3]
    assert [len(entry) > 0 for entry in batch.entries] == [False, True, False]


@pytest.mark.parametrize(
    ("algorithm", "share"),
    [
        *((name, 1 / 2) for name in ("ssbj", "ssbj-index", "cachejoin", "cmeshjoin")),
        ("auto", 3 / 4),
        ("pcsrj", 1 / 2),
        ("srj", 7 / 8),
    ],
)
def test_the_cache_has_its_share_of_the_nodes_memory(algorithm, share):
    assert budget(with_algorithm(algorithm, 64 << 20)) == share * (64 << 20)


@pytest.mark.parametrize("algorithm", ["inlj", "meshjoin", "ameshjoin", "hybridjoin"])
def test_without_a_cache_the_disk_phase_has_nearly_everything(algorithm):
    assert budget(with_algorithm(algorithm, 64 << 20)) == LEAST


def test_the_stage_writes_migrations():
    topology = Topology(pipeline())
    assert topology.migrations in topology.stage(CACHE_PHASE).writes


def test_events_that_a_chain_cannot_join_are_parked_with_their_reason():
    cache = Cache()
    cache.migrate(1)
    strange = event_batch([(0, b'{"id":"x"}'), (0, b'{"id":0.5}')])
    unfit = replace(strange, keyless=True, unfit="why")
    records = records_of([(2, unfit), (2, event_batch([(1, b'{"id":1}')]))])
    cache.handler.handle(records, cache.producer, cache.ledger)
    assert cache.ledger.commit() == {"in": 3, "parked": 2, "hits": 1, "enriched": 1, "outputs": 1}
    parked = cache.sent(cache.topology.parked)
    assert [message.value for message in parked] == [b'{"id":"x"}', b'{"id":0.5}']
    headers = [message.headers for message in parked]
    assert {(h[REASON], h[DETAIL]) for h in headers} == {(b"unfit-key", b"why")}
    assert len({h[ORIGIN] for h in headers}) == 2


def test_a_hit_with_an_output_that_the_sink_does_not_take_is_parked():
    cache = Cache(memory=64 << 20)
    cache.migrate(1)
    cache.migrate(2, row=b',"name":"' + b"x" * (1 << 20) + b'"}')
    events = [(1, b'{"id":1}'), (2, b'{"id":2}'), (1, b'{"id":1}')]
    cache.handler.handle(records_of([(2, event_batch(events))]), cache.producer, cache.ledger)
    assert cache.ledger.commit() == {"in": 3, "hits": 3, "enriched": 2, "parked": 1, "outputs": 2}
    (parked,) = cache.sent(cache.topology.parked)
    assert (parked.value, parked.headers[REASON]) == (b'{"id":2}', b"output-too-large")
