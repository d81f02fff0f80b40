"""The disk phase against a master store and a producer in memory."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from dovetail.contracts.migration_pb2 import Migration
from dovetail.errors import SlowError
from dovetail.join.algorithms import Parameters
from dovetail.join.line import Line
from dovetail.join.mapper import Mapper
from dovetail.node.window import LEAST, Window
from dovetail.pipeline.spec import Pipeline
from dovetail.service.metrics import Latency
from dovetail.stream.ledger import Ledger
from dovetail.testing.fakes import (
    InMemoryMaster,
    RecordingProducer,
    event_batch,
    join_keys,
    named,
    records_of,
)
from dovetail.topology import Topology
from services.disk_phase.build import build_join
from services.disk_phase.handler import DiskHandler

ROWS = {1: [b'{"name":"one"}'], 2: [b'{"name":"two"}', b'{"name":"zwei"}']}
SLOTS = 4


class Disk:
    """A handler with everything around it, fed a step at a time."""

    def __init__(
        self,
        master=None,
        join="inner",
        key_type="int",
        algorithm="srj",
        order="none",
        memory=1 << 20,
    ):
        columns = {"columns": ["name"]} if join in ("inner", "left") else {}
        pipeline = Pipeline.model_validate(
            {
                "name": "sales",
                "source": {"fields": {"id": key_type}},
                "key": "id",
                "master": {"table": "goods", **columns},
                "join": join,
                "algorithm": algorithm,
                "order": order,
                "slots": SLOTS,
            }
        )
        self.master = master or InMemoryMaster(ROWS)
        self.producer = RecordingProducer()
        self.ledger = Ledger()
        self.topology = Topology(pipeline)
        self.now = 0.0
        self.sink_takes = 1 << 20
        self.handler = DiskHandler(
            self.topology,
            build_join(pipeline, self.master, memory, self._clock),
            Window(LEAST),
            self,
            1 << 20,
            Latency(),
            lambda: self.sink_takes,
            self._clock,
            None if pipeline.order.within is None else Line(pipeline.order.within, 1 << 20),
        )

    def _clock(self):
        return self.now

    def close(self):
        """Of the progress that nobody reads here."""

    def step(self, *keys, slot=0, first_offset=0):
        events = [(key, json.dumps({"id": _shown(key)}).encode()) for key in keys]
        batches = [event_batch(events, first_offset=first_offset)] if events else []
        return self.take(*batches, slot=slot)

    def take(self, *batches, slot=0):
        records = records_of([(slot, batch) for batch in batches])
        self.handler.handle(records, self.producer, self.ledger)
        return self.ledger.commit()

    def values(self, topic):
        return [message.value for message in self.producer.sent[topic.name]]

    def migrated(self):
        return [message.key for message in self.producer.sent[self.topology.migrations.name]]


def _shown(key):
    return key if isinstance(key, int) else key.decode()


def test_an_event_is_answered_once_for_each_of_its_master_rows():
    disk = Disk()
    counts = disk.step(1, 2, 3)
    assert Counter(disk.values(disk.topology.enriched)) == {
        b'{"id": 1,"name":"one"}': 1,
        b'{"id": 2,"name":"two"}': 1,
        b'{"id": 2,"name":"zwei"}': 1,
    }
    assert disk.values(disk.topology.unmatched) == [b'{"id": 3}']
    assert counts == {"in": 3, "enriched": 2, "unmatched": 1, "outputs": 3}


@pytest.mark.parametrize(
    ("join", "enriched", "unmatched"),
    [
        ("left", [b'{"id": 1,"name":"one"}', b'{"id": 3,"name":null}'], []),
        ("semi", [b'{"id": 1}'], [b'{"id": 3}']),
        ("anti", [b'{"id": 3}'], [b'{"id": 1}']),
    ],
)
def test_every_kind_of_join_keeps_its_own_events(join, enriched, unmatched):
    empty = InMemoryMaster({key: [b""] for key in ROWS})
    disk = Disk(empty if join in ("semi", "anti") else None, join)
    disk.step(1, 3)
    assert disk.values(disk.topology.enriched) == enriched
    assert disk.values(disk.topology.unmatched) == unmatched


def test_an_output_names_its_event_and_its_phase():
    disk = Disk()
    disk.step(1, first_offset=17, slot=2)
    [output] = disk.producer.sent[disk.topology.enriched.name]
    assert output.partition == 2
    assert output.headers == {b"origin": b"sales/0/17", b"via": b"disk"}


def test_a_key_is_looked_up_once_a_step_however_many_events_have_it():
    disk = Disk()
    disk.step(1, 1, 2, 1, 2)
    [request] = disk.master.requests
    assert sorted(named(request.keys)) == [1, 2]


def test_a_key_is_migrated_when_it_is_looked_up_again():
    disk = Disk()
    disk.step(1, 2)
    assert disk.migrated() == []
    disk.step(2)
    assert disk.migrated() == [b"2"]
    [message] = disk.producer.sent[disk.topology.migrations.name]
    assert message.partition == Mapper(SLOTS, int_key=True).slots(join_keys([2]))[0]
    entry = Migration.FromString(message.value).entry
    assert b'"two"' in entry
    assert b'"zwei"' in entry


@pytest.mark.parametrize(("algorithm", "reads"), [("srj", 2), ("ssbj", 6)])
def test_a_migrated_row_is_as_old_as_the_snapshot_it_was_read_in(algorithm, reads):
    """By R's clock, which here goes on by a second with every read."""
    disk = Disk(InMemoryMaster(dict.fromkeys(range(60), ROWS[1]), 10), algorithm=algorithm)
    disk.master.clock = lambda: 1_800_000_000.5 + len(disk.master.requests)
    disk.handler.half.join.engine.engine.switch(algorithm, Parameters(pages=1))
    disk.step(*[5] * 50)
    if algorithm == "srj":
        disk.step(5)
    assert len(disk.master.requests) == reads
    message = disk.producer.sent[disk.topology.migrations.name][-1]
    began = 0 if algorithm == "ssbj" else reads - 1
    assert Migration.FromString(message.value).read_at_ms == 1_800_000_000_500 + 1000 * began


def test_a_key_without_master_rows_is_migrated_too():
    disk = Disk()
    disk.step(3, 3)
    assert disk.migrated() == [b"3"]


def test_text_keys_are_matched_by_all_their_bytes():
    disk = Disk(InMemoryMaster({"größe".encode(): [b'{"name":"g"}']}), key_type="text")
    disk.step("größe".encode(), b"groesse")
    assert disk.values(disk.topology.enriched) == [b'{"id": "gr\\u00f6\\u00dfe","name":"g"}']
    assert disk.values(disk.topology.unmatched) == [b'{"id": "groesse"}']


def test_while_master_data_is_away_what_has_come_waits():
    disk = Disk()
    disk.master.outage = "PostgreSQL cannot be read"
    assert disk.step(1) == {}
    assert not disk.producer.sent
    assert disk.handler.offsets({0: 1}, {0}) == {}
    assert disk.handler.waiting_for() == "PostgreSQL cannot be read"
    assert not disk.handler.busy, "it is asked again after a pause only"
    disk.master.outage = ""
    disk.now += 1
    assert disk.handler.busy
    assert disk.step()["enriched"] == 1
    assert disk.handler.waiting_for() == ""


def test_who_has_nothing_left_to_wait_for_waits_for_nothing():
    disk = Disk()
    disk.master.outage = "PostgreSQL cannot be read"
    disk.step(1)
    disk.handler.drop()  # its slot is another node's
    assert disk.handler.waiting_for() == ""
    disk.step(2)
    assert disk.handler.waiting_for() == "PostgreSQL cannot be read"


class SlowMaster(InMemoryMaster):
    """A database that takes too long for some reads; notes what was sent before each."""

    def __init__(self, rows):
        super().__init__(rows)
        self.too_slow = 0
        self.sent_before = []
        self.sent = dict

    def read(self, request, most):
        self.sent_before.append(sum(map(len, self.sent().values())))
        if self.too_slow:
            self.too_slow -= 1
            raise SlowError("PostgreSQL is slow")
        return super().read(request, most)


def test_a_database_that_is_slow_is_read_before_anything_is_sent_and_once_a_step():
    disk = Disk(SlowMaster({number: [b'{"name":"x"}'] for number in range(8)}), order="key")
    disk.master.sent = lambda: disk.producer.sent
    assert disk.step(0)["enriched"] == 1
    disk.master.too_slow = 1
    assert disk.step(2, first_offset=2) == {}
    assert disk.handler.waiting_for() == disk.handler.alarm() == "PostgreSQL is slow"
    assert not disk.handler.hungry
    for first_offset in (3, 4):
        disk.producer.sent.clear()
        disk.master.sent_before.clear()
        disk.now += 1
        # The one that waits, and one that is only let in.
        assert disk.step(first_offset, first_offset=first_offset)["enriched"] == 1
        assert disk.master.sent_before == [0]
        disk.handler.half.join.slow = disk.handler.half.join.slow or "still slow"


def test_nothing_is_read_while_nothing_waits():
    for algorithm in ("meshjoin", "hybridjoin", "srj"):
        disk = Disk(algorithm=algorithm)
        assert not disk.handler.busy
        disk.step()
        assert disk.master.requests == []
        disk.step(1)
        while disk.handler.busy:
            disk.step()
        reads = len(disk.master.requests)
        disk.step()
        assert len(disk.master.requests) == reads
        assert disk.master.resting, "and no snapshot is held"


def test_closing_the_handler_closes_the_store():
    disk = Disk()
    disk.handler.close()
    assert disk.master.closed


@pytest.mark.parametrize("algorithm", ["srj", "hybridjoin", "meshjoin", "inlj"])
def test_a_key_with_more_rows_than_fit_is_parked_and_the_others_go_on(algorithm):
    huge = [b'{"name":"' + b"x" * 4000 + b'"}'] * 500
    rows = {key: [b'{"name":"x"}'] for key in range(1, 30)} | {13: huge}
    disk = Disk(InMemoryMaster(rows, rows_a_page=1), algorithm=algorithm)
    counts = disk.step(1, 13, 2, 13, 29)
    while disk.handler.busy:
        counts += disk.step()
    assert counts == {"in": 5, "enriched": 3, "parked": 2, "outputs": 3}
    parked = disk.producer.sent[disk.topology.parked.name]
    assert [message.value for message in parked] == [b'{"id": 13}'] * 2
    assert {message.headers[b"reason"] for message in parked} == {b"too-many-rows"}
    assert b"memory" in parked[0].headers[b"detail"]
    assert [message.headers[b"origin"] for message in parked] == [b"sales/0/1", b"sales/0/3"]


LARGE = b'{"name":"' + b"x" * (1 << 20) + b'"}'


def test_an_event_with_an_output_that_the_sink_does_not_take_is_parked_whole():
    rows = {1: [b'{"name":"x"}'], 2: [b'{"name":"y"}', LARGE, b'{"name":"z"}']}
    disk = Disk(InMemoryMaster(rows), memory=64 << 20)
    counts = disk.step(1, 2, 1)
    while disk.handler.busy:
        counts += disk.step()
    assert counts == {"in": 3, "enriched": 2, "parked": 1, "outputs": 2}
    outputs = disk.producer.sent[disk.topology.enriched.name]
    assert [message.value for message in outputs] == [b'{"id": 1,"name":"x"}'] * 2
    (parked,) = disk.producer.sent[disk.topology.parked.name]
    assert (parked.value, parked.headers[b"reason"]) == (b'{"id": 2}', b"output-too-large")
    assert parked.headers[b"detail"] == (
        b"an output of 1,048,595 bytes, and sales.enriched takes messages of 1,048,576"
        b" (max.message.bytes)"
    )


def test_a_sink_that_takes_more_by_now_gets_more():
    disk = Disk(InMemoryMaster({2: [LARGE]}), memory=64 << 20)
    disk.sink_takes = 2 << 20
    counts = disk.step(2)
    while disk.handler.busy:
        counts += disk.step()
    assert counts == {"in": 1, "enriched": 1, "outputs": 1}


def test_what_no_topic_takes_is_parked_however_much_the_sink_takes():
    disk = Disk(InMemoryMaster({2: [b'{"name":"' + b"x" * (16 << 20) + b'"}']}), memory=128 << 20)
    disk.sink_takes = 1 << 30
    counts = disk.step(2)
    while disk.handler.busy:
        counts += disk.step()
    assert counts == {"in": 1, "parked": 1}
