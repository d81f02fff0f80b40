"""Batches that were read together are dealt out as if they had been put together first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from dovetail.stream.batch import PIECE_EVENTS, EventBatch
from dovetail.stream.deal import Deal
from dovetail.testing.fakes import event_batch, records_of

if TYPE_CHECKING:
    from dovetail.stream.rdkafka import Records


def read_together(records: Records) -> list[EventBatch]:
    bounds = records.bounds
    return [
        EventBatch.from_message(records.data[bounds[row] : bounds[row + 1]])
        for row in range(len(records))
    ]


def events(first: int, count: int, key: str = "int") -> list[tuple[int | bytes, bytes]]:
    return [
        (i if key == "int" else b"k%d" % i, b'{"id":%d}' % i) for i in range(first, first + count)
    ]


@pytest.mark.parametrize("key", ["int", "text"])
def test_what_goes_to_a_slot_is_what_was_chosen_in_its_order(key: str) -> None:
    batches = [event_batch(events(0, 5, key)), event_batch([]), event_batch(events(5, 3, key))]
    records = records_of([(0, batch) for batch in batches])
    deal = Deal(read_together(records), records.data)
    whole = EventBatch.concatenate(batches)
    rows = np.array([7, 0, 3, 6])
    expected = whole.take(rows).to_message("sales", 2)
    (message,) = deal.messages(rows, "sales", 2)
    assert bytes(message) == expected
    assert deal.batch(rows).to_message("sales", 2) == expected
    assert deal.keys.values.tolist() == whole.keys.values.tolist()


def test_many_are_cut_as_a_batch_is() -> None:
    batch = event_batch(events(0, PIECE_EVENTS + 10))
    records = records_of([(0, batch.slice(0, 4_000)), (1, batch.slice(4_000, len(batch)))])
    deal = Deal(read_together(records), records.data)
    messages = list(deal.messages(np.arange(len(batch)), "sales", 0))
    batches = [EventBatch.from_message(bytes(message)) for message in messages]
    assert [len(each) for each in batches] == [PIECE_EVENTS, 10]
    found = EventBatch.concatenate(batches)
    assert list(found.events) == list(batch.events)


def test_a_batch_from_elsewhere_is_refused() -> None:
    with pytest.raises(ValueError, match="not read from these bytes"):
        Deal([event_batch(events(0, 2))], np.zeros(8, np.uint8))
