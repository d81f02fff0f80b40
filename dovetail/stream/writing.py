"""Writes what a node has done (node/step.py) to the topics of its link, and counts it.

What the last table of a chain puts out goes to the sink, and what one before it does to the next.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from dovetail.join.mapper import Mapper
from dovetail.node.step import (
    Counted,
    Evicted,
    Kind,
    Letters,
    Migrating,
    Missed,
    Outputs,
    Progressed,
)
from dovetail.pipeline.spec import KeyType
from dovetail.stream import ledger as outcome
from dovetail.stream.migrations import send_evictions, send_migrations
from dovetail.stream.onward import Onward
from dovetail.stream.provenance import DETAIL, ORIGIN, REASON, VIA, origins

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dovetail.join.columns import Bytes, Column, Ints
    from dovetail.node.step import Part
    from dovetail.service.metrics import Latency
    from dovetail.stream.ledger import Ledger
    from dovetail.stream.rdkafka import Producer
    from dovetail.topology import Topic, Topology

log = logging.getLogger(__name__)


class PartWriter:
    """Writes parts of the steps of one link."""

    def __init__(
        self, topology: Topology, latency: Latency, unmatched: Topic | None = None
    ) -> None:
        """`topology` is seen from the link; `unmatched` may be another's topic."""
        link = topology.pipeline.link(topology.number)
        self._topology = topology
        self._int_key = link.key_type is KeyType.INT
        self._mapper = Mapper(link.slots, int_key=self._int_key)
        self._latency = latency
        self._onward = None if topology.next is None else Onward(topology.next)
        self._letters = {
            Kind.UNMATCHED: unmatched or topology.unmatched,
            Kind.PARKED: topology.parked,
            Kind.SHED: topology.shed,
        }

    def write(self, parts: Iterable[Part], producer: Producer, ledger: Ledger) -> None:
        """Write each part before the next is made: together they have no bound."""
        for part in parts:
            self._write(part, producer, ledger)

    def _write(self, part: Part, producer: Producer, ledger: Ledger) -> None:
        match part:
            case Outputs():
                self._put_out(part, producer)
                ledger.add(part.slot, outcome.OUTPUTS, len(part.outputs))
            case Letters():
                self._send(part, producer)
                ledger.add(part.slot, part.outcome, len(part.of.events))
            case Counted(slot, name, events):
                ledger.add(slot, name, events)
            case Missed(slot, batch):
                message = batch.written(self._topology.pipeline.name, slot)
                producer.give(self._topology.missed.name, message, slot)
                ledger.add(slot, outcome.MISSED, len(batch))
            case Migrating():
                self._migrate(part, producer)
            case Evicted(keys):
                to = self._topology.migrations, self._mapper
                send_evictions(producer, *to, keys, int_key=self._int_key)
            case Progressed():
                self._note(part, producer, ledger)

    def _put_out(self, part: Outputs, producer: Producer) -> None:
        of, events = part.of, part.events
        places = of.partitions[events], of.offsets[events]
        if self._onward is not None:
            self._onward.send(producer, part.slot, part.outputs, *places, of.timestamps[events])
            return
        producer.send_many(
            self._topology.enriched.name,
            part.slot,
            part.outputs.data,
            part.outputs.bounds,
            headers=(
                (ORIGIN, _column(origins(self._topology.source.name, *places))),
                (VIA, part.via if isinstance(part.via, bytes) else _column(part.via)),
            ),
        )
        self._latency.observe(time.time_ns() // 1_000_000 - of.timestamps[events])

    def _send(self, part: Letters, producer: Producer) -> None:
        of, detail = part.of, part.detail
        if part.kind is Kind.PARKED:
            told = {"events": len(of.events), "reason": part.reason.decode(), "slot": part.slot}
            log.error("events parked", extra={**told, "detail": detail})
        origin = origins(self._topology.source.name, of.partitions, of.offsets)
        details = ((DETAIL, detail.encode()),) if detail else ()
        producer.send_many(
            self._letters[part.kind].name,
            0,
            of.events.data,
            of.events.bounds,
            headers=((ORIGIN, _column(origin)), (REASON, part.reason), *details),
        )

    def _migrate(self, part: Migrating, producer: Producer) -> None:
        send_migrations(
            producer,
            self._topology.migrations,
            self._mapper,
            part.keys,
            part.entries,
            part.events,
            part.cycle,
            int_key=self._int_key,
            read_at_ms=int(part.read_at * 1000),
        )

    def _note(self, part: Progressed, producer: Producer, ledger: Ledger) -> None:
        ledger.set_progress(part.slot, part.number)
        if part.message is not None:
            key = b"%d" % part.slot
            producer.send(self._topology.progress.name, part.message, part.slot, key=key)


def _column(column: Column) -> tuple[Bytes, Ints]:
    return column.data, column.bounds
