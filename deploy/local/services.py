"""The services of a pipeline as processes: started, watched, started again, drained."""

from __future__ import annotations

import os
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from deploy.local.files import last_lines
from deploy.local.home import CHECKOUT
from deploy.local.kernels import kept_in
from deploy.local.processes import Managed
from dovetail.errors import StackError
from dovetail.topology import CONTROL, Topology

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from deploy.local.home import Home
    from deploy.local.ports import Ports
    from dovetail.pipeline.spec import Pipeline

_READY_WITHIN_S = 120.0
_RESTART_PAUSES_S = (0.5, 1.0, 2.0, 5.0, 10.0)


@dataclass
class Service:
    """One process and its record of failures."""

    name: str
    module: str
    url: str
    process: Managed
    restarts: int = 0
    restart_at: float | None = None
    started_at: float = field(default_factory=time.monotonic)


class Services:
    def __init__(
        self,
        home: Home,
        pipeline: Pipeline,
        pipeline_file: Path,
        environment: Mapping[str, str],
        ports: Ports,
        report: Callable[[str], None],
    ) -> None:
        self._report = report
        named = list(_processes(pipeline))
        chosen = ports.choose_services([name for name, _, _ in named])
        self.all = [
            Service(
                name,
                module,
                f"http://127.0.0.1:{chosen[name]}",
                Managed(
                    home,
                    name,
                    [sys.executable, "-m", module],
                    cwd=CHECKOUT,
                    env={
                        **os.environ,
                        **kept_in(home),
                        **environment,
                        "DOVETAIL_PIPELINE": str(pipeline_file.resolve()),
                        "DOVETAIL_NODE": str(node),
                        "DOVETAIL_PORT": str(chosen[name]),
                        # One thread each: more would only fight over the same cores.
                        "OMP_NUM_THREADS": "1",
                        "MALLOC_ARENA_MAX": "2",
                        "PYTHONFAULTHANDLER": "1",
                    },
                ),
            )
            for name, module, node in named
        ]

    @property
    def control_url(self) -> str:
        return next(service.url for service in self.all if service.name == CONTROL)

    def start(self) -> None:
        for service in self.all:
            service.process.start()

    def wait_until_ready(self, tick: Callable[[], None] = lambda: None) -> None:
        deadline = time.monotonic() + _READY_WITHIN_S
        waiting = list(self.all)
        while waiting:
            waiting = [service for service in waiting if not is_ready(service.url)]
            self.watch()
            tick()
            if waiting and time.monotonic() > deadline:
                name, log = waiting[0].name, waiting[0].process.log
                raise StackError(
                    f"{name} is not ready after {_READY_WITHIN_S:.0f} s. The end of {log}:\n"
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
                pause = _RESTART_PAUSES_S[min(service.restarts, len(_RESTART_PAUSES_S) - 1)]
                service.restart_at = now + pause
                self._report(
                    f"{service.name} ended (exit code {code}); starting it again in {pause} s. "
                    f"Why: {service.process.log}"
                )
            elif now >= service.restart_at:
                service.restarts += 1
                service.restart_at = None
                service.process.start()

    def stop(self) -> None:
        """Upstream first, so that nothing new arrives at a stage that is draining."""
        for service in self.all:
            service.process.stop()


def _processes(pipeline: Pipeline) -> list[tuple[str, str, int]]:
    """Name, module and node of every process, in the order in which the data flows."""
    processes = [(CONTROL, f"services.{CONTROL}.main", 0)]
    for stage in Topology(pipeline).stages:
        module = f"services.{stage.service}.main"
        if stage.per_node:
            processes += [
                (f"{stage.service}-{node}", module, node) for node in range(pipeline.nodes)
            ]
        else:
            processes.append((stage.service, module, 0))
    return processes


def is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/ready", timeout=2) as answer:  # noqa: S310 - our own
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
