"""Where events come in: decoded, validated, with their join keys; the bad ones set apart."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from dovetail.join.columns import Column
from dovetail.node.step import Bad
from dovetail.stream.batch import EventBatch
from dovetail.stream.events.formats import decoder_of
from dovetail.stream.events.schema import NO_TIME, EventSchema, Field, FieldType

if TYPE_CHECKING:
    from collections.abc import Callable

    from dovetail.join.columns import Flags, Ints
    from dovetail.pipeline.spec import Pipeline
    from dovetail.service.metrics import Latency
    from dovetail.stream.events.decode import Decoded
    from dovetail.stream.rdkafka import Records


class Intake:
    def __init__(
        self,
        pipeline: Pipeline,
        lag: Latency | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`lag` is told how late events are, where the pipeline says when they happened."""
        self._decoder = decoder_of(pipeline.source, schema_of(pipeline))
        self._lag = lag
        self._clock = clock

    def take(self, records: Records) -> Taken:
        decoded = self._decoder.decode(records.data, records.bounds, records.tombstones)
        return Taken(records, decoded)

    def good(self, taken: Taken, rows: Ints) -> EventBatch:
        """Those of these rows, all of them good; a row is read once."""
        batch = batch_of(taken.records, taken.decoded, rows)
        if self._lag is not None and batch.event_times is not None:
            self._lag.observe(int(self._clock() * 1000) - batch.event_times)
        return batch


class Taken:
    """Records as they came, and what is known of them."""

    def __init__(self, records: Records, decoded: Decoded) -> None:
        self.records = records
        self.decoded = decoded

    @property
    def valid(self) -> Flags:
        return self.decoded.valid

    def bad(self, rows: Ints) -> Bad:
        """These rows, none of them good."""
        records, decoded = self.records, self.decoded
        return Bad(
            Column(records.data, records.bounds).take(rows),
            records.partitions[rows],
            records.offsets[rows],
            records.tombstones[rows],
            decoded.reasons[rows],
            Column.of([decoded.details[row].encode() for row in rows.tolist()]),
        )


def schema_of(pipeline: Pipeline) -> EventSchema:
    return EventSchema(
        {
            name: Field(FieldType.named(field.type), field.optional)
            for name, field in pipeline.source.fields.items()
        },
        pipeline.key,
        pipeline.source.max_event_bytes,
        pipeline.source.event_time,
    )


def batch_of(records: Records, decoded: Decoded, rows: Ints) -> EventBatch:
    return EventBatch(
        decoded.join_keys(rows),
        Column.of_spans(decoded.data, decoded.start[rows], decoded.end[rows]),
        records.partitions[rows],
        records.offsets[rows],
        records.timestamps[rows],
        _event_times(decoded, records, rows),
    )


def _event_times(decoded: Decoded, records: Records, rows: Ints) -> Ints | None:
    """Take the record's timestamp for an event without a time of its own."""
    if decoded.times is None:
        return None
    own = decoded.times[rows]
    return np.where(own == NO_TIME, records.timestamps[rows], own)
