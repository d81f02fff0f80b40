"""What is put together from a template is what Arrow would have written."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from dovetail.contracts.batch_pb2 import Batch
from dovetail.join.columns import Column, Spans
from dovetail.stream.arrow_samples import samples_of
from dovetail.stream.arrow_template import BINARY, LONG, SHORT
from dovetail.stream.batch import OPTIONAL, TYPES
from dovetail.stream.envelope import opened
from dovetail.testing.arrow_samples import samples, template

KINDS = [
    ("key", LONG),
    ("event", BINARY),
    ("partition", SHORT),
    ("text", BINARY),
]


def by_arrow(columns: list[pa.Array]) -> bytes:
    sink = pa.BufferOutputStream()
    batch = pa.record_batch(columns, names=[name for name, _ in KINDS])
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


@pytest.mark.parametrize("rows", [1, 2, 7, 8, 500])
def test_a_stream_is_the_one_that_arrow_writes(rows: int) -> None:
    numbers = np.arange(rows) * 7 - 3
    partitions = numbers.astype(np.int32)
    events = [b'{"id":%d}' % number for number in range(rows)]
    texts = [b"" if number % 3 else b"k" * number for number in range(rows)]
    expected = by_arrow(
        [
            pa.array(numbers),
            pa.array(events, pa.large_binary()),
            pa.array(partitions),
            pa.array(texts, pa.large_binary()),
        ]
    )
    # In the middle of its buffer, and in another order than it is written in.
    around = Column.of([b"before", *texts, b"after"]).slice(1, rows + 1)
    backwards = Column.of(events[::-1])
    spans = Spans(backwards.data, backwards.bounds[:-1][::-1], backwards.bounds[1:][::-1])
    for written in (Column.of(events), spans):
        head = Batch(pipeline="sales", slot=3, events=rows)
        message = template(KINDS).message(head, [numbers, written, partitions, around])
        found, start, end = opened(message.data.data)
        assert (found, bytes(message)[start:end]) == (head, expected)


def test_a_template_is_not_changed_by_what_is_written_with_it() -> None:
    keys = template([("key", LONG)])
    few, many = (bytes(keys.message(Batch(events=rows), [np.arange(rows)])) for rows in (2, 300))
    again = bytes(keys.message(Batch(events=2), [np.arange(2)]))
    assert few == again != many


def stream_of(rows: int) -> np.ndarray:
    """In the middle of its buffer, where no number is aligned."""
    events = Column.of([b'{"id":%d}' % number for number in range(rows)])
    columns = [np.arange(rows), events, np.arange(rows, dtype=np.int32), Column.empty_values(rows)]
    message = template(KINDS).message(Batch(pipeline="sales", events=rows), columns)
    _, start, end = opened(message.data.data)
    return np.frombuffer(bytearray(b"_" + bytes(message)[start:end]), np.uint8)[1:]


@pytest.mark.parametrize("rows", [0, 1, 2, 500])
def test_what_was_written_is_read(rows: int) -> None:
    found = template(KINDS).read(stream_of(rows))
    assert found is not None
    assert list(found) == [name for name, _ in KINDS]
    assert found["key"].tolist() == found["partition"].tolist() == list(range(rows))
    assert list(found["event"]) == [b'{"id":%d}' % number for number in range(rows)]
    assert list(found["text"]) == [b""] * rows


def test_what_is_kept_of_arrow_is_what_it_writes() -> None:
    """If not, `python -m dovetail.testing.arrow_samples` prints what is to be kept."""
    assert list(samples_of(list(TYPES), OPTIONAL).values()) == samples()


def test_what_is_not_as_written_is_left_to_arrow() -> None:
    """Whatever byte of the metadata is another, nothing outside the stream is read."""
    ours, good = template(KINDS), stream_of(3)
    body = 3 * 8 + (4 * 8 + 24) + 16 + 4 * 8
    for place in range(len(ours.schema), len(good) - body - 8):
        for change in (1, 0x80):
            stream = good.copy()
            stream[place] ^= change
            assert ours.read(stream) is None
    for cut in (good[:-1], good[:-8], good[: len(ours.schema) + 5], good[:0]):
        assert ours.read(cut.copy()) is None
    assert ours.read(np.concatenate((good, good[:8]))) is None
    assert ours.read(good) is not None
