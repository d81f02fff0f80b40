"""Cache plans in `make run`: the Spark job `frequency`, now and then, beside everything else.

It starts when the demo has run for a while and Spark is installed, as a process of its own at the
lowest priority, and only if the machine has memory to spare: a run without it is complete, but for
the plan.
"""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING

import psutil

from deploy.local.home import CHECKOUT
from deploy.local.processes import Managed
from deploy.local.spark_install import is_installed
from dovetail.errors import ConfigError
from dovetail.join.algorithms import policy_named
from dovetail.join.policies import NoCache
from dovetail.pipeline.duration import format_duration, parse_duration
from dovetail.pipeline.spec import Engine

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from deploy.local.home import Home
    from dovetail.pipeline.spec import Pipeline

OFF = "off"
EVERY = "5m"
FIRST_S = 180.0
"""What the first plan follows from: a shorter stream says little of who comes again."""
NEEDED = 3 << 30
"""Bytes that have to be available: Spark takes half of them."""
JOB = "frequency"


class Planning:
    """Starts the job every so often; `watch` is called all the time."""

    def __init__(
        self,
        job: Managed,
        every_s: float,
        report: Callable[[str], None],
        *,
        clock: Callable[[], float] = time.monotonic,
        available: Callable[[], int] = lambda: psutil.virtual_memory().available,
        installed: Callable[[], bool] = is_installed,
    ) -> None:
        self._job = job
        self._every_s = every_s
        self._report = report
        self._clock = clock
        self._available = available
        self._installed = installed
        self._due = clock() + max(FIRST_S, every_s)
        self._runs = False

    def watch(self) -> None:
        """Start the job when it is due, and tell how it ended."""
        if self._runs:
            self._look()
        elif self._clock() >= self._due and self._installed():
            self._start()

    def stop(self) -> None:
        self._job.stop()
        self._runs = False

    def _start(self) -> None:
        self._due = self._clock() + self._every_s
        if self._available() < NEEDED:
            self._report("no cache plan this time: less than 3 GiB of memory are available")
            return
        self._job.start()
        self._runs = True

    def _look(self) -> None:
        code = self._job.exit_code()
        if code is None:
            return
        self.stop()
        self._due = self._clock() + self._every_s
        if code:
            self._report(f"the cache plan failed; {self._job.log} says why")
        else:
            self._report("the caches have a new plan: /v1/pipelines/…/plans/latest")


def planning(
    home: Home,
    pipeline: Pipeline,
    file: Path,
    every: str,
    environment: Mapping[str, str],
    report: Callable[[str], None],
) -> Planning | None:
    """Prepare it for a pipeline; None if it is off, or there is nothing to plan."""
    if every == OFF or pipeline.engine is not Engine.SERVICES:
        return None
    if isinstance(policy_named(pipeline.algorithm), NoCache):
        return None
    job = Managed(
        home,
        JOB,
        [sys.executable, "-m", "services.spark", JOB, file.resolve()],
        env={
            **os.environ,
            "DOVETAIL_FREQUENCIES": str(home.data / "frequencies"),
            **environment,
        },
        cwd=CHECKOUT,
        wrapper=("nice", "-n", "19"),
    )
    return Planning(job, _seconds(every), report)


def _seconds(every: str) -> float:
    try:
        seconds = parse_duration(every)
    except ValueError as error:
        raise ConfigError(f"--plan-every: {error}; or {OFF}") from None
    if seconds < 60:
        raise ConfigError(
            f"--plan-every {format_duration(seconds)} is too often for a batch job: write 1m or "
            f"more, or {OFF}"
        )
    return seconds
