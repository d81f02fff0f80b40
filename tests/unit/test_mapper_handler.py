"""The mapper against a producer in memory: slots, shedding, the ledger, skew."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest

from dovetail.join.columns import Column
from dovetail.join.entry import Entries, MasterRows
from dovetail.join.mapper import Mapper
from dovetail.join.shedding.frequency import most_keys
from dovetail.join.shedding.shedder import Progress, Shedder
from dovetail.join.shedding.strategies import KeepW, SampleW, TopW
from dovetail.pipeline.spec import JoinKind, Pipeline
from dovetail.stream.batch import EventBatch
from dovetail.stream.ledger import Ledger
from dovetail.stream.migrations import Change
from dovetail.testing.fakes import RecordingProducer, event_batch, join_keys, named, records_of
from dovetail.topology import Topology
from services.mapper.cached_keys import CachedKeys
from services.mapper.handler import MapperHandler
from services.mapper.overload import OverloadGuard, Strategies, results
from services.mapper.skew import Skew

SLOTS = 4


def pipeline_of(join="inner", **overload):
    columns = {"columns": ["name"]} if join in ("inner", "left") else {}
    return Pipeline.model_validate(
        {
            "name": "sales",
            "source": {"fields": {"id": "int"}},
            "key": "id",
            "master": {"table": "goods", **columns},
            "join": join,
            "slots": SLOTS,
            **({"overload": overload} if overload else {}),
        }
    )


class Keeps:
    """A guard that lets in as many events a step as it is told, of those with the largest keys."""

    strategy = "topw"

    def __init__(self, room):
        self.room = room
        self.looks = 0
        self.closed = False

    def look(self):
        self.looks += 1

    def admit(self, keys):
        if self.room is None:
            return None
        kept = np.zeros(len(keys), np.bool_)
        kept[np.argsort(-keys.values, kind="stable")[: self.room]] = True
        return kept

    def figures(self):
        return {"shedding": 1.0}

    def close(self):
        self.closed = True


class Stepped:
    """A handler with everything around it, fed a step at a time."""

    def __init__(self, guard=None):
        pipeline = pipeline_of()
        self.topology = Topology(pipeline)
        self.handler = MapperHandler(pipeline, self.topology, guard)
        self.producer = RecordingProducer()
        self.ledger = Ledger()

    def step(self, *batches):
        """Each batch is the keys that came from one partition."""
        made = [
            (
                partition,
                event_batch(
                    [(key, json.dumps({"id": key}).encode()) for key in keys], partition, 100
                ),
            )
            for partition, keys in enumerate(batches)
        ]
        self.handler.handle(records_of(made, mapped=False), self.producer, self.ledger)
        return self.ledger.commit()

    def mapped(self):
        """The slot and key of every event on the mapped topic."""
        messages = self.producer.sent[self.topology.mapped.name]
        return [
            (message.partition, key)
            for message in messages
            for key in named(EventBatch.from_message(message.value).keys)
        ]

    def shed(self):
        return self.producer.sent[self.topology.shed.name]


def test_every_event_goes_to_the_slot_of_its_key():
    stepped = Stepped()
    assert stepped.step([1, 2, 3], [4, 1]) == {"in": 5, "mapped": 5}
    slots = Mapper(SLOTS, int_key=True).slots(join_keys([1, 2, 3, 4, 1])).tolist()
    assert Counter(stepped.mapped()) == Counter(zip(slots, [1, 2, 3, 4, 1], strict=True))
    assert not stepped.shed()


def test_an_event_goes_on_or_is_shed_with_its_origin_and_reason():
    stepped = Stepped(Keeps(3))
    counts = stepped.step([1, 9, 2], [8, 3, 7])
    assert counts == {"in": 6, "mapped": 3, "shed.topw": 3}
    assert sorted(key for _, key in stepped.mapped()) == [7, 8, 9]
    assert [(message.value, message.headers) for message in stepped.shed()] == [
        (b'{"id": 1}', {b"origin": b"sales/0/100", b"reason": b"overload: topw"}),
        (b'{"id": 2}', {b"origin": b"sales/0/102", b"reason": b"overload: topw"}),
        (b'{"id": 3}', {b"origin": b"sales/1/101", b"reason": b"overload: topw"}),
    ]


def test_the_ledger_of_each_partition_counts_its_own_events():
    stepped = Stepped(Keeps(3))
    stepped.step([1, 9, 2], [8, 3, 7], [0])
    assert stepped.ledger.text(0) == "in=3,mapped=1,shed.topw=2"
    assert stepped.ledger.text(1) == "in=3,mapped=2,shed.topw=1"
    assert stepped.ledger.text(2) == "in=1,shed.topw=1"


@pytest.mark.parametrize(("room", "mapped", "shed"), [(0, 0, 3), (3, 3, 0), (None, 3, 0)])
def test_all_and_nothing_can_be_shed(room, mapped, shed):
    stepped = Stepped(Keeps(room))
    stepped.step([1, 2, 3])
    assert (len(stepped.mapped()), len(stepped.shed())) == (mapped, shed)


def test_the_guard_is_asked_between_steps_and_closed():
    guard = Keeps(None)
    stepped = Stepped(guard)
    stepped.handler.between_steps()
    assert guard.looks == 1
    assert stepped.handler.figures()["shedding"] == 1
    stepped.handler.close()
    assert guard.closed


# Skew between slots


def test_skew_is_the_busiest_slot_over_the_mean_of_lately():
    skew = Skew(4, now=0.0)
    assert skew.figures()["slot_skew"] == 1
    skew.add(np.array([30, 10, 0, 0]), now=1.0)
    assert skew.figures()["slot_skew"] == 3
    for second in range(2, 600):
        skew.add(np.array([10, 10, 10, 10]), now=second)
    assert skew.figures()["slot_skew"] == pytest.approx(1, abs=0.01)
    assert skew.figures()["slot_rate.3"] == pytest.approx(10, rel=0.02)


def test_the_mapper_exports_each_slots_rate():
    stepped = Stepped()
    stepped.step([7] * 50)
    (slot,) = Mapper(SLOTS, int_key=True).slots(join_keys([7])).tolist()
    figures = stepped.handler.figures()
    assert figures["slot_skew"] == SLOTS
    assert figures[f"slot_rate.{slot}"] > 0
    assert sum(figures[f"slot_rate.{other}"] for other in range(SLOTS) if other != slot) == 0


# The guard


class Told:
    """Hands out what it is given, one after the other."""

    def __init__(self, *results):
        self._results = list(results)
        self.closed = False

    def take(self):
        return self._results.pop(0) if self._results else None

    def close(self):
        self.closed = True


def test_the_guard_sheds_when_the_ledgers_say_so_and_by_the_latest_strategy():
    looks = [
        Progress(float(s), 1_000 * s, 1_000 * s, 1_000 * s, 1_000 * s, 10 * s) for s in range(9)
    ]
    progress = Told(*looks)
    strategies = Told(None, None, TopW(None))
    guard = OverloadGuard(Shedder(1.0, KeepW()), progress, strategies)
    assert guard.admit(join_keys([1, 2])) is None
    assert guard.strategy == "keep-w"
    for _ in looks:
        guard.look()
    assert guard.strategy == "topw"
    figures = guard.figures()
    assert figures["shedding"] == 1
    assert figures["service_rate"] == pytest.approx(10)
    assert figures["arrival_rate"] == pytest.approx(1_000)
    assert figures["behind_seconds"] > 100
    guard.close()
    assert progress.closed
    assert strategies.closed


# Which keys the caches hold


class Migrated(Told):
    """A reader of migrations: what it is given at a time is what has arrived."""

    def __init__(self, *arrived):
        super().__init__(*arrived)
        self.followed = []

    def follow(self, slots):
        self.followed += slots

    def changes(self):
        change = self.take()
        return [change] if change else []


def change_of(entered, left=()):
    keys = join_keys(entered)
    nothing = MasterRows(join_keys([]), Column.of([]))
    entries = Entries.of(keys, nothing)
    count = np.zeros(len(keys), np.int64)
    return Change(entries, count, count, 0, join_keys(left))


def known(cached, keys):
    return cached.read().frequency(join_keys(keys)).tolist()


def test_the_caches_are_followed_only_while_somebody_wants_to_know():
    readers = []

    def open_reader():
        readers.append(Migrated(change_of([1, 2, 3]), None, change_of([9], [2])))
        return readers[-1]

    cached = CachedKeys(open_reader, SLOTS, budget=10_000)
    assert cached.read() is None
    assert not readers
    cached.wanted = True
    assert known(cached, [1, 2, 3, 9]) == [1, 1, 1, 0]
    assert readers[0].followed == [0, 1, 2, 3]
    assert known(cached, [1, 2, 3, 9]) == [1, 1, 1, 0]
    assert known(cached, [1, 2, 3, 9]) == [1, 0, 1, 1]
    cached.wanted = False
    assert cached.read() is None
    assert readers[0].closed
    cached.wanted = True
    assert known(cached, [1, 9]) == [1, 0], "read anew"


def test_text_keys_are_known_by_their_hash():
    cached = CachedKeys(lambda: Migrated(change_of([b"till", b"web"], [])), SLOTS, budget=10_000)
    cached.wanted = True
    assert known(cached, [b"web", b"shop", b"till"]) == [1, 0, 1]


def test_no_more_keys_are_held_than_fit():
    cached = CachedKeys(lambda: Migrated(change_of(range(1_000))), SLOTS, budget=500)
    cached.wanted = True
    table = cached.read()
    assert table.allocated <= 500
    assert table.frequency(join_keys(range(1_000))).sum() == most_keys(500) == 16


class FollowedCaches(Told):
    def __init__(self, *results):
        super().__init__(*results)
        self.wanted = []

    def want(self, wanted):
        self.wanted.append(wanted)


@pytest.mark.parametrize(("strategy", "follows"), [(KeepW(), True), (SampleW(None), False)])
def test_the_guard_asks_for_the_caches_keys_while_it_sheds_unless_it_samples(strategy, follows):
    looks = [
        Progress(float(s), 1_000 * s, 1_000 * s, 1_000 * s, 1_000 * s, 10 * s) for s in range(9)
    ]
    caches = FollowedCaches()
    shedder = Shedder(1.0, strategy)
    guard = OverloadGuard(shedder, Told(*looks), caches=caches)
    for _ in looks:
        guard.look()
    assert shedder.shedding
    assert caches.wanted[0] is False
    assert caches.wanted[-1] is follows
    guard.close()
    assert caches.closed


# The strategy that a pipeline asks for


@pytest.mark.parametrize(
    ("join", "overload", "first", "depends"),
    [
        ("inner", {"shed": "auto"}, "topw", True),
        ("left", {"shed": "auto", "criterion": "random-sample"}, "cluster-sampling", True),
        ("semi", {"shed": "auto"}, "keep-w", False),
        ("anti", {"shed": "auto", "criterion": "random-sample"}, "sample-w", False),
        ("inner", {"shed": "keep-w"}, "keep-w", False),
        ("inner", {"shed": "sample-w"}, "sample-w", False),
        ("semi", {"shed": "topw"}, "topw", True),
        ("inner", {"shed": "cluster-sampling"}, "cluster-sampling", True),
    ],
)
def test_the_database_is_asked_only_where_the_strategy_depends_on_it(
    join, overload, first, depends
):
    pipeline = pipeline_of(join, **overload)
    strategies = Strategies(pipeline.overload, pipeline, "postgresql://nowhere")
    assert strategies.first.name == first
    assert strategies.depends is depends


def test_before_f_r_is_known_every_key_counts_alike():
    pipeline = pipeline_of(shed="topw")
    strategies = Strategies(pipeline.overload, pipeline, "postgresql://nowhere")
    assert strategies.first.priorities(join_keys([1, 2, 3])).tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (JoinKind.INNER, [0, 0.4, 1, 5]),
        (JoinKind.LEFT, [1, 1, 1, 5]),
        (JoinKind.SEMI, [0, 0.4, 1, 1]),
        (JoinKind.ANTI, [1, 0.6, 0, 0]),
    ],
)
def test_an_event_counts_by_the_outputs_that_it_has(kind, expected):
    assert results(kind, np.array([0, 0.4, 1, 5])).tolist() == expected
