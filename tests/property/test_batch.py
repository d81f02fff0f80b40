"""Batches through a message, and in pieces: nothing lost, nothing twice, nothing out of order."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.contracts.batch_pb2 import Batch
from dovetail.join.columns import Column, JoinKeys
from dovetail.join.entry import Entries
from dovetail.stream.batch import EventBatch

ENTRY = Entries.without_rows().data.tobytes()
INT64 = st.integers(-(2**63), 2**63 - 1)
EVENT = st.tuples(
    INT64,
    st.binary(max_size=5),
    st.binary(max_size=60).map(lambda inner: b"{%s}" % inner),
    st.integers(0, 2**31 - 1),
    st.integers(0, 2**63 - 1),
    INT64,
)


def batch_of(rows, *, timed=False, answered=False):
    keys, texts, events, partitions, offsets, times = zip(*rows, strict=True) if rows else [()] * 6
    return EventBatch(
        JoinKeys(np.array(keys, np.int64), Column.of(texts)),
        Column.of(events),
        np.array(partitions, np.int32),
        np.array(offsets, np.int64),
        np.array(times, np.int64),
        np.array(times, np.int64) ^ 1 if timed else None,
        Column.of([ENTRY * (len(event) % 2) for event in events]) if answered else None,
    )


def times_of(batch):
    return None if batch.event_times is None else batch.event_times.tolist()


def entries_of(batch):
    return None if batch.entries is None else list(batch.entries)


def rows_of(batch):
    columns = (batch.keys.values, batch.partitions, batch.offsets, batch.timestamps)
    keys, partitions, offsets, times = (column.tolist() for column in columns)
    texts, events = list(batch.keys.texts), list(batch.events)
    return list(zip(keys, texts, events, partitions, offsets, times, strict=True))


def arrays_of(batch):
    yield from (batch.keys.values, batch.partitions, batch.offsets, batch.timestamps)
    for column in (batch.keys.texts, batch.events):
        yield from (column.data, column.bounds)


@st.composite
def batches(draw):
    """Whole batches and slices, with all texts, some, or none."""
    rows = draw(st.lists(EVENT, max_size=30))
    if draw(st.booleans()):
        rows = [(key, b"", *rest) for key, _, *rest in rows]
    first = draw(st.integers(0, len(rows)))
    end = draw(st.integers(first, len(rows)))
    made = batch_of(rows, timed=draw(st.booleans()), answered=draw(st.booleans()))
    return made.slice(first, end), rows[first:end]


@settings(max_examples=200, deadline=None)
@given(batches(), st.integers(-1, 1023))
def test_a_message_brings_back_the_batch(pair, slot):
    batch, rows = pair
    message = batch.to_message("sales", slot)
    back = EventBatch.from_message(message)
    assert rows_of(back) == rows
    assert times_of(back) == times_of(batch)
    assert entries_of(back) == entries_of(batch)
    assert back.nbytes == batch.nbytes
    envelope = Batch.FromString(message)
    assert (envelope.pipeline, envelope.slot, envelope.events) == ("sales", slot, len(rows))
    for array, original in zip(arrays_of(back), arrays_of(batch), strict=True):
        assert array.dtype == original.dtype
        assert array.flags.writeable
        assert array.flags.c_contiguous
        assert array.flags.aligned


@settings(max_examples=200, deadline=None)
@given(batches(), st.integers(1, 200))
def test_pieces_hold_every_event_once_and_in_order(pair, most_bytes):
    batch, rows = pair
    pieces = list(batch.pieces(most_bytes))
    assert [row for piece in pieces for row in rows_of(piece)] == rows
    if batch.event_times is not None:
        assert [time for piece in pieces for time in times_of(piece)] == times_of(batch)
    if batch.entries is not None:
        assert [entry for piece in pieces for entry in entries_of(piece)] == entries_of(batch)
    for piece in pieces:
        size = sum(map(len, piece.events)) + sum(map(len, entries_of(piece) or ()))
        assert len(piece) == 1 or size <= most_bytes
        assert len(piece) > 0


@settings(max_examples=100, deadline=None)
@given(st.lists(batches(), min_size=1, max_size=4))
def test_batches_are_put_after_one_another(pairs):
    joined = EventBatch.concatenate([batch for batch, _ in pairs])
    assert rows_of(joined) == [row for _, rows in pairs for row in rows]
    times = [times_of(batch) for batch, _ in pairs]
    if all(found is None for found in times):
        assert joined.event_times is None
    else:
        own = [times_of(batch) or batch.timestamps.tolist() for batch, _ in pairs]
        assert times_of(joined) == [time for found in own for time in found]
    entries = [entries_of(batch) for batch, _ in pairs]
    if all(found is None for found in entries):
        assert joined.entries is None
    else:
        own = [entries_of(batch) or [b""] * len(batch) for batch, _ in pairs]
        assert entries_of(joined) == [entry for found in own for entry in found]


@settings(max_examples=100, deadline=None)
@given(batches(), st.data())
def test_taken_events_keep_all_that_is_theirs(pair, data):
    batch, rows = pair
    chosen = data.draw(st.lists(st.integers(0, len(rows) - 1))) if rows else []
    taken = batch.take(np.array(chosen, np.int64))
    assert rows_of(taken) == [rows[i] for i in chosen]
    times = times_of(batch)
    assert times_of(taken) == (None if times is None else [times[i] for i in chosen])
    entries = entries_of(batch)
    assert entries_of(taken) == (None if entries is None else [entries[i] for i in chosen])
