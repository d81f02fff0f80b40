"""What a phase of the benchmark cost: CPU and memory by process, and how fast events moved."""

from __future__ import annotations

import contextlib
import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import psutil

from dovetail.errors import StackError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from deploy.local.home import Home

MIB = 1 << 20
LOOK_EVERY_S = 1.0
"""Looking at every process ten times a second took a tenth of the machine."""
_MEMORY_EVERY_S = 1.0


def running(home: Home) -> dict[str, int]:
    """Give the pid of every process that the home's stack has recorded, by name."""
    found = {}
    for record in home.run.glob("*.pid"):
        # A record may vanish or be replaced while it is read: then its process just ended.
        with contextlib.suppress(FileNotFoundError, ValueError, KeyError):
            identity = json.loads(record.read_text())
            found[str(identity["name"])] = int(identity["pid"])
    return found


@dataclass(frozen=True)
class Resident:
    """What a process has in memory, in bytes."""

    rss: int
    pss: int
    """Of a page that n processes share, an nth: what their sum really takes."""
    own: int
    """Shared with nobody."""


def resident_now(home: Home, names: Iterable[str]) -> dict[str, Resident]:
    """What each of these processes has in memory, with everything below it."""
    pids = running(home)
    found = {}
    for name in names:
        told = [process.memory_full_info() for process in _family(pids[name])]
        found[name] = Resident(
            sum(one.rss for one in told), sum(one.pss for one in told), sum(one.uss for one in told)
        )
    return found


class Deadline:
    """An end to everything: no phase of the benchmark waits beyond it."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._end = time.monotonic() + seconds

    def check(self) -> None:
        if time.monotonic() > self._end:
            raise StackError(
                f"the benchmark is not done after {self._seconds:.0f} s: the machine is too busy "
                "or a service is stuck; the logs in .dovetail/bench/logs say which"
            )


class Meter:
    """CPU seconds and resident bytes by process, from its making to its last sample.

    A process is counted with everything below it, and with the ended ones it has waited for:
    PostgreSQL is its postmaster and all backends. What starts after the meter counts from its
    own start.
    """

    def __init__(self, home: Home) -> None:
        self._home = home
        self._memory_at = 0.0
        self._latest: dict[tuple[str, int], float] = {}
        self.resident: dict[str, int] = {}
        """The most bytes seen. Pages that PostgreSQL's processes share count once."""
        self.restart()

    def restart(self) -> None:
        """Count from now on: what was before is no work on events."""
        self._started = time.monotonic()
        self._busy = _busy()
        self.sample()
        self._first = dict(self._latest)

    def sample(self) -> None:
        look_at_memory = time.monotonic() - self._memory_at >= _MEMORY_EVERY_S
        for name, pid in running(self._home).items():
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                family = _family(pid)
                self._latest[name, pid] = sum(_cpu(process) for process in family)
                if look_at_memory:
                    self.resident[name] = max(self.resident.get(name, 0), _resident(family))
        if look_at_memory:
            self._memory_at = time.monotonic()

    def cpu_s(self) -> dict[str, float]:
        used: dict[str, float] = {}
        for (name, pid), seconds in self._latest.items():
            first = self._first.get((name, pid), 0.0)
            used[name] = used.get(name, 0.0) + seconds - first
        return used

    def others_share(self) -> float:
        """Tell which share of the machine went to processes not measured here: the noise."""
        capacity = (time.monotonic() - self._started) * (psutil.cpu_count() or 1)
        ours = sum(seconds - self._first.get(who, 0.0) for who, seconds in self._latest.items())
        return max(0.0, (_busy() - self._busy - ours) / capacity)


@dataclass
class Progress:
    """How many events were answered by when."""

    started: float
    """When the first event could be taken."""
    times: list[float] = field(default_factory=list)
    answered: list[int] = field(default_factory=list)

    def note(self, at: float, answered: int) -> None:
        self.times.append(at)
        self.answered.append(answered)

    def rate(self) -> float:
        """From the first event that could be taken to the last answer."""
        done = self.answered[-1]
        at = self.times[self.answered.index(done)]
        return done / (at - self.started)

    def middle_rate(self, low: float = 0.1, high: float = 0.9) -> float:
        """Between these shares of the answers. If early stages ran ahead, this flatters: they
        no longer want the cores by then."""
        marks = np.array([low, high]) * self.answered[-1]
        begin, end = np.interp(marks, self.answered, self.times)
        return float((marks[1] - marks[0]) / (end - begin))


def _busy() -> float:
    times = psutil.cpu_times()
    # Guest time is part of user time already; stolen time is work of other machines.
    return float(times.user + times.nice + times.system + times.irq + times.softirq)


def _family(pid: int) -> list[psutil.Process]:
    process = psutil.Process(pid)
    return [process, *process.children(recursive=True)]


def _cpu(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system + times.children_user + times.children_system)


def _resident(family: list[psutil.Process]) -> int:
    if len(family) == 1:
        return int(family[0].memory_info().rss)
    total = 0
    for process in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            total += process.memory_full_info().pss
    return total
