"""Gathers what the services say of themselves and what their ledgers say of the events."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from confluent_kafka import OFFSET_END, Consumer, TopicPartition

from dovetail.audit import Audit, Auditor
from dovetail.contracts.control_pb2 import Heartbeat
from dovetail.errors import Unavailable
from dovetail.topology import STATS_TOPIC
from services.control.purge import Purge

if TYPE_CHECKING:
    from dovetail.settings import Settings
    from dovetail.topology import Topology

log = logging.getLogger(__name__)

SILENT_S = 5.0
"""A service not heard of for so long counts as gone."""
_AUDIT_EVERY_S = 1.0
_PURGE_EVERY_S = 30.0
_SMOOTHING = 0.3


@dataclass(slots=True)
class Member:
    """One process of a service, as last heard."""

    beat: Heartbeat
    heard: float
    rates: dict[str, float] = field(default_factory=dict)

    def hear(self, beat: Heartbeat, now: float) -> None:
        if beat.pid == self.beat.pid and beat.at_ms > self.beat.at_ms:
            seconds = (beat.at_ms - self.beat.at_ms) / 1000
            for name, value in beat.figures.items():
                if name.startswith("events.") or name == "cpu_seconds":
                    rate = (value - self.beat.figures.get(name, 0.0)) / seconds
                    before = self.rates.get(name, rate)
                    self.rates[name] = before + _SMOOTHING * (rate - before)
        else:
            self.rates = {}
        self.beat = beat
        self.heard = now


class Monitor:
    """Keeps the latest of everything, in a thread of its own."""

    def __init__(self, settings: Settings, topology: Topology) -> None:
        self._settings = settings
        self._topology = topology
        self._members: dict[tuple[str, int], Member] = {}
        self._audit: Audit | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="monitor", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(timeout=10)

    @property
    def ready(self) -> bool:
        return self._audit is not None

    def audit(self) -> Audit:
        """The sum as of now, not as of the last look."""
        with closing(Auditor(self._settings, self._topology)) as auditor:
            return auditor.audit()

    def stats(self) -> dict[str, Any]:
        now = time.monotonic()
        return {
            "pipeline": self._topology.pipeline.name,
            "totals": None if self._audit is None else totals(self._audit),
            "services": [
                {
                    "service": service,
                    "node": node,
                    "state": _state(member, now),
                    "reason": member.beat.reason,
                    "url": member.beat.url,
                    "pid": member.beat.pid,
                    "rates": dict(member.rates),
                    "figures": dict(member.beat.figures),
                }
                for (service, node), member in sorted(self._members.items(), key=self._order)
            ],
        }

    def _order(self, item: tuple[tuple[str, int], Member]) -> tuple[int, int]:
        """In the order in which the data flows."""
        (service, node), _ = item
        names = [stage.service for stage in self._topology.stages]
        return (names.index(service) if service in names else len(names), node)

    def _run(self) -> None:
        consumer = Consumer(
            self._settings.client({"group.id": "dovetail.control", "enable.auto.commit": False})
        )
        consumer.assign([TopicPartition(STATS_TOPIC, 0, OFFSET_END)])
        auditor = Auditor(self._settings, self._topology)
        purge = Purge(self._settings, self._topology)
        audited = 0.0
        purged = time.monotonic()
        with closing(consumer), closing(auditor), closing(purge):
            while not self._stop.is_set():
                for message in consumer.consume(100, 0.2):
                    if message.error() is None:
                        self._hear(Heartbeat.FromString(message.value() or b""))
                now = time.monotonic()
                try:
                    if now - audited >= _AUDIT_EVERY_S:
                        self._audit = auditor.audit()
                        audited = now
                    if now - purged >= _PURGE_EVERY_S:
                        purge.run()
                        purged = now
                except Unavailable as error:
                    log.warning("the broker does not answer", extra={"reason": str(error)})

    def _hear(self, beat: Heartbeat) -> None:
        if beat.pipeline != self._topology.pipeline.name:
            return
        key = (beat.service, beat.node)
        if key in self._members:
            self._members[key].hear(beat, time.monotonic())
        else:
            self._members[key] = Member(beat, time.monotonic())


def totals(seen: Audit) -> dict[str, Any]:
    return {
        "in": seen.taken,
        "copies": seen.copies,
        "enriched": seen.enriched,
        "unmatched": seen.unmatched,
        "parked": seen.parked,
        "dead_lettered": seen.dead_lettered,
        "shed": seen.shed,
        "in_flight": seen.in_flight,
        "waiting": seen.waiting,
        "outputs": seen.outputs,
        "hit_rate": seen.hit_rate,
        "dead_by_reason": {
            name.split(".", 1)[1]: count
            for name, count in seen.stages["ingest"].items()
            if name.startswith("dead.")
        },
        "shed_by_strategy": {
            name.split(".", 1)[1]: count
            for name, count in seen.stages["mapper"].items()
            if name.startswith("shed.")
        },
        "equation": seen.equation(),
        "problems": seen.problems,
    }


def _state(member: Member, now: float) -> str:
    if now - member.heard > SILENT_S:
        return "gone"
    return str(Heartbeat.State.Name(member.beat.state)).removeprefix("STATE_").lower()
