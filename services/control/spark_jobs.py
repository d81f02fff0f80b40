"""Starts a job on Spark as a process beside control, and follows it; the run has its own row."""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING, Any

from dovetail.errors import Unavailable
from dovetail.topology import ENRICH
from services.access.settings import SECRET_VARIABLES
from services.control.jobs import LOOK_S
from services.problem import Blame, Kind, ProblemError, conflict, not_found
from services.spark.jobs import JOBS
from services.spark.runs import last_runs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from services.access.roles import Who
    from services.control.hub import Hub
    from services.control.jobs import Progress
    from services.control.store.jobs import JobRow
    from services.spark.runs import RunRow

SWITCH = "DOVETAIL_SPARK_JOBS"
"""`off` where something else starts jobs: in a cluster, a CronJob."""
ARGUMENTS: dict[str, tuple[str, ...]] = {
    "snapshot": (),
    "frequency": ("--hour", "--half-life", "--horizon", "--no-plan", "--no-send", "--all"),
    "backfill": ("--portion",),
}
"""What each may be given from outside: nothing that names a file."""
_ENDED_WITHIN_S = 30.0
_TOLD_LINES = 3


def why_not(job: str) -> str:
    """Why a job cannot be started here; empty if it can."""
    if job == ENRICH:
        return "it is the pipeline itself: its supervisor starts it, where engine is spark"
    if os.environ.get(SWITCH, "").strip().lower() in ("off", "0", "no", "false"):
        return f"{SWITCH} is off here: jobs are started elsewhere, as by a CronJob"
    if importlib.util.find_spec("pyspark") is None:
        return "Spark is not installed here: pip install 'dovetail[spark]'"
    return ""


def start(hub: Hub, who: Who, job: str, arguments: Sequence[str], why: str) -> JobRow:
    if job not in JOBS:
        raise not_found(f"there is no Spark job {job!r}; there are {', '.join(JOBS)}")
    reason = why_not(job)
    if reason:
        raise conflict(f"{job} cannot be started from here: {reason}")
    for argument in arguments:
        if argument.startswith("-") and argument.partition("=")[0] not in ARGUMENTS[job]:
            known = ", ".join(ARGUMENTS[job]) or "nothing"
            raise ProblemError(
                Kind.REQUEST_INVALID,
                f"{argument} is not known; {job} takes {known}",
                blames=[Blame("body.arguments", f"{argument[:50]} is not known")],
            )
    running = [run for run in last_runs(hub.engine, hub.name) if run.state == "running"]
    if any(run.job == job for run in running):
        raise conflict(f"{job} of {hub.name} runs already: wait for its end, or cancel its job")
    pipeline = hub.pipeline
    chosen = {
        "DOVETAIL_ALGORITHM": str(pipeline.algorithm),
        "DOVETAIL_MEMORY": str(pipeline.memory),
    }
    inherited = {name: value for name, value in os.environ.items() if name not in SECRET_VARIABLES}
    command = [sys.executable, "-m", "services.spark", job, str(hub.file), *arguments]

    def work(progress: Progress) -> dict[str, Any]:
        return _run(hub, job, command, {**inherited, **chosen}, progress)

    return hub.jobs.start(hub.name, "spark", who.name, why or job, work)


def _run(
    hub: Hub, job: str, command: Sequence[str], environment: dict[str, str], progress: Progress
) -> dict[str, Any]:
    with tempfile.TemporaryFile() as output:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
        try:
            while child.poll() is None:
                progress.tell(_told(_run_of(hub, job, child.pid)) or f"starting {job}")
                time.sleep(LOOK_S)
        finally:
            _end(child)
        run = _run_of(hub, job, child.pid)
        if child.returncode:
            output.seek(0)
            last = output.read().decode(errors="replace").strip().splitlines()[-_TOLD_LINES:]
            raise Unavailable((run.error if run else None) or " ".join(last) or "it failed")
    return {"run": run.id if run else None, "figures": run.figures if run else {}}


def _end(child: subprocess.Popen[bytes]) -> None:
    """End it if it still runs: first as it likes, then at once."""
    if child.poll() is not None:
        return
    child.send_signal(signal.SIGTERM)
    try:
        child.wait(_ENDED_WITHIN_S)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def _run_of(hub: Hub, job: str, pid: int) -> RunRow | None:
    process = f"{socket.gethostname()}:{pid}"
    rows = last_runs(hub.engine, hub.name, 5)
    return next((row for row in rows if row.job == job and row.process == process), None)


def _told(run: RunRow | None) -> str:
    if run is None:
        return ""
    figures = ", ".join(f"{name} {value}" for name, value in list(run.figures.items())[:5])
    return f"run {run.id}, {run.seconds:.0f} s{'; ' if figures else ''}{figures}"
