"""The map side of `enrich` gives what ingest and mapper send, event by event."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest

from dovetail.pipeline.spec import Pipeline
from dovetail.stream.batch import EventBatch
from dovetail.stream.ledger import Ledger
from dovetail.stream.rdkafka import Records
from dovetail.testing.fakes import RecordingProducer
from dovetail.topology import Topology
from services.ingest.handler import IngestHandler
from services.mapper.handler import MapperHandler
from services.spark.enrich_decode import (
    BAD,
    EVENTS,
    REACHED,
    SHELVED,
    BadEvents,
    decode,
    records_of,
)
from services.spark.enrich_shelf import taken
from tests.e2e import shop

SHAPES = {"int": shop.INT, "text": shop.TEXT, "composite": shop.COMPOSITE}


def batch_of_source(events, partitions):
    count = len(events)
    return pa.record_batch(
        {
            "value": pa.array(events, pa.binary()),
            "partition": pa.array(np.arange(count) % partitions, pa.int32()),
            "offset": pa.array(100 + np.arange(count) // partitions, pa.int64()),
            "timestamp": pa.array(np.arange(count), pa.int64()),
        }
    )


def by_services(pipeline, topology, records):
    ingest, mapped = RecordingProducer(), RecordingProducer()
    IngestHandler(pipeline, topology).handle(records, ingest, Ledger())
    clean = [message.value for message in ingest.sent[topology.clean.name]]
    dead = ingest.sent[topology.dead_letter.name]
    MapperHandler(pipeline, topology).handle(of_values(clean), mapped, Ledger())
    return [
        (message.partition, EventBatch.from_message(message.value))
        for message in mapped.sent[topology.mapped.name]
    ], dead


def of_values(values):
    bounds = np.cumsum([0, *map(len, values)])
    data = np.frombuffer(bytearray(b"".join(values)), np.uint8)
    count, none = len(values), np.zeros(len(values), np.int64)
    return Records(np.zeros(count, np.int32), none, none, data, bounds, np.zeros(count, np.bool_))


def one_by_one(slot, batch):
    columns = batch.keys.values, batch.keys.texts, batch.events
    places = batch.partitions, batch.offsets, batch.timestamps
    for row in zip(*columns, *places, strict=True):
        yield (slot, *row)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("pieces", [1, 3])
@pytest.mark.parametrize("kind", [EVENTS, SHELVED])
def test_decode_gives_what_ingest_and_mapper_send(shape, pieces, kind, tmp_path):
    of = SHAPES[shape]
    pipeline = Pipeline.model_validate({"name": "sales", **of.spec("inner"), "engine": "spark"})
    topology = Topology(pipeline)
    whole = batch_of_source([*of.good_events(), *of.bad_events()], pipeline.source.partitions)
    size = -(-len(whole) // pieces)
    parts = [whole.slice(first, size) for first in range(0, len(whole), size)]

    shelf = tmp_path if kind == SHELVED else None
    rows = [row for part in decode(pipeline, shelf, iter(parts)) for row in part.to_pylist()]
    mapped, dead = by_services(pipeline, topology, records_of(whole))

    read = taken if kind == SHELVED else bytes
    ours = [
        one
        for row in rows
        if row["kind"] == kind
        for one in one_by_one(row["slot"], EventBatch.from_message(read(row["payload"])))
    ]
    theirs = itertools.chain.from_iterable(one_by_one(*one) for one in mapped)
    assert sorted(ours) == sorted(theirs)
    assert len(ours) == len(of.good_events())
    assert all(row["node"] == row["slot"] % pipeline.nodes for row in rows if row["slot"] >= 0)

    buried = []
    for row in rows:
        if row["kind"] == BAD:
            bad = BadEvents.from_message(row["payload"])
            assert {row["slot"]} == set((bad.partitions % pipeline.slots).tolist())
            for i in range(len(bad)):
                origin = f"{topology.source.name}/{bad.partitions[i]}/{bad.offsets[i]}"
                told = (origin, bad.reasons[i], bad.details[i])
                buried.append((*(text.encode() for text in told), bad.values[i]))
    named = [
        (*(letter.headers[name] for name in (b"origin", b"reason", b"detail")), letter.value)
        for letter in dead
    ]
    assert sorted(buried, key=repr) == sorted(named, key=repr)

    reached = {
        (row["node"], row["partition"]): row["reached"] for row in rows if row["kind"] == REACHED
    }
    columns = whole.column("partition").to_numpy(), whole.column("offset").to_numpy()
    assert reached == {
        (node, number): columns[1][columns[0] == number].max() + 1
        for node in range(pipeline.nodes)
        for number in range(pipeline.source.partitions)
    }


def test_a_task_without_records_gives_a_batch_without_rows():
    pipeline = Pipeline.model_validate({"name": "sales", **shop.INT.spec("inner")})
    empty = batch_of_source([], 3)
    assert [len(part) for part in decode(pipeline, None, iter([empty]))] == [0]
