"""What ingest does with events that are not what the pipeline says."""

from __future__ import annotations

import numpy as np

from dovetail.join.columns import Column
from dovetail.pipeline.spec import Pipeline
from dovetail.stream.batch import EventBatch
from dovetail.stream.ledger import CLEAN, IN, Ledger, dead
from dovetail.stream.provenance import DETAIL, ORIGIN, REASON
from dovetail.stream.rdkafka import Records
from dovetail.testing.fakes import RecordingProducer
from dovetail.topology import Topology
from services.ingest.handler import IngestHandler

SALES = Pipeline.model_validate(
    {
        "name": "sales",
        "source": {"fields": {"id": "int", "note": "text?"}},
        "key": "id",
        "master": {"table": "goods", "columns": ["name"]},
    }
)
GOOD = b'{"id":1}'
NO_JSON = b'{"id":'
NO_INT = b'{"id":"x"}'
NULL = None


def handled(events: list[tuple[int, int, bytes | None]]) -> tuple[RecordingProducer, Ledger]:
    """Let ingest handle events of these partitions and offsets."""
    partitions, offsets, values = zip(*events, strict=True)
    column = Column.of([value or b"" for value in values])
    records = Records(
        np.array(partitions, np.int32),
        np.array(offsets, np.int64),
        np.zeros(len(events), np.int64),
        column.data,
        column.bounds,
        np.array([value is None for value in values]),
    )
    producer, ledger = RecordingProducer(), Ledger()
    IngestHandler(SALES, Topology(SALES)).handle(records, producer, ledger)  # type: ignore[arg-type]
    return producer, ledger


def test_bad_events_are_dead_letters_with_their_own_bytes_reason_and_origin() -> None:
    producer, ledger = handled(
        [(0, 7, GOOD), (1, 3, NO_JSON), (0, 8, NO_INT), (0, 9, NULL), (1, 4, GOOD), (0, 10, NO_INT)]
    )
    letters = {
        letter.headers[ORIGIN]: (letter.value, letter.headers[REASON], letter.partition)
        for letter in producer.sent["sales.dead-letter"]
    }
    assert letters == {
        b"sales/0/8": (NO_INT, b"wrong-type", 0),
        b"sales/0/9": (NULL, b"tombstone", 0),
        b"sales/0/10": (NO_INT, b"wrong-type", 0),
        b"sales/1/3": (NO_JSON, b"invalid-json", 0),
    }
    assert all(letter.headers[DETAIL] for letter in producer.sent["sales.dead-letter"])
    wanted = {
        0: {IN: 4, CLEAN: 1, dead("wrong-type"): 2, dead("tombstone"): 1},
        1: {IN: 2, CLEAN: 1, dead("invalid-json"): 1},
    }
    assert wanted == {
        partition: {outcome: ledger.count(partition, outcome) for outcome in counts}
        for partition, counts in wanted.items()
    }


def test_where_all_are_bad_nothing_is_passed_on() -> None:
    producer, _ = handled([(0, 0, NO_JSON), (0, 1, NULL)])
    assert list(producer.sent) == ["sales.dead-letter"]


def test_where_none_is_bad_there_is_no_dead_letter() -> None:
    producer, _ = handled([(0, 0, GOOD), (0, 1, GOOD)])
    (message,) = producer.sent["sales.clean"]
    assert EventBatch.from_message(message.value or b"").offsets.tolist() == [0, 1]
    assert list(producer.sent) == ["sales.clean"]


def test_who_is_given_partitions_or_begins_anew_asks_once_whose_the_pipeline_is() -> None:
    asked = []
    topology = Topology(SALES)
    handler = IngestHandler(SALES, topology, require_ours=lambda: asked.append("ours?"))
    for again in (lambda: handler.assign([0, 1]), handler.drop):
        again()
        for partition in (0, 1):
            handler.open(partition, Ledger())
    assert len(asked) == 2
