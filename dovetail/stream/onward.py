"""Hands what one table of a chain has enriched on to the next, by the slot of that one's key.

The key stands in the event as it is by now, be it in the event's own bytes or in a row that was
spliced to them, so it is read there: the event's other fields are passed over, not judged again.

A row may hold what the pipeline does not say of its column, and then the key is not of its type.
Such an event is sent on as unfit, with the reason; the next table parks it, and counts it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dovetail.join.mapper import Mapper, groups
from dovetail.pipeline.spec import KeyType
from dovetail.stream.batch import PIECE_BYTES, EventBatch
from dovetail.stream.events.decode import JsonDecoder
from dovetail.stream.events.reasons import Reason
from dovetail.stream.events.schema import EventSchema, Field, FieldType
from dovetail.topology import LARGEST_MESSAGE_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dovetail.join.columns import Column, Ints, SmallInts
    from dovetail.pipeline.spec import Pipeline
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
        slots: int | SmallInts,
        events: Column,
        partitions: SmallInts,
        offsets: Ints,
        timestamps: Ints,
    ) -> None:
        """Send events on; those without a key by the slot that they come from, or each by its."""
        of_each = None if isinstance(slots, int) else slots
        keyed, *others = self.rekeyed(events, partitions, offsets, timestamps, of_each)
        for to, places in groups(self._mapper.slots(keyed.keys)):
            self._produce(producer, to, keyed.take(places))
        for batch in others:
            if batch.slots is None:
                assert isinstance(slots, int)
                self._produce(producer, slots, batch)
            else:
                for to, places in groups(batch.slots):
                    self._produce(producer, to, batch.take(places))

    def rekeyed(
        self,
        events: Column,
        partitions: SmallInts,
        offsets: Ints,
        timestamps: Ints,
        slots: SmallInts | None = None,
    ) -> Iterator[EventBatch]:
        """The events by their keys for this link.

        First those that have one, then those that have none, then the unfit ones by their reason.
        """
        decoded = self._decoder.decode(events.data, events.bounds, np.zeros(len(events), np.bool_))

        def batch(rows: Ints, *, keyless: bool = True, unfit: str = "") -> EventBatch:
            return EventBatch(
                decoded.join_keys(rows),
                events if len(rows) == len(events) else events.take(rows),
                partitions[rows],
                offsets[rows],
                timestamps[rows],
                slots=None if slots is None else slots[rows],
                keyless=keyless,
                unfit=unfit,
            )

        yield batch(np.flatnonzero(decoded.valid), keyless=False)
        if decoded.valid.all():
            return
        keyless = ~decoded.valid & np.isin(decoded.reasons, _KEYLESS)
        if keyless.any():
            yield batch(np.flatnonzero(keyless))
        unfit = np.where(decoded.valid | keyless, Reason.GOOD, decoded.reasons)
        for reason, rows in groups(unfit.astype(np.int32)):
            if reason != Reason.GOOD:
                yield batch(rows, unfit=self._why(Reason(reason)))

    def _produce(self, producer: Producer, slot: int, batch: EventBatch) -> None:
        for piece in batch.pieces(PIECE_BYTES):
            message = piece.written(self._link.name, slot)
            producer.give(self._topology.mapped.name, message, slot)

    def _why(self, reason: Reason) -> str:
        return (
            f"the key {', '.join(self._link.key)} of {self._link.master.table} is not what the"
            f" pipeline says ({reason.label}): correct then.{self._topology.number - 2}.fields to"
            f" the type of that column, or the row"
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
