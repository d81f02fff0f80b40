"""The disk phase against a master store and a producer in memory."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from dovetail.contracts.migration_pb2 import Migration
from dovetail.errors import Unavailable
from dovetail.join.mapper import Mapper
from dovetail.pipeline.spec import Pipeline
from dovetail.service.metrics import Latency
from dovetail.stream.ledger import Ledger
from dovetail.testing.fakes import (
    InMemoryMaster,
    RecordingProducer,
    event_batch,
    join_keys,
    records_of,
)
from dovetail.topology import Topology
from services.disk_phase.handler import DiskHandler

ROWS = {1: [b'{"name":"one"}'], 2: [b'{"name":"two"}', b'{"name":"zwei"}']}
SLOTS = 4


class Disk:
    """A handler with everything around it, fed a step at a time."""

    def __init__(self, master=None, join="inner", key_type="int", keys_a_query=100):
        columns = {"columns": ["name"]} if join in ("inner", "left") else {}
        pipeline = Pipeline.model_validate(
            {
                "name": "sales",
                "source": {"fields": {"id": key_type}},
                "key": "id",
                "master": {"table": "goods", **columns},
                "join": join,
                "slots": SLOTS,
            }
        )
        self.master = master or InMemoryMaster(ROWS)
        self.producer = RecordingProducer()
        self.ledger = Ledger()
        self.topology = Topology(pipeline)
        self.handler = DiskHandler(
            pipeline, self.topology, self.master, 1 << 20, keys_a_query, Latency()
        )

    def step(self, *keys, slot=0, first_offset=0):
        events = [(key, json.dumps({"id": _shown(key)}).encode()) for key in keys]
        batch = event_batch(events, first_offset=first_offset)
        self.handler.handle(records_of([(slot, batch)]), self.producer, self.ledger)
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
    assert disk.master.queries == [[1, 2]]


def test_no_query_has_more_keys_than_allowed():
    disk = Disk(keys_a_query=2)
    disk.step(1, 2, 3, 4, 5)
    assert [len(keys) for keys in disk.master.queries] == [2, 2, 1]
    assert len(disk.values(disk.topology.enriched)) == 3


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


def test_a_key_without_master_rows_is_migrated_too():
    disk = Disk()
    disk.step(3, 3)
    assert disk.migrated() == [b"3"]


def test_text_keys_are_matched_by_all_their_bytes():
    disk = Disk(InMemoryMaster({"größe".encode(): [b'{"name":"g"}']}), key_type="text")
    disk.step("größe".encode(), b"groesse")
    assert disk.values(disk.topology.enriched) == [b'{"id": "gr\\u00f6\\u00dfe","name":"g"}']
    assert disk.values(disk.topology.unmatched) == [b'{"id": "groesse"}']


def test_while_the_master_store_is_unavailable_nothing_is_answered():
    disk = Disk()
    disk.master.outage = "PostgreSQL cannot be read"
    with pytest.raises(Unavailable, match="PostgreSQL cannot be read"):
        disk.step(1)
    disk.ledger.abort()
    assert not disk.producer.sent
    disk.master.outage = ""
    assert disk.step(1)["enriched"] == 1


def test_closing_the_handler_closes_the_store():
    disk = Disk()
    disk.handler.close()
    assert disk.master.closed
