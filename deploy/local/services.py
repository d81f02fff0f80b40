"""The services of a pipeline as processes: started, watched, started again, drained."""

from __future__ import annotations

import os
import signal
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from deploy.local.files import last_lines
from deploy.local.home import CHECKOUT
from deploy.local.kernels import kept_in
from deploy.local.processes import Managed
from dovetail.errors import StackError
from dovetail.pipeline.spec import Engine
from dovetail.topology import CONTROL, ENRICH, Process, Topology

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from deploy.local.home import Home
    from deploy.local.ports import Ports
    from dovetail.pipeline.spec import Pipeline

_READY_WITHIN_S = {Engine.SERVICES: 120.0, Engine.SPARK: 300.0}
"""On a busy machine Spark alone takes minutes to start."""
_RESTART_PAUSES_S = (0.5, 1.0, 2.0, 5.0, 10.0)
_SETTLED_S = 30.0
"""What ends after so long a life has not failed to start: it is started again at once."""


@dataclass
class Service:
    """One process and its record of failures."""

    name: str
    service: str
    """Without the node."""
    url: str
    process: Managed
    node: int | None = None
    """Of a service that runs once a node."""
    code: Path = CHECKOUT
    """The folder whose code it runs."""
    restarts: int = 0
    restart_at: float | None = None
    started_at: float = field(default_factory=time.monotonic)
    early_ends: int = 0
    """How often in a row it has ended soon after its start."""

    def start(self) -> None:
        self.process.start()
        self.started_at = time.monotonic()

    def restart_pause(self, now: float) -> float:
        """Seconds to wait after it has ended: longer each time that it hardly lived."""
        if now - self.started_at >= _SETTLED_S:
            self.early_ends = 0
        pause = _RESTART_PAUSES_S[min(self.early_ends, len(_RESTART_PAUSES_S) - 1)]
        self.early_ends += 1
        return pause


class Services:
    def __init__(
        self,
        home: Home,
        pipeline: Pipeline,
        pipeline_file: Path,
        environment: Mapping[str, str],
        ports: Ports,
        report: Callable[[str], None],
        own: Callable[[str], Mapping[str, str]] | None = None,
        code: Path = CHECKOUT,
    ) -> None:
        """`own` gives what a service alone has in its environment: who it is, in a secured stack.

        Without it all of them are open to this machine. `code` may be another release's folder.
        """
        self._home = home
        self._code = code
        self._own = own
        self._ports = ports
        self._report = report
        topology = Topology(pipeline)
        self._stages = topology.services
        self._ready_within_s = _READY_WITHIN_S[pipeline.engine]
        self._environment = {
            # Open to this machine, as long as nothing is bound to another address.
            **({} if own else {"DOVETAIL_LOCAL": "1"}),
            **os.environ,
            **environment,
            "DOVETAIL_PIPELINE": str(pipeline_file.resolve()),
            "DOVETAIL_FREQUENCIES": str(home.data / "frequencies"),
            # One thread each: more would only fight over the same cores.
            "OMP_NUM_THREADS": "1",
            "MALLOC_ARENA_MAX": "2",
            "PYTHONFAULTHANDLER": "1",
        }
        processes = topology.processes
        chosen = ports.choose_services([one.name for one in processes])
        self.all = [self._service(one.service, one.node, chosen[one.name]) for one in processes]
        self._unwatched: list[Service] = []
        """Removed or replaced: whatever of them still runs is ended with the others."""

    @property
    def control_url(self) -> str:
        return self.url(CONTROL)

    def url(self, name: str) -> str:
        return next(service.url for service in self.all if service.name == name)

    def start(self) -> None:
        for service in self.all:
            service.start()

    def add_node(self, node: int) -> None:
        """Start one more process of every service that runs once a node."""
        for stage in self._stages:
            if stage.per_node:
                port = self._ports.choose(Process(stage.service, node).name)
                self.all.append(self._service(stage.service, node, port))
                self.all[-1].start()

    def remove_node(self, node: int, stop_signal: signal.Signals = signal.SIGTERM) -> None:
        """Tell a node's processes to end, for good; SIGKILL is how a node is lost."""
        for service in [service for service in self.all if service.node == node]:
            self.all.remove(service)
            self._unwatched.append(service)
            service.process.send(stop_signal)

    def replace(self, name: str) -> Service:
        """Start another process in the place and under the name of one that may still run.

        The old one is watched no longer, and given back: it has to find out by itself that its
        name is another's.
        """
        index, old = self._find(name)
        self._unwatched.append(old)
        label = f"{name}.{sum(s.name == name for s in self._unwatched)}"
        port = self._ports.choose(label)
        self.all[index] = self._service(old.service, old.node, port, label, old.code)
        self.all[index].start()
        return old

    def exchange(self, name: str, code: Path) -> int | None:
        """End a service in order and start it from another folder of code, as an upgrade does.

        Returns what the old one ended with, when the new one is starting.
        """
        index, old = self._find(name)
        ended = old.process.stop()
        port = urlsplit(old.url).port
        assert port is not None
        self.all[index] = self._service(old.service, old.node, port, code=code)
        self.all[index].start()
        return ended

    def wait_until_ready(
        self,
        tick: Callable[[], None] = lambda: None,
        progress: Callable[[float], None] = lambda _: None,
    ) -> None:
        """`progress` is told which share of them is ready."""
        deadline = time.monotonic() + self._ready_within_s
        waiting = list(self.all)
        while waiting:
            waiting = [service for service in waiting if not is_ready(service.url)]
            self.watch()
            tick()
            progress(1 - len(waiting) / len(self.all))
            if waiting and time.monotonic() > deadline:
                name, log = waiting[0].name, waiting[0].process.log
                raise StackError(
                    f"{name} is not ready after {self._ready_within_s:.0f} s. The end of {log}:\n"
                    f"{last_lines(log)}"
                )
            time.sleep(0.2)

    def watch(self) -> None:
        """Start again whatever has ended by itself; a wrong configuration is not retried."""
        now = time.monotonic()
        for service in self.all:
            code = service.process.exit_code()
            if code is None:
                continue
            if code == 2:
                service.process.check()
            if service.restart_at is None:
                pause = service.restart_pause(now)
                service.restart_at = now + pause
                self._report(
                    f"{service.name} ended (exit code {code}); starting it again in {pause} s. "
                    f"Why: {service.process.log}"
                )
            elif now >= service.restart_at:
                service.restarts += 1
                service.restart_at = None
                service.start()

    def stop(self) -> None:
        """Upstream first, so that nothing new arrives at a stage that is draining."""
        for service in (*self.all, *self._unwatched):
            service.process.stop()

    def _find(self, name: str) -> tuple[int, Service]:
        return next((i, s) for i, s in enumerate(self.all) if s.name == name)

    def _service(
        self,
        service: str,
        node: int | None,
        port: int,
        label: str = "",
        code: Path | None = None,
    ) -> Service:
        """`label` names its process and log, where another has its name."""
        code = code or self._code
        name = Process(service, node).name
        kind, _, link = service.partition(".")
        own = {
            **(self._own(service) if self._own else {}),
            **kept_in(self._home, code),
            "DOVETAIL_NODE": str(node or 0),
            "DOVETAIL_LINK": link or "1",
            "DOVETAIL_PORT": str(port),
        }
        process = Managed(
            self._home,
            label or name,
            [sys.executable, "-m", *_program(kind)],
            # Of `python -m`, the first folder to look for modules in.
            cwd=code,
            env={**self._environment, **own},
        )
        return Service(name, service, f"http://127.0.0.1:{port}", process, node, code)


def _program(kind: str) -> tuple[str, ...]:
    return ("services.spark", ENRICH) if kind == ENRICH else (f"services.{kind}.main",)


def is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/ready", timeout=2) as answer:  # noqa: S310 - our own
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
