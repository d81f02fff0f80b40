"""Does to a running pipeline what the schedule says, from the thread that owns the processes."""

from __future__ import annotations

import contextlib
import heapq
import signal
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

import psycopg

from tests.chaos.schedule import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from deploy.local.kafka import Broker
    from deploy.local.postgres import Database
    from deploy.local.services import Service
    from deploy.local.stack import Stack
    from dovetail.testing.pipeline import RunningPipeline
    from tests.chaos.schedule import Fault

_RETRY_S = 0.2
_CUT = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'
"""


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the timeline."""

    at: float
    text: str
    sent: int
    """How many events had been sent by then."""
    is_fault: bool
    """Else it is the end of one, or what else is worth a line."""
    is_kill: bool = False
    """Of one process that is started again."""


@dataclass(order=True)
class _Due:
    at: float
    number: int
    act: Callable[[], None] = field(compare=False)


class Saboteur:
    def __init__(
        self,
        stack: Stack,
        pipeline: RunningPipeline,
        faults: Sequence[Fault],
        clock: Callable[[], float],
        sent: Callable[[], int],
        report: Callable[[str], None],
    ) -> None:
        self._stack = stack
        self._pipeline = pipeline
        self._clock = clock
        self._sent = sent
        self._report = report
        self._numbers = count()
        self._due: list[_Due] = []
        self._stopped: list[Service] = []
        self._down: list[Broker | Database] = []
        self.timeline: list[Entry] = []
        self.kills: list[str] = []
        """The processes killed, by name."""
        self.zombies: list[Service] = []
        for fault in faults:
            self._at(fault.at, partial(self._do, fault))

    @property
    def is_done(self) -> bool:
        return not self._due

    def act(self) -> None:
        """Do everything that is due by now."""
        while self._due and self._due[0].at <= self._clock():
            heapq.heappop(self._due).act()

    def make_good(self) -> None:
        """Let everything run again that is stopped or down, however the run has ended."""
        self._due.clear()
        for service in list(self._stopped):
            self._go_on(service)
        for part in list(self._down):
            self._up(part, "")
        self._stack.broker.wait_until_healthy()
        self._stack.database.wait_until_healthy()

    # --- what a fault is

    def _do(self, fault: Fault) -> None:
        match fault.kind:
            case Kind.KILL | Kind.KILL_TWICE | Kind.TERMINATE | Kind.FREEZE | Kind.ZOMBIE:
                self._hit(fault)
            case Kind.BROKER_KILL:
                self._outage(fault, self._stack.broker, signal.SIGKILL)
            case Kind.BROKER_STOP:
                self._outage(fault, self._stack.broker, signal.SIGTERM)
            case Kind.DATABASE_IMMEDIATE:
                self._outage(fault, self._stack.database, signal.SIGQUIT)
            case Kind.DATABASE_FAST:
                self._outage(fault, self._stack.database, signal.SIGINT)
            case Kind.DATABASE_CUT:
                self._cut(fault)
            case Kind.ROLLING:
                self._roll(fault)
            case _:
                self._change_nodes(fault)

    def _hit(self, fault: Fault) -> None:
        """A fault of one process; put off while that does not run."""
        name = self._present(fault.service)
        age = self._pipeline.lifetime(name)
        if not age:
            self._later(_RETRY_S, partial(self._hit, fault))
            return
        is_kill = fault.kind is Kind.KILL
        text = f"{fault.kind}: {name}, {age:.1f} s after its start"
        self._tell(text, is_fault=True, is_kill=is_kill)
        match fault.kind:
            case Kind.TERMINATE:
                self._pipeline.send_signal(name, signal.SIGTERM)
            case Kind.FREEZE:
                self._freeze(self._pipeline.service(name), fault)
            case Kind.ZOMBIE:
                self._pipeline.send_signal(name, signal.SIGSTOP)
                self.zombies.append(self._pipeline.replace(name))
                self._freeze(self.zombies[-1], fault)
            case _:
                self._kill(name)
                if fault.kind is Kind.KILL_TWICE:
                    self._later(_RETRY_S, partial(self._kill_starting, name, fault.seconds))

    def _kill(self, name: str) -> None:
        self._pipeline.kill(name)
        self.kills.append(name)

    def _kill_starting(self, name: str, age: float) -> None:
        name = self._present(name)
        if self._pipeline.lifetime(name) < age:
            self._later(0.02, partial(self._kill_starting, name, age))
            return
        seconds = self._pipeline.lifetime(name)
        self._tell(f"kill -9: {name}, {seconds:.1f} s after its start", is_fault=True)
        self._kill(name)

    def _freeze(self, service: Service, fault: Fault) -> None:
        service.process.send(signal.SIGSTOP)
        self._stopped.append(service)
        self._later(fault.seconds, partial(self._go_on, service))

    def _go_on(self, service: Service) -> None:
        if service in self._stopped:
            self._stopped.remove(service)
            service.process.send(signal.SIGCONT)
            self._tell(f"SIGCONT: {service.process.name}")

    def _outage(self, fault: Fault, part: Broker | Database, number: signal.Signals) -> None:
        self._tell(f"{fault.kind}, for {fault.seconds:.1f} s", is_fault=True)
        part.send(number)
        self._down.append(part)
        self._later(fault.seconds, partial(self._up, part, fault.kind.partition(":")[0]))

    def _up(self, part: Broker | Database, name: str) -> None:
        """Start it anew, without waiting until it answers."""
        if part in self._down:
            self._down.remove(part)
            # A clean stop may still be under way.
            part.stop()
            part.prepare()
            part.start()
            self._tell(f"{name or 'broker or PostgreSQL'}: started")

    def _cut(self, fault: Fault) -> None:
        with (
            contextlib.suppress(psycopg.OperationalError),
            psycopg.connect(self._stack.database.url, connect_timeout=2) as connection,
        ):
            cut = len(connection.execute(_CUT).fetchall())
            self._tell(f"{fault.kind}, {cut} of them", is_fault=True)
            return
        # It does not answer: an outage is under way.
        self._later(_RETRY_S, partial(self._cut, fault))

    def _roll(self, fault: Fault) -> None:
        self._tell(fault.kind, is_fault=True)
        for number, name in enumerate(self._pipeline.names()):
            self._later(number * fault.seconds, partial(self._restart, name))

    def _restart(self, name: str) -> None:
        if name in self._pipeline.names():
            self._pipeline.send_signal(name, signal.SIGTERM)

    def _change_nodes(self, fault: Fault) -> None:
        gone = ", ".join(map(str, fault.nodes))
        new = ", ".join(map(str, fault.new_nodes))
        change = " and ".join([f"{gone} leave"] * bool(gone) + [f"{new} join"] * bool(new))
        self._tell(f"{fault.kind}: {change}", is_fault=True)
        number = signal.SIGKILL if fault.kind is Kind.NODE_LOST else signal.SIGTERM
        for node in fault.new_nodes:
            self._pipeline.add_node(node)
        for node in fault.nodes:
            self._pipeline.remove_node(node, number)

    # --- how it is done

    def _present(self, name: str) -> str:
        """The process itself, or one of its kind if its node has left meanwhile."""
        names = self._pipeline.names()
        kind = name.partition("-")[0]
        return name if name in names else next(n for n in names if n.partition("-")[0] == kind)

    def _later(self, seconds: float, act: Callable[[], None]) -> None:
        self._at(self._clock() + seconds, act)

    def _at(self, moment: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._due, _Due(moment, next(self._numbers), act))

    def _tell(self, text: str, *, is_fault: bool = False, is_kill: bool = False) -> None:
        self.timeline.append(Entry(self._clock(), text, self._sent(), is_fault, is_kill))
        self._report(f"{self._clock():7.1f} s  {text}")
