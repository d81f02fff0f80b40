"""Sends every event to the slot of its join key."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dovetail.join.mapper import Mapper, groups
from dovetail.pipeline.spec import KeyType
from dovetail.stream import ledger as outcome
from dovetail.stream.batch import PIECE_BYTES, EventBatch, batches_of
from dovetail.stream.loop import Handler

if TYPE_CHECKING:
    from dovetail.pipeline.spec import Pipeline
    from dovetail.stream.ledger import Ledger
    from dovetail.stream.rdkafka import Producer, Records
    from dovetail.topology import Topology


class MapperHandler(Handler):
    def __init__(self, pipeline: Pipeline, topology: Topology) -> None:
        self._pipeline = pipeline
        self._topic = topology.mapped.name
        self._mapper = Mapper(pipeline.slots, int_key=pipeline.key_type is KeyType.INT)
        self._by_slot = np.zeros(pipeline.slots, np.int64)

    def handle(self, records: Records, producer: Producer, ledger: Ledger) -> None:
        batches = batches_of(records)
        for partition, batch in batches:
            ledger.add(partition, outcome.IN, len(batch))
            ledger.add(partition, outcome.MAPPED, len(batch))
        # All batches at once: fewer and larger messages a slot.
        events = EventBatch.concatenate([batch for _, batch in batches])
        for slot, positions in groups(self._mapper.slots(events.keys)):
            self._by_slot[slot] += len(positions)
            for piece in events.take(positions).pieces(PIECE_BYTES):
                producer.send(self._topic, piece.to_message(self._pipeline.name, slot), slot)

    def figures(self) -> dict[str, float]:
        mean = self._by_slot.mean()
        return {"slot_skew": float(self._by_slot.max() / mean) if mean else 1.0}
