"""Writes what a node has done (node/step.py) to the topics of its link, and counts it.

What the last table of a chain puts out goes to the sink, and what one before it does to the next.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

import numpy as np

from dovetail.join.columns import Column
from dovetail.join.mapper import Mapper
from dovetail.node.step import (
    Bad,
    Counted,
    Evicted,
    Kind,
    Letters,
    Migrating,
    Missed,
    Outputs,
    Progressed,
    counted,
)
from dovetail.pipeline.spec import KeyType
from dovetail.stream import ledger as outcome
from dovetail.stream.batch import UNMAPPED
from dovetail.stream.events.reasons import Reason
from dovetail.stream.migrations import send_evictions, send_migrations
from dovetail.stream.onward import Onward
from dovetail.stream.provenance import DETAIL, ORIGIN, REASON, VIA, origins

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dovetail.join.columns import Bytes, Ints, SmallInts
    from dovetail.node.step import Part
    from dovetail.service.metrics import Latency
    from dovetail.stream.ledger import Ledger
    from dovetail.stream.rdkafka import Producer
    from dovetail.topology import Topic, Topology

log = logging.getLogger(__name__)

_LABELS = Column.of([reason.label.encode() for reason in Reason])


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
        self._progress = topology.told_progress
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
                _count(ledger, outcome.OUTPUTS, part.slot, part.of.partitions[part.events])
            case Letters():
                self._send(part, producer)
                _count(ledger, part.outcome, part.slot, part.of.partitions)
            case Bad():
                bury(part, self._topology, producer, ledger)
            case Counted(slot, name, partitions):
                _count(ledger, name, slot, partitions)
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
            self._onward.send(producer, part.slots, part.outputs, *places, of.timestamps[events])
            return
        producer.send_many(
            self._topology.enriched.name,
            part.slots,
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
        ledger.set_progress(part.partition, part.number)
        if part.message is not None:
            key = b"%d" % part.partition
            place = part.partition % self._progress.partitions
            producer.send(self._progress.name, part.message, place, key=key)


def bury(bad: Bad, topology: Topology, producer: Producer, ledger: Ledger) -> None:
    """Send bad events on with their original bytes, reason and origin, and count them."""
    for reason in np.unique(bad.reasons).tolist():
        of = bad.partitions[bad.reasons == reason]
        _count(ledger, outcome.dead(Reason(reason).label), UNMAPPED, of)
    _count(ledger, outcome.IN, UNMAPPED, bad.partitions)
    origin = origins(topology.source.name, bad.partitions, bad.offsets)
    producer.send_many(
        topology.dead_letter.name,
        0,
        bad.events.data,
        bad.events.bounds,
        headers=(
            (ORIGIN, _column(origin)),
            (REASON, _column(_LABELS.take(bad.reasons.astype(np.int64)))),
            (DETAIL, _column(bad.details)),
        ),
        tombstones=bad.tombstones,
    )


def _count(ledger: Ledger, name: str, slot: int, partitions: SmallInts) -> None:
    for partition, events in counted(slot, partitions):
        ledger.add(partition, name, events)


def _column(column: Column) -> tuple[Bytes, Ints]:
    return column.data, column.bounds
