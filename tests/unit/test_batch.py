import numpy as np
import pyarrow as pa
import pytest

from dovetail.contracts.batch_pb2 import Batch
from dovetail.join.columns import Column, JoinKeys
from dovetail.stream.batch import PIECE_BYTES, UNMAPPED, EventBatch
from dovetail.testing.fakes import event_batch, named


def batch_of(events, texts=None):
    numbers = np.arange(len(events))
    keys = JoinKeys(numbers.copy(), Column.of(texts or [b""] * len(events)))
    return EventBatch(
        keys, Column.of(events), numbers.astype(np.int32), 10 * numbers, 100 * numbers
    )


def columns_in(message):
    return pa.ipc.open_stream(Batch.FromString(message).arrow).read_next_batch()


def test_a_batch_that_no_mapper_has_seen_has_no_slot():
    assert Batch.FromString(batch_of([b"{}"]).to_message("sales")).slot == UNMAPPED


def test_int_keys_take_no_room_for_texts():
    assert "text" not in columns_in(batch_of([b"{}"]).to_message("p")).schema.names
    assert "text" in columns_in(batch_of([b"{}"], [b"k"]).to_message("p")).schema.names


def test_a_slice_carries_its_own_bytes_only():
    batch = batch_of([b"{%s}" % (b"x" * 10_000)] * 3, [b"a", b"b", b"c"])
    assert len(batch.slice(1, 2).to_message("p")) < 12_000


@pytest.mark.parametrize("size", [0, 1])
def test_small_batches_come_through_a_message(size):
    batch = batch_of([b'{"k":1}'] * size)
    back = EventBatch.from_message(batch.to_message("p", 0))
    assert len(back) == len(back.events) == len(back.keys.texts) == size
    assert list(back.pieces(100)) == ([back] if size else [])


def test_a_huge_event_is_a_piece_of_its_own():
    huge = b"{" + b"x" * (3 * PIECE_BYTES) + b"}"
    batch = batch_of([b"{1}", b"{2}", huge, b"{3}", huge])
    pieces = list(batch.pieces(PIECE_BYTES))
    assert [len(piece) for piece in pieces] == [2, 1, 1, 1]
    assert EventBatch.from_message(pieces[1].to_message("p")).events[0] == huge


def test_a_batch_that_fits_is_its_own_only_piece():
    batch = batch_of([b"{1}", b"{2}"])
    (piece,) = batch.pieces(6)
    assert piece is batch
    assert [len(piece) for piece in batch.pieces(5)] == [1, 1]


def test_one_batch_is_not_copied_to_be_concatenated():
    batch = batch_of([b"{1}"])
    assert EventBatch.concatenate([batch]) is batch


def test_its_bytes_are_counted_column_by_column():
    batch = batch_of([b"{1}", b"{22}"], [b"a", b""])
    fixed = 2 * (8 + 4 + 8 + 8)
    assert batch.nbytes == fixed + (1 + 3 * 8) + (7 + 3 * 8)


def test_an_envelope_is_what_protobuf_reads_and_writes():
    batch = event_batch([(7, b'{"id":7}'), (-1, b'{"id":-1}')])
    message = batch.to_message("sales", 3)
    envelope = Batch.FromString(message)
    assert (envelope.pipeline, envelope.slot, envelope.events) == ("sales", 3, 2)
    again = EventBatch.from_message(envelope.SerializeToString())
    assert named(again.keys) == [7, -1]
    assert [again.events[0], again.events[1]] == [b'{"id":7}', b'{"id":-1}']
    # A later release may add fields, of any kind and at any place.
    later = b"\xa0\x06\x05" + message + b"\xa9\x06" + bytes(8) + b"\xad\x06" + bytes(4)
    assert EventBatch.from_message(later).events[1] == batch.events[1]


@pytest.mark.parametrize("cut", [lambda m: m[:-1], lambda m: m[:5], lambda m: m + b"\x7b"])
def test_what_is_no_batch_is_told(cut):
    message = event_batch([(7, b'{"id":7}')]).to_message("sales", 3)
    with pytest.raises(ValueError, match="a message is no batch"):
        EventBatch.from_message(cut(message))
