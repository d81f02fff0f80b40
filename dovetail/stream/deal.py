"""Batches that were read together, dealt out to slots: their events stay where they were read.

To put them together first, and then to take out what goes to a slot, would copy every event twice
before it is written.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from dovetail.join.columns import Column, Spans
from dovetail.stream.batch import PIECE_BYTES, EventBatch, cuts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dovetail.join.columns import Bytes, Ints, JoinKeys
    from dovetail.stream.rdkafka.parcel import Parcel


class Deal:
    def __init__(self, batches: Sequence[EventBatch], data: Bytes) -> None:
        """`data` is what the batches were read from; at least one batch."""
        bare = [replace(batch, events=Column.empty_values(len(batch))) for batch in batches]
        self._rest = EventBatch.concatenate(bare)
        bounds = [batch.events.bounds + _place(batch, data) for batch in batches]
        self._events = Spans(
            data,
            np.concatenate([each[:-1] for each in bounds]),
            np.concatenate([each[1:] for each in bounds]),
        )

    @property
    def keys(self) -> JoinKeys:
        return self._rest.keys

    def batch(self, rows: Ints) -> EventBatch:
        """These rows, copied."""
        events = self._events.take(rows)
        copied = Column.of_spans(events.data, events.starts, events.ends)
        return replace(self._rest.take(rows), events=copied)

    def messages(self, rows: Ints, pipeline: str, slot: int) -> Iterator[Parcel]:
        """Write these rows for a slot."""
        events = self._events.take(rows)
        bounds = np.zeros(len(rows) + 1, np.int64)
        np.cumsum(events.ends - events.starts, out=bounds[1:])
        for first, end in cuts(bounds, PIECE_BYTES):
            piece = events.slice(first, end)
            yield self._rest.written_of(rows[first:end], piece, pipeline, slot)


def _place(batch: EventBatch, data: Bytes) -> int:
    """Where in `data` the batch's events begin; a kernel will trust it."""
    if not len(batch):
        return 0
    events = batch.events.data
    place: int = events.ctypes.data - data.ctypes.data
    if not 0 <= place <= len(data) - len(events):
        raise ValueError("a batch was not read from these bytes")
    return place
