"""Event time from the pipeline's file to the batches that ingest passes on."""

from __future__ import annotations

import json

import numpy as np
import pytest

from dovetail.join.columns import Column
from dovetail.pipeline.load import load_pipeline
from dovetail.service.metrics import Metrics
from dovetail.stream.batch import EventBatch
from dovetail.stream.ledger import Ledger
from dovetail.stream.rdkafka import Records
from dovetail.testing.fakes import RecordingProducer
from dovetail.topology import INGEST, Topology
from services.ingest.handler import IngestHandler
from tests.property.avro_reference import encode

SPEC = """\
name: sales
source:
  event_time: order.at
  fields:
    id: int
    order.at: timestamp?
key: id
master:
  table: items
  columns: [name]
"""
AVRO = {
    "type": "record",
    "name": "Sale",
    "fields": [
        {"name": "id", "type": "long"},
        {
            "name": "order",
            "type": {
                "type": "record",
                "name": "Order",
                "fields": [
                    {
                        "name": "at",
                        "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}],
                    }
                ],
            },
        },
    ],
}


def records_of(values):
    column = Column.of(values)
    count = len(values)
    return Records(
        np.zeros(count, np.int32),
        np.arange(count),
        np.arange(count) + 7_000,
        column.data,
        column.bounds,
        np.zeros(count, np.bool_),
    )


@pytest.fixture
def load(tmp_path):
    def load(text):
        path = tmp_path / "pipeline.yaml"
        path.write_text(text)
        return load_pipeline(path, {})

    return load


def passed_on(pipeline, values, lag=None, clock=lambda: 10.0):
    producer = RecordingProducer()
    handler = IngestHandler(pipeline, Topology(pipeline), lag, clock)
    handler.handle(records_of(values), producer, Ledger())
    (message,) = producer.sent["sales.clean"]
    return EventBatch.from_message(message.value)


EVENTS = [
    b'{"id":1,"order":{"at":"1970-01-01T00:00:01.2509Z"}}',
    b'{"id":2,"order":{"at":null}}',
    b'{"id":"bad","order":{"at":"1970-01-01T00:00:03Z"}}',
    b'{"id":3}',
    b'{"order":{"at":"1970-01-01T01:00:09+01:00"},"id":4}',
]


def test_an_event_has_its_own_time_or_else_its_record_s(load):
    batch = passed_on(load(SPEC), EVENTS)
    assert batch.event_times.tolist() == [1_250, 7_001, 7_003, 9_000]
    assert batch.timestamps.tolist() == [7_000, 7_001, 7_003, 7_004]


def test_a_pipeline_that_names_no_field_pays_nothing(load):
    assert passed_on(load(SPEC.replace("  event_time: order.at\n", "")), EVENTS).event_times is None


def test_events_of_another_format_have_their_time_too(load, tmp_path):
    (tmp_path / "sale.avsc").write_text(json.dumps(AVRO))
    text = SPEC.replace("source:", "source:\n  format: avro\n  schema_file: sale.avsc")
    values = [
        encode(AVRO, {"id": 1, "order": {"at": (1, 1_250_900)}}, {}),
        encode(AVRO, {"id": 2, "order": {"at": (0, None)}}, {}),
        encode(AVRO, {"id": 3, "order": {"at": (1, -1)}}, {}),
    ]
    assert passed_on(load(text), values).event_times.tolist() == [1_250, 7_001, -1]


def test_how_late_events_come_is_shown(load):
    metrics = Metrics(INGEST)
    passed_on(load(SPEC), EVENTS, metrics.event_time_lag())
    found = {
        sample.labels.get("le", sample.name): sample.value
        for family in metrics.registry.collect()
        if family.name == "dovetail_event_time_lag_seconds"
        for sample in family.samples
    }
    # 8.75, 2.999, 2.997 and 1 s before the clock's 10.
    assert (found["0.1"], found["1.0"], found["10.0"]) == (0, 1, 4)
    assert found["dovetail_event_time_lag_seconds_count"] == 4
    assert found["dovetail_event_time_lag_seconds_sum"] == pytest.approx(15.746)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("order.att", "'order.att' is not a field of the event; did you mean 'order.at'?"),
        ("sold", "'sold' is not a field of the event; source.fields must have it, as a timestamp"),
        ("id", "'id' is of type int, but an event's time is a timestamp"),
    ],
)
def test_a_field_that_is_no_timestamp_is_told(load, name, told):
    with pytest.raises(Exception, match="event_time") as caught:
        load(SPEC.replace("event_time: order.at", f"event_time: {name}"))
    (line,) = str(caught.value).splitlines()
    assert line.endswith(f"pipeline.yaml:3: source.event_time: {told}")
