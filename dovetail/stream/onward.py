"""Hands what one table of a chain has enriched on to the next, by the slot of that one's key.

The key stands in the event as it is by now, be it in the event's own bytes or in a row that was
spliced to them, so it is read there: the event's other fields are passed over, not judged again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dovetail.errors import MasterDataError
from dovetail.join.mapper import Mapper, groups
from dovetail.pipeline.spec import KeyType
from dovetail.stream.batch import PIECE_BYTES, EventBatch
from dovetail.stream.events.decode import JsonDecoder
from dovetail.stream.events.reasons import Reason
from dovetail.stream.events.schema import EventSchema, Field, FieldType
from dovetail.topology import LARGEST_MESSAGE_BYTES

if TYPE_CHECKING:
    from dovetail.join.columns import Column, Flags, Ints, SmallInts
    from dovetail.pipeline.spec import Pipeline
    from dovetail.stream.events.decode import Decoded
    from dovetail.stream.rdkafka import Producer
    from dovetail.topology import Topology

_KEYLESS = (Reason.NULL_KEY, Reason.MISSING_KEY, Reason.INVALID_KEY)
"""A key that is not there equals nothing; nor does one that no text of PostgreSQL's can be."""


class Onward:
    def __init__(self, topology: Topology) -> None:
        """`topology` is the next link's."""
        self._topology = topology
        self._link = topology.pipeline.link(topology.number)
        self._mapper = Mapper(self._link.slots, int_key=self._link.key_type is KeyType.INT)
        self._decoder = JsonDecoder(key_schema(self._link), with_details=False)

    def send(
        self,
        producer: Producer,
        slot: int,
        events: Column,
        partitions: SmallInts,
        offsets: Ints,
        timestamps: Ints,
    ) -> None:
        """Send events on; those without a key by the slot that they come from."""
        keyed, keyless = self.rekeyed(events, partitions, offsets, timestamps)
        for to, places in groups(self._mapper.slots(keyed.keys)):
            self._produce(producer, to, keyed.take(places))
        if len(keyless):
            self._produce(producer, slot, keyless)

    def rekeyed(
        self, events: Column, partitions: SmallInts, offsets: Ints, timestamps: Ints
    ) -> tuple[EventBatch, EventBatch]:
        """The events by their keys for this link: those that have one, those that have none."""
        decoded = self._decoder.decode(events.data, events.bounds, np.zeros(len(events), np.bool_))
        keyless = ~decoded.valid & np.isin(decoded.reasons, _KEYLESS)
        self._require_keys(events, decoded, decoded.valid | keyless)

        def batch(rows: Ints, *, keyless: bool) -> EventBatch:
            return EventBatch(
                decoded.join_keys(rows),
                events if len(rows) == len(events) else events.take(rows),
                partitions[rows],
                offsets[rows],
                timestamps[rows],
                keyless=keyless,
            )

        return (
            batch(np.flatnonzero(decoded.valid), keyless=False),
            batch(np.flatnonzero(keyless), keyless=True),
        )

    def _produce(self, producer: Producer, slot: int, batch: EventBatch) -> None:
        for piece in batch.pieces(PIECE_BYTES):
            message = piece.written(self._link.name, slot)
            producer.give(self._topology.mapped.name, message, slot)

    def _require_keys(self, events: Column, decoded: Decoded, fit: Flags) -> None:
        unfit = np.flatnonzero(~fit)
        if len(unfit):
            first = int(unfit[0])
            place = f"then.{self._topology.number - 2}"
            raise MasterDataError(
                f"{len(unfit)} events cannot be joined with {self._link.master.table}: their key"
                f" {', '.join(self._link.key)} is not what the pipeline says"
                f" ({Reason(decoded.reasons[first]).label}); correct {place}.fields to the type of"
                f" that column. The first of them: {events[first][:500].decode(errors='replace')}"
            )


def key_schema(link: Pipeline) -> EventSchema:
    """Only the key's type counts; anything else may stand there or not."""
    fields = {
        path: Field(FieldType.named(field.type) if path in link.key else FieldType.JSON, True)
        for path, field in link.source.fields.items()
    }
    for path in link.key:
        fields[path] = Field(fields[path].type)
    return EventSchema(fields, link.key, LARGEST_MESSAGE_BYTES)
