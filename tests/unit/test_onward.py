"""What a link of a chain hands on: keys out of the enriched event, slots, events without a key."""

from __future__ import annotations

import json

import numpy as np

from dovetail.join.columns import Column
from dovetail.join.mapper import Mapper
from dovetail.pipeline.spec import Pipeline
from dovetail.stream.batch import EventBatch
from dovetail.stream.onward import Onward
from dovetail.testing.fakes import RecordingProducer, named
from dovetail.topology import Topology

SLOTS = 4
SENDER = 3
CHAIN = Pipeline.model_validate(
    {
        "name": "sales",
        "source": {"fields": {"id": "int", "who.code": "text?"}},
        "key": "id",
        "master": {"table": "goods", "columns": {"label": "a.b", "vendor": "vendor"}},
        "slots": SLOTS,
    }
)


def chain(**link):
    spec = CHAIN.model_dump(mode="json", exclude={"then"})
    return Pipeline.model_validate({**spec, "then": [{"join": "semi", **link}]})


def passed_on(pipeline, events, slots=SENDER):
    """Every event's slot and key by its offset, as the next link gets them; None: no key."""
    producer = RecordingProducer()
    data = Column.of([json.dumps(event, separators=(",", ":")).encode() for event in events])
    count = np.arange(len(events))
    topology = Topology(pipeline, 2)
    Onward(topology).send(producer, slots, data, count.astype(np.int32), count, 1_000 + count)
    found = {}
    assert list(producer.sent) == ["sales.2.mapped"]
    for sent in producer.sent["sales.2.mapped"]:
        batch = EventBatch.from_message(sent.value)
        keys = [batch.unfit or None] * len(batch) if batch.keyless else named(batch.keys)
        for place, key in enumerate(keys):
            offset = int(batch.offsets[place])
            assert batch.events[place] == data[offset]
            assert (batch.partitions[place], batch.timestamps[place]) == (offset, 1_000 + offset)
            assert offset not in found
            found[offset] = (sent.partition, key)
        if not batch.keyless:
            mapper = Mapper(SLOTS, int_key=pipeline.link(2).key_type == "int")
            assert set(mapper.slots(batch.keys)) == {sent.partition}
    assert sorted(found) == list(range(len(events)))
    return [found[offset] for offset in range(len(events))]


def test_the_key_is_read_from_a_row_before_and_events_without_one_keep_their_slot():
    pipeline = chain(key="vendor", fields={"vendor": "int"}, master={"table": "vendors"})
    events = [
        {"id": 1, "a.b": {"x": [1]}, "vendor": 17},
        {"id": 2, "a.b": None, "vendor": None},
        {"id": 3, "who": None, "a.b": "text", "vendor": -5},
        {"id": 4, "who": {"code": "\u0000"}, "a.b": 0.5},
    ]
    found = passed_on(pipeline, events)
    assert [key for _, key in found] == [17, None, -5, None]
    assert [slot for slot, key in found if key is None] == [SENDER, SENDER]


def test_a_composite_key_of_a_column_and_a_field_within_an_object():
    pipeline = chain(
        key=["a..b", "who.code"],
        fields={"a.b": "int"},
        master={"table": "deals", "key": ["label", "code"]},
    )
    events = [
        {"id": 1, "who": {"code": "grün"}, "a.b": 12, "vendor": 1},
        {"id": 2, "who": {"code": None}, "a.b": 12, "vendor": 1},
        {"id": 3, "who": {}, "a.b": 12, "vendor": 1},
        {"id": 4, "a.b": 12, "vendor": 1},
        {"id": 5, "who": {"code": "\u0000"}, "a.b": 12, "vendor": 1},
    ]
    found = passed_on(pipeline, events)
    assert [key for _, key in found] == ["12\x1fgrün".encode(), None, None, None, None]


def test_a_key_of_another_type_than_the_pipeline_says_is_sent_on_as_unfit_with_the_reason():
    pipeline = chain(key="vendor", fields={"vendor": "int"}, master={"table": "vendors"})
    events = [{"id": 1, "vendor": "17"}, {"id": 2, "vendor": 17}, {"id": 3, "vendor": 1.5}]
    (slot, why), (_, key), other = passed_on(pipeline, events)
    assert key == 17
    assert "correct then.0.fields to the type" in why
    assert "wrong-type" in why
    assert (slot, why) == other
    assert slot == SENDER


def test_events_of_several_slots_without_a_key_keep_each_its_own():
    pipeline = chain(key="who.code", master={"table": "people"})
    events = [{"id": 1}, {"id": 2, "who": {"code": "a"}}, {"id": 3, "who": None}, {"id": 4}]
    slots = np.array([2, 0, 1, 3], np.int32)
    found = passed_on(pipeline, events, slots)
    assert [slot for slot, key in found if key is None] == [2, 1, 3]
    assert [key for _, key in found if key is not None] == [b"a"]
