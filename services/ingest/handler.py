"""Validates events, takes out their join keys, and sends the bad ones to the dead letters."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from dovetail.join.columns import Column
from dovetail.join.mapper import groups
from dovetail.stream import ledger as outcome
from dovetail.stream.batch import PIECE_BYTES, EventBatch
from dovetail.stream.events.formats import decoder_of
from dovetail.stream.events.reasons import Reason
from dovetail.stream.events.schema import NO_TIME, EventSchema, Field, FieldType
from dovetail.stream.handler import Handler
from dovetail.stream.provenance import DETAIL, ORIGIN, REASON, origins

if TYPE_CHECKING:
    from collections.abc import Callable

    from dovetail.join.columns import Ints
    from dovetail.pipeline.spec import Pipeline
    from dovetail.service.metrics import Latency
    from dovetail.stream.events.decode import Decoded
    from dovetail.stream.ledger import Ledger
    from dovetail.stream.rdkafka import Producer, Records
    from dovetail.topology import Topology

_LABELS = Column.of([reason.label.encode() for reason in Reason])


class IngestHandler(Handler):
    def __init__(
        self,
        pipeline: Pipeline,
        topology: Topology,
        lag: Latency | None = None,
        clock: Callable[[], float] = time.time,
        keep_up: Callable[[], int] | None = None,
        require_ours: Callable[[], None] = lambda: None,
    ) -> None:
        """`lag` is told how late events are, where the pipeline says when they happened.

        `keep_up` gives `clean` a partition for each of the source's, and says how many it has.
        `require_ours` raises if another engine has taken the pipeline over.
        """
        self._keep_up = keep_up
        self._require_ours = require_ours
        self._ours = False
        self._partitions = topology.clean.partitions
        self._pipeline = pipeline
        self._topology = topology
        self._lag = lag
        self._clock = clock
        self._decoder = decoder_of(pipeline.source, schema_of(pipeline))

    def open(self, partition: int, _ledger: Ledger) -> None:
        """See to it that there is a partition of `clean` for it, which may be a new one."""
        if not self._ours:
            self._require_ours()
            self._ours = True
        if partition >= self._partitions and self._keep_up is not None:
            self._partitions = self._keep_up()

    def assign(self, _partitions: list[int]) -> None:
        self._ours = False  # it may have been away for long

    def drop(self) -> None:
        self._ours = False

    def handle(self, records: Records, producer: Producer, ledger: Ledger) -> None:
        decoded = self._decoder.decode(records.data, records.bounds, records.tombstones)
        for partition, rows in groups(records.partitions):
            ledger.add(partition, outcome.IN, len(rows))
            good = rows[decoded.valid[rows]]
            ledger.add(partition, outcome.CLEAN, len(good))
            if len(good):
                batch = batch_of(records, decoded, good)
                self._note_lag(batch)
                self._pass_on(partition, batch, producer)
            if len(good) < len(rows):
                self._bury(
                    partition, records, decoded, rows[~decoded.valid[rows]], producer, ledger
                )

    def _note_lag(self, batch: EventBatch) -> None:
        if self._lag is not None and batch.event_times is not None:
            self._lag.observe(int(self._clock() * 1000) - batch.event_times)

    def _pass_on(self, partition: int, batch: EventBatch, producer: Producer) -> None:
        # A source partition keeps its own partition, and with it the order of its events.
        for piece in batch.pieces(PIECE_BYTES):
            message = piece.written(self._pipeline.name)
            producer.give(self._topology.clean.name, message, partition)

    def _bury(
        self,
        partition: int,
        records: Records,
        decoded: Decoded,
        bad: Ints,
        producer: Producer,
        ledger: Ledger,
    ) -> None:
        """Send bad events on with their original bytes, reason and origin."""
        identity = origins(
            self._topology.source.name, records.partitions[bad], records.offsets[bad]
        )
        reasons = decoded.reasons[bad]
        for number, count in enumerate(np.bincount(reasons).tolist()):
            if count:
                ledger.add(partition, outcome.dead(Reason(number).label), count)
        labels = _LABELS.take(reasons.astype(np.int64))
        details = Column.of([decoded.details[row].encode() for row in bad.tolist()])
        events = Column(records.data, records.bounds).take(bad)
        producer.send_many(
            self._topology.dead_letter.name,
            0,
            events.data,
            events.bounds,
            headers=(
                (ORIGIN, (identity.data, identity.bounds)),
                (REASON, (labels.data, labels.bounds)),
                (DETAIL, (details.data, details.bounds)),
            ),
            tombstones=records.tombstones[bad],
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
