"""Sends every event to the slot of its join key, or sheds it where the pipeline allows it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

import numpy as np

from dovetail.join.mapper import Mapper, groups
from dovetail.pipeline.spec import KeyType
from dovetail.stream import ledger as outcome
from dovetail.stream.deal import Deal
from dovetail.stream.handler import Handler
from dovetail.stream.provenance import ORIGIN, REASON, origins
from dovetail.stream.reader import BatchReader
from services.mapper.skew import Skew

if TYPE_CHECKING:
    from dovetail.join.columns import Flags, Ints, JoinKeys
    from dovetail.pipeline.spec import Pipeline
    from dovetail.stream.batch import EventBatch
    from dovetail.stream.ledger import Ledger
    from dovetail.stream.rdkafka import Producer, Records
    from dovetail.topology import Topology


class Guard(Protocol):
    """Who sheds in an overload; `OverloadGuard` over the phases' ledgers."""

    @property
    def strategy(self) -> str: ...

    def look(self) -> None: ...

    def admit(self, keys: JoinKeys) -> Flags | None: ...

    def figures(self) -> dict[str, float]: ...

    def close(self) -> None: ...


class MapperHandler(Handler):
    def __init__(self, pipeline: Pipeline, topology: Topology, guard: Guard | None = None) -> None:
        """Without a guard nothing is ever shed."""
        self._pipeline = pipeline
        self._topology = topology
        self._guard = guard
        self._reader = BatchReader(topology, topology.clean)
        self._mapper = Mapper(pipeline.slots, int_key=pipeline.key_type is KeyType.INT)
        self._skew = Skew(pipeline.slots, time.monotonic())

    def between_steps(self) -> None:
        if self._guard:
            self._guard.look()

    def handle(self, records: Records, producer: Producer, ledger: Ledger) -> None:
        batches = self._reader.read(records, producer)
        # All batches at once: fewer and larger messages a slot.
        deal = Deal([batch for _, batch in batches], records.data)
        kept = self._guard.admit(deal.keys) if self._guard else None
        first = 0
        for partition, batch in batches:
            end = first + len(batch)
            going = len(batch) if kept is None else int(np.count_nonzero(kept[first:end]))
            ledger.add(partition, outcome.IN, len(batch))
            ledger.add(partition, outcome.MAPPED, going)
            if self._guard:
                ledger.add(partition, outcome.shed(self._guard.strategy), len(batch) - going)
            first = end
        rows = np.arange(len(deal.keys))
        if kept is not None and self._guard:
            shed = deal.batch(np.flatnonzero(~kept))
            send_shed(producer, self._topology, shed, self._guard.strategy)
            rows = np.flatnonzero(kept)
        self._map(deal, rows, producer)

    def figures(self) -> dict[str, float]:
        return {
            "refused_messages": self._reader.refused,
            **self._skew.figures(),
            **(self._guard.figures() if self._guard else {}),
        }

    def close(self) -> None:
        if self._guard:
            self._guard.close()

    def _map(self, deal: Deal, rows: Ints, producer: Producer) -> None:
        by_slot = np.zeros(self._pipeline.slots, np.int64)
        for slot, positions in groups(self._mapper.slots(deal.keys)[rows]):
            by_slot[slot] = len(positions)
            for message in deal.messages(rows[positions], self._pipeline.name, slot):
                producer.give(self._topology.mapped.name, message, slot)
        self._skew.add(by_slot, time.monotonic())


def send_shed(producer: Producer, topology: Topology, events: EventBatch, strategy: str) -> None:
    """Send events on as they are, with the reason and their origin, to be completed later."""
    identity = origins(topology.source.name, events.partitions, events.offsets)
    reason = f"overload: {strategy}".encode()
    producer.send_many(
        topology.shed.name,
        0,
        events.events.data,
        events.events.bounds,
        headers=((ORIGIN, (identity.data, identity.bounds)), (REASON, reason)),
    )
