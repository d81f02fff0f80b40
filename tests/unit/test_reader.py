"""What stands on an internal topic and is not the pipeline's is refused, kept and told."""

import numpy as np
import pyarrow as pa
import pytest

from dovetail.contracts.batch_pb2 import Batch
from dovetail.join.columns import Column
from dovetail.join.entry import Entries
from dovetail.stream.batch import PIECE_EVENTS, UNMAPPED, EventBatch
from dovetail.stream.provenance import ORIGIN, REASON
from dovetail.stream.reader import BatchReader
from dovetail.testing.fakes import RecordingProducer, event_batch, records_with
from dovetail.topology import Topology
from tests.unit.test_audit import SALES

BATCH = event_batch([(7, b'{"id":7}'), (8, b'{"id":8}')])


@pytest.fixture
def topology():
    return Topology(SALES)


def message(columns, *, events=2, slot=3, options=None):
    """An envelope around whatever columns."""
    batch = pa.record_batch(columns)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    head = Batch(pipeline="sales", slot=slot, events=events, arrow=sink.getvalue().to_pybytes())
    return head.SerializeToString()


def columns(**others):
    usual = {
        "key": pa.array([7, 8]),
        "event": pa.array([b'{"id":7}', b'{"id":8}'], pa.large_binary()),
        "partition": pa.array([0, 0], pa.int32()),
        "offset": pa.array([1, 2]),
        "timestamp": pa.array([1, 2]),
    }
    return {name: column for name, column in {**usual, **others}.items() if column is not None}


def binary(bounds, data):
    buffers = [None, pa.py_buffer(np.array(bounds, np.int64)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_binary(), len(bounds) - 1, buffers)


def cut_entry():
    whole = Entries.without_rows().data.tobytes()
    return pa.array([b"", whole[:-8]], pa.large_binary())


def without_schema():
    """The batch alone, which Arrow would take for its schema."""
    batch = pa.record_batch(columns())
    return Batch(pipeline="sales", slot=3, events=2, arrow=batch.serialize().to_pybytes())


LZ4 = pa.ipc.IpcWriteOptions(compression="lz4")
FOREIGN = {
    "nothing": (b"", "no batch"),
    "text": (b"hello", "no batch"),
    "a number without end": (b"\x80" * 1_000_000, "within a number"),
    "no stream": (Batch(pipeline="sales", slot=3).SerializeToString(), "no batch"),
    "a stream that is none": (Batch(slot=3, arrow=b"ARROW1").SerializeToString(), "no batch"),
    "cut off": (BATCH.to_message("sales", 3)[:-9], "cut off"),
    "of another pipeline": (BATCH.to_message("others", 3), "of pipeline 'others'"),
    "of another slot": (BATCH.to_message("sales", 4), "of slot 4"),
    "before the mapper": (BATCH.to_message("sales"), "of slot -1"),
    "another count": (message(columns(), events=3), "says 3 events and holds 2"),
    "too many": (
        event_batch([(1, b"{}")] * (PIECE_EVENTS + 1)).to_message("sales", 3),
        "at most",
    ),
    "no event": (message(columns(event=None)), "lacks event"),
    "keys of another type": (message(columns(key=pa.array(["7", "8"]))), "key is string"),
    "a null": (message(columns(key=pa.array([7, None]))), "without nulls"),
    "compressed": (message(columns(), options=LZ4), "compressed"),
    "no schema": (without_schema().SerializeToString(), "begin with a schema"),
    "an event that is none": (
        message(columns(event=pa.array([b"{}", b""], pa.large_binary()))),
        "no JSON object",
    ),
    "bounds that go back": (message(columns(event=binary([0, 8, 2], b"{}" * 8))), "within it"),
    "an entry cut off": (message(columns(entry=cut_entry())), "does not hold an entry"),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_what_is_foreign_is_refused_kept_and_told(name, topology, caplog):
    foreign, reason = FOREIGN[name]
    good = BATCH.to_message("sales", 3)
    producer = RecordingProducer()
    reader = BatchReader(topology, topology.mapped)
    records = records_with([(3, good), (3, foreign), (3, good)], [10, 11, 12])
    read = reader.read(records, producer)
    assert [(slot, len(batch)) for slot, batch in read] == [(3, 2), (3, 0), (3, 2)]
    (kept,) = producer.sent["sales.foreign"]
    assert kept.value == foreign
    assert kept.headers[ORIGIN] == b"sales.mapped/3/11"
    assert reason in kept.headers[REASON].decode()
    assert reader.refused == 1
    (told,) = caplog.records
    assert told.place == "sales.mapped/3/11"
    assert reason in told.reason


def test_bounds_beyond_the_message_are_refused(topology):
    # Arrow itself would not write them: they are changed in the message.
    good = bytearray(BATCH.to_message("sales", 3))
    bounds = np.array([0, 8, 16], np.int64).tobytes()
    at = good.index(bounds)
    good[at + 16 : at + 24] = np.array([1 << 40], np.int64).tobytes()
    reader = BatchReader(topology, topology.mapped)
    ((_, batch),) = reader.read(records_with([(3, bytes(good))]), RecordingProducer())
    assert (len(batch), reader.refused) == (0, 1)


def test_what_is_its_own_comes_with_its_partition_and_can_be_changed_by_kernels(topology):
    producer = RecordingProducer()
    reader = BatchReader(topology, topology.clean)
    messages = [(7, BATCH.to_message("sales")), (2, BATCH.slice(1, 2).to_message("sales"))]
    read = reader.read(records_with(messages), producer)
    assert [(partition, list(batch.events)) for partition, batch in read] == [
        (7, [b'{"id":7}', b'{"id":8}']),
        (2, [b'{"id":8}']),
    ]
    assert all(batch.events.data.flags.writeable for _, batch in read)
    assert (reader.refused, producer.sent) == (0, {})


def test_columns_of_a_later_release_are_passed_over(topology):
    later = message(columns(later=pa.array([1.5, 2.5])))
    reader = BatchReader(topology, topology.mapped)
    ((_, batch),) = reader.read(records_with([(3, later)]), RecordingProducer())
    assert list(batch.events) == [b'{"id":7}', b'{"id":8}']


def test_an_empty_batch_is_one_like_any():
    empty = EventBatch.empty()
    assert len(EventBatch.from_message(empty.to_message("sales", UNMAPPED))) == 0
    assert len(EventBatch.concatenate([empty, BATCH])) == 2
    assert len(empty.take(np.empty(0, np.int64))) == 0
    assert isinstance(empty.events, Column)
