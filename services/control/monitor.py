"""Gathers what the services say of themselves and what their ledgers say of the events."""

from __future__ import annotations

import logging
import math
import threading
import time
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from confluent_kafka import OFFSET_END, Consumer, TopicPartition
from google.protobuf.message import DecodeError

from dovetail.audit import Audit, Auditor
from dovetail.contracts.control_pb2 import Heartbeat
from dovetail.errors import NotAllowedError, Unavailable
from dovetail.service.metrics import split
from dovetail.stream import ledger
from dovetail.topology import STATS_TOPIC, Process
from services.control.purge import Purge

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dovetail.settings import Settings
    from dovetail.topology import Topology

log = logging.getLogger(__name__)

SILENT_S = 5.0
"""A service not heard of for so long counts as gone."""
_AUDIT_EVERY_S = 1.0
_PURGE_EVERY_S = 30.0
_TICK_S = 0.5
_HUNG_S = 300.0
"""A thread that has made no turn for so long is stuck."""
_SMOOTHING = 0.3
_REMEMBERED_S = 3600.0
"""So long a process that is gone is still told of."""
_RATES = ("in", "enriched", "unmatched", "parked", "dead_lettered", "shed", "outputs")
GONE = "gone"
_MOST_NODES = 1024


@dataclass(slots=True)
class Member:
    """One process of a service, as last heard."""

    beat: Heartbeat
    heard: float
    rates: dict[str, float] = field(default_factory=dict)

    def hear(self, beat: Heartbeat, now: float) -> None:
        if self._goes_on(beat):
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

    def _goes_on(self, beat: Heartbeat) -> bool:
        """Whether it counts on from before: one that runs itself anew keeps its pid."""
        same = beat.pid == self.beat.pid and beat.at_ms > self.beat.at_ms
        cpu = "cpu_seconds"
        return same and beat.figures.get(cpu, 0.0) >= self.beat.figures.get(cpu, 0.0)

    @property
    def name(self) -> str:
        return f"{self.beat.service}-{self.beat.node}"

    def state(self, now: float) -> str:
        if now - self.heard > SILENT_S:
            return GONE
        return str(Heartbeat.State.Name(self.beat.state)).removeprefix("STATE_").lower()

    def shown(self, now: float) -> dict[str, Any]:
        figures = self.beat.figures
        known = ("held_bytes", "budget_bytes", "lag", "resident_bytes")
        return {
            "service": self.beat.service,
            "node": self.beat.node,
            "state": self.state(now),
            "reason": self.beat.reason,
            "heard_s": round(now - self.heard, 1),
            "url": self.beat.url,
            "pid": self.beat.pid,
            "revision": self.beat.revision,
            "partitions": list(self.beat.partitions),
            **{name: figures.get(name) for name in known},
            "rates": dict(self.rates),
            "figures": dict(figures),
        }


@dataclass(frozen=True, slots=True)
class Tick:
    """What else is done every so often; whatever is away then is tried again the next time."""

    every_s: float
    do: Callable[[], None]


@dataclass(frozen=True, slots=True)
class Heard:
    """When a process was heard last, and whether it was ready then."""

    silence_s: float
    ready: bool

    @property
    def gone(self) -> bool:
        return self.silence_s > SILENT_S


class Monitor:
    """Keeps the latest of everything, in a thread of its own."""

    def __init__(self, settings: Settings, topology: Topology, ticks: Sequence[Tick] = ()) -> None:
        self._settings = settings
        self._topology = topology
        self._members: dict[tuple[str, int], Member] = {}
        self._audit: Audit | None = None
        self.alarm = ""
        """Why the sum is not of this moment; empty when it is."""
        self._rates: dict[str, float] = {}
        self._ticks = [(tick, time.monotonic()) for tick in ticks]
        self._stop = threading.Event()
        self._turned_at: dict[str, float] = {}
        self._threads = [
            threading.Thread(target=self._run, name="monitor", daemon=True),
            # Of its own: who waits for the database must not miss a heartbeat.
            threading.Thread(target=self._run_ticks, name="ticks", daemon=True),
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(timeout=10)

    def failed(self) -> str:
        """Why only a new process helps; empty while its threads do their work."""
        now = time.monotonic()
        for thread in self._threads:
            at = self._turned_at.get(thread.name)
            if thread.ident is not None and not thread.is_alive() and not self._stop.is_set():
                return f"the thread {thread.name!r} has ended: see the log"
            if at is not None and now - at > _HUNG_S:
                return f"the thread {thread.name!r} has made no turn for {now - at:.0f} s"
        return ""

    def _turned(self) -> None:
        self._turned_at[threading.current_thread().name] = time.monotonic()

    def every(self, tick: Tick) -> None:
        """Do this, too; before it is started."""
        self._ticks.append((tick, time.monotonic()))

    @property
    def ready(self) -> bool:
        return self._audit is not None

    @property
    def last_audit(self) -> Audit | None:
        """The sum as of the last look; None before the first."""
        return self._audit

    def audit(self) -> Audit:
        """The sum as of now, not as of the last look."""
        with closing(Auditor(self._settings, self._topology)) as auditor:
            return auditor.audit()

    @property
    def topology(self) -> Topology:
        return self._topology

    def heard(self) -> dict[str, Heard]:
        """Every process that was ever heard, by its name."""
        now = time.monotonic()
        per_node = {stage.service for stage in self._topology.stages if stage.per_node}
        return {
            Process(service, node if service in per_node else None).name: Heard(
                now - member.heard, member.beat.state == Heartbeat.STATE_READY
            )
            for (service, node), member in self._members.copy().items()
        }

    def members(self) -> list[Member]:
        """Every process heard of lately, in the order in which the data flows."""
        return [member for _, member in sorted(self._members.items(), key=self._order)]

    def stats(self) -> dict[str, Any]:
        now = time.monotonic()
        return {
            "pipeline": self._topology.pipeline.name,
            "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "totals": None if self._audit is None else totals(self._audit),
            "rates": dict(self._rates),
            "services": [member.shown(now) for member in self.members()],
        }

    def _order(self, item: tuple[tuple[str, int], Member]) -> tuple[int, int]:
        """In the order in which the data flows."""
        (service, node), _ = item
        names = [stage.service for stage in self._topology.stages]
        return (names.index(service) if service in names else len(names), node)

    def _run(self) -> None:
        consumer = Consumer(
            self._settings.client(
                {"group.id": f"{STATS_TOPIC}.control", "enable.auto.commit": False}
            )
        )
        consumer.assign([TopicPartition(STATS_TOPIC, 0, OFFSET_END)])
        auditor = Auditor(self._settings, self._topology)
        audited = 0.0
        with closing(consumer), closing(auditor):
            while not self._stop.is_set():
                self._turned()
                now = time.monotonic()
                try:
                    for message in consumer.consume(100, 0.2):
                        if message.error() is None:
                            self._hear(message.value() or b"")
                    if now - audited >= _AUDIT_EVERY_S:
                        self._learn(auditor.audit(), now - audited)
                        audited = now
                except (Unavailable, NotAllowedError) as error:
                    self._warn(str(error))
                except Exception as error:  # noqa: BLE001 - told, and the next look may be better
                    # Whatever somebody has written to a topic or beside an offset.
                    self._warn(repr(error))
                    audited = now

    def _warn(self, reason: str) -> None:
        self.alarm = f"the sum cannot be taken: {reason}"
        log.warning("the sum cannot be taken", extra={"reason": reason})

    def _run_ticks(self) -> None:
        with closing(Purge(self._settings, self._topology)) as purge:
            self.every(Tick(_PURGE_EVERY_S, purge.run))
            while not self._stop.wait(_TICK_S):
                self._turned()
                for number, (tick, done) in enumerate(self._ticks):
                    now = time.monotonic()
                    if now - done >= tick.every_s:
                        self._ticks[number] = (tick, now)
                        self._do(tick)

    def _do(self, tick: Tick) -> None:
        try:
            tick.do()
        except (Unavailable, NotAllowedError) as error:
            log.warning("the broker or the database is away", extra={"reason": str(error)})
        except Exception:
            # The others go on: topics that are not purged would grow for ever.
            log.exception("what is done every %s s has failed", tick.every_s)

    def _learn(self, seen: Audit, seconds: float) -> None:
        before = self._audit
        if before is not None:
            was, now = totals(before), totals(seen)
            for name in _RATES:
                rate = max(0.0, (now[name] - was[name]) / seconds)
                last = self._rates.get(name, rate)
                self._rates[name] = last + _SMOOTHING * (rate - last)
        self._audit = seen
        self.alarm = ""

    def _is_ours(self, beat: Heartbeat) -> bool:
        """Whether a process of the pipeline may have sent it: each is shown, kept and a label."""
        known = {process.service for process in self._topology.processes}
        return (
            beat.service in known
            and beat.node < _MOST_NODES
            and beat.state in Heartbeat.State.values()
        )

    def _hear(self, message: bytes) -> None:
        try:
            beat = Heartbeat.FromString(message)
        except DecodeError as error:
            log.warning("a heartbeat cannot be read", extra={"reason": str(error)})
            return
        if beat.pipeline != self._topology.pipeline.name:
            return
        if not self._is_ours(beat):
            log.warning(
                "a heartbeat is refused: no process of the pipeline sends it",
                extra={"of": beat.service[:80], "node": beat.node},
            )
            return
        for name in [name for name, value in beat.figures.items() if not math.isfinite(value)]:
            del beat.figures[name]  # JSON cannot hold it
        key, now = (beat.service, beat.node), time.monotonic()
        if key in self._members:
            self._members[key].hear(beat, now)
        else:
            self._members[key] = Member(beat, now)
        for other, member in list(self._members.items()):
            if now - member.heard > _REMEMBERED_S:
                del self._members[other]


def totals(seen: Audit) -> dict[str, Any]:
    return {
        "in": seen.taken,
        "copies": seen.copies,
        "enriched": seen.enriched,
        "late": seen.late[ledger.LATE],
        "unmatched": seen.unmatched,
        "parked": seen.parked,
        "dead_lettered": seen.dead_lettered,
        "shed": seen.shed,
        "lost": seen.lost,
        "in_flight": seen.in_flight,
        "waiting": seen.waiting,
        "outputs": seen.outputs,
        "hit_rate": seen.hit_rate,
        "moved": {
            name: seen.late[ledger.of(name)]
            for name in (ledger.SHED, ledger.UNMATCHED, ledger.PARKED)
        },
        "dead_by_reason": _by_reason(seen, ledger.DEAD),
        "shed_by_strategy": _by_reason(seen, ledger.SHED),
        "equation": seen.equation(),
        "problems": seen.problems,
    }


def _by_reason(seen: Audit, outcome: str) -> dict[str, int]:
    reasons = {split(name): count for name, count in seen.counts.items()}
    return {reason: count for (name, reason), count in reasons.items() if name == outcome}
