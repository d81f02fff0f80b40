"""Parking: what cannot be answered is set aside on the topic `parked`, and the others go on."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from dovetail.stream import ledger as outcome
from dovetail.stream.provenance import DETAIL, ORIGIN, REASON, origins

if TYPE_CHECKING:
    from dovetail.stream.answer import Sourced
    from dovetail.stream.ledger import Ledger
    from dovetail.stream.rdkafka import Producer
    from dovetail.topology import Topology

log = logging.getLogger(__name__)

TOO_MANY_ROWS = b"too-many-rows"
UNFIT_KEY = b"unfit-key"
TOO_LARGE = b"output-too-large"


def park(
    producer: Producer,
    topology: Topology,
    ledger: Ledger,
    slot: int,
    batch: Sourced,
    reason: bytes,
    detail: str,
) -> None:
    """Send a slot's events aside, with their reason and its detail, and count them as parked."""
    events = batch.events
    log.error(
        "events parked",
        extra={"events": len(events), "reason": reason.decode(), "detail": detail, "slot": slot},
    )
    origin = origins(topology.source.name, batch.partitions, batch.offsets)
    producer.send_many(
        topology.parked.name,
        0,
        events.data,
        events.bounds,
        headers=(
            (ORIGIN, (origin.data, origin.bounds)),
            (REASON, reason),
            (DETAIL, detail.encode()),
        ),
    )
    ledger.add(slot, outcome.PARKED, len(events))
