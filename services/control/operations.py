"""What moves the whole pipeline: pause, resume, drain, read again, and new revisions.

Each is a job. It orders, and then waits until every process has said that it is so: control only
orders and looks, the services do it, and would without it.
"""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

from dovetail.audit import Auditor
from dovetail.errors import Unavailable
from dovetail.stream.ledger import MOVED, parse
from dovetail.topology import CACHE_PHASE, CONTROL, DISK_PHASE, Topology
from services.cache_phase.settings import budget as cache_budget
from services.control.jobs import CancelledError
from services.control.monitor import GONE
from services.control.store.commands import DRAIN, PAUSE, RESUME, Order
from services.disk_phase.settings import budget as disk_budget
from services.problem import conflict

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dovetail.pipeline.spec import Pipeline
    from dovetail.settings import Settings
    from services.access.roles import Who
    from services.control.commander import Commander
    from services.control.jobs import Jobs, Progress
    from services.control.monitor import Monitor
    from services.control.store.jobs import JobRow

_OBEYED_WITHIN_S = 120.0
_DRAINED_WITHIN_S = 3600.0
_STATES = {PAUSE: ("paused",), RESUME: ("ready",), DRAIN: ("paused",)}


class Operations:
    def __init__(
        self,
        settings: Settings,
        topology: Topology,
        monitor: Monitor,
        commander: Commander,
        jobs: Jobs,
    ) -> None:
        self._settings = settings
        self._topology = topology
        self._name = topology.pipeline.name
        self._monitor = monitor
        self._commander = commander
        self._jobs = jobs

    # ── what can be asked for ────────────────────────────────────────────────────────────

    def pause(self, who: Who, why: str, service: str | None) -> JobRow:
        return self._act(who, why, "pause", PAUSE, service)

    def resume(self, who: Who, why: str, service: str | None) -> JobRow:
        return self._act(who, why, "resume", RESUME, service)

    def start(self, who: Who, why: str) -> JobRow:
        """Let a pipeline go on whose processes are there."""
        now = time.monotonic()
        if not any(member.state(now) != GONE for member in self._monitor.members()):
            raise conflict(
                f"no process of {self._name} is there: start them with `make run`, or with Helm"
            )
        return self._act(who, why, "start", RESUME, None)

    def drain(self, who: Who, why: str) -> JobRow:
        def work(progress: Progress) -> None:
            before = self._commander.actions()
            try:
                self._drain(progress, who.name)
            except CancelledError:
                for action in sorted(set(before.values())):
                    same = [name for name, one in before.items() if one == action]
                    self._commander.act(who.name, action, same)
                raise

        return self._jobs.start(self._name, "drain", who.name, why, work)

    def restart(self, who: Who, why: str, offsets: dict[int, int], *, exact: bool) -> JobRow:
        """Read the source again from these offsets; unless exact, what is ahead stays as it is."""

        def work(progress: Progress) -> dict[str, Any]:
            before = self._commander.actions()
            self._drain(progress, who.name)
            moved = self._move(progress, who.name, offsets, exact=exact)
            for action in sorted(set(before.values())):
                same = [name for name, one in before.items() if one == action]
                numbers = self._commander.act(who.name, action, same, moved=True)
                self._obeyed(progress, numbers, _STATES[action])
            return {"moved": {str(number): list(span) for number, span in moved.items()}}

        return self._jobs.start(self._name, "restart", who.name, why, work)

    def settings(self, who: Who, why: str, revision: int, old: Pipeline, new: Pipeline) -> JobRow:
        """Let every service run by a revision: those first whose memory it makes less."""

        def work(progress: Progress) -> dict[str, Any]:
            told = self._commander.actions()
            first = set(_shrinking(old, new))
            for services in (first, told.keys() - first):
                if not services:
                    continue
                orders = {name: Order(told[name], revision) for name in sorted(services)}
                numbers = self._commander.order(who.name, orders)
                self._obeyed(progress, numbers, ("ready", "paused", "draining"), revision)
            return {"revision": revision}

        return self._jobs.start(self._name, "settings", who.name, why, work)

    # ── how it is done ───────────────────────────────────────────────────────────────────

    def _act(self, who: Who, why: str, kind: str, action: str, service: str | None) -> JobRow:
        if service is not None and service not in self._commander.services:
            known = ", ".join(self._commander.services)
            raise conflict(f"no stage of {self._name} is called {service!r}; there are {known}")

        def work(progress: Progress) -> None:
            chosen = None if service is None else [service]
            numbers = self._commander.act(who.name, action, chosen)
            self._obeyed(progress, numbers, _STATES[action])

        return self._jobs.start(self._name, kind, who.name, why, work)

    def _drain(self, progress: Progress, by: str) -> None:
        numbers = self._commander.act(by, DRAIN)
        first = self._topology.commanded[0]
        self._obeyed(progress, {first: numbers[first]}, _STATES[DRAIN], share=0.1)
        most = max(1, self._monitor.audit().in_flight)

        def waits() -> str:
            left = self._monitor.audit().in_flight
            return f"waiting for {left:,} events in flight, of {most:,}" if left else ""

        progress.wait(waits, _DRAINED_WITHIN_S, 0.5)
        self._obeyed(progress, numbers, _STATES[DRAIN], share=0.9)

    def _move(
        self, progress: Progress, by: str, offsets: dict[int, int], *, exact: bool
    ) -> dict[int, tuple[int, int]]:
        """Let who takes events in commit where it reads on; its ledger says when it has done so."""
        first = self._topology.commanded[0]
        with closing(Auditor(self._settings, self._topology)) as auditor:
            before = auditor.read_up_to()
            ahead = [number for number, to in offsets.items() if to > before.get(number, to)]
            offsets = {number: to for number, to in offsets.items() if number not in ahead}
            if exact and ahead:
                raise conflict(
                    f"partition {ahead[0]} was read up to {before[ahead[0]]} only: to start"
                    " behind that would lose events"
                )
            if not offsets:
                return {}
            told = self._commander.latest()[first]
            read_from = {str(number): at for number, at in offsets.items()}
            order = Order(DRAIN, told.revision, read_from)
            number = self._commander.order(by, {first: order})[first]

            def waits() -> str:
                taken = auditor.taken().items()
                done = {one for one, at in taken if parse(at.text)[MOVED] >= number}
                return f"waiting for {first} to move its offsets" if offsets.keys() - done else ""

            progress.wait(waits, _OBEYED_WITHIN_S, 0.95)
        return {number: (before.get(number, 0), to) for number, to in offsets.items()}

    def _obeyed(
        self,
        progress: Progress,
        numbers: dict[str, int],
        states: Iterable[str],
        revision: int | None = None,
        share: float | None = None,
    ) -> None:
        """Wait until every process of these services has obeyed, and is as wanted."""
        expected = {
            name: service
            for name, service in _processes(self._topology).items()
            if service in numbers
        }

        def waits() -> str:
            now = time.monotonic()
            members = {member.name: member for member in self._monitor.members()}
            there = {
                name: member.beat.service
                for name, member in members.items()
                if member.beat.service in numbers and member.state(now) != GONE
            }
            for name, service in (expected | there).items():
                member = members.get(name)
                if member is None or member.state(now) == GONE:
                    return f"waiting for {name}, which is not heard of"
                beat = member.beat
                obeyed = beat.command >= numbers[service]
                if obeyed and revision is not None and "refused" in beat.reason:
                    raise Unavailable(f"{name}: {beat.reason}")
                by = revision is None or beat.revision == revision
                if not (obeyed and by and member.state(now) in states):
                    why = f": {beat.reason}" if beat.reason else ""
                    return f"waiting for {name}, which is {member.state(now)}{why}"
            return ""

        # Who is to be paused answers first what it has taken: under a scan, for a while.
        paused = revision is None and "paused" in states
        progress.wait(waits, _DRAINED_WITHIN_S if paused else _OBEYED_WITHIN_S, share)


def _processes(topology: Topology) -> dict[str, str]:
    """Every process that should be there, and its service."""
    return {
        f"{process.service}-{process.node or 0}": process.service
        for process in topology.processes
        if process.service != CONTROL
    }


def _shrinking(old: Pipeline, new: Pipeline) -> list[str]:
    """The phases that a revision leaves less memory: they go first, and no node takes too much.

    None where both are one process, which moves from one budget to the other by itself.
    """
    if Topology(new).in_one:
        return []
    found = []
    for number in range(1, new.links + 1):
        seen, was, now = Topology(new, number), old.link(number), new.link(number)
        if cache_budget(now) < cache_budget(was):
            found.append(seen.service(CACHE_PHASE))
        if disk_budget(now) < disk_budget(was):
            found.append(seen.service(DISK_PHASE))
    return found
