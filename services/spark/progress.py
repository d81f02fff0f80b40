"""How far Spark is, on one line of the terminal and among the run's figures."""

from __future__ import annotations

import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark import SparkContext

    from services.spark.runs import Run

_LOOK_S = 0.5
_LINE_S = 10.0
"""Where lines are kept, as in a log, one so often."""


@contextmanager
def progress(context: SparkContext, run: Run, what: str) -> Iterator[None]:
    """Show how many tasks of the jobs that are started within are done."""
    print(what, flush=True)
    group = f"{run.job} {run.id}"
    context.setJobGroup(group, what)
    ended = threading.Event()
    watcher = threading.Thread(target=_watch, args=(context, run, group, ended), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()


def _watch(context: SparkContext, run: Run, group: str, ended: threading.Event) -> None:
    terminal = sys.stdout.isatty()
    shown_at = time.monotonic()
    while not ended.wait(_LOOK_S):
        done, tasks = _tasks(context, group)
        run.figure("tasks", tasks)
        run.figure("tasks_done", done)
        now = time.monotonic()
        if tasks and terminal:
            print(f"\r  {done:,} of {tasks:,} tasks", end="", flush=True)
        elif tasks and now - shown_at >= _LINE_S:
            shown_at = now
            print(f"  {done:,} of {tasks:,} tasks", flush=True)
    if terminal:
        print("\r\033[K", end="", flush=True)


def _tasks(context: SparkContext, group: str) -> tuple[int, int]:
    tracker = context.statusTracker()
    jobs = [tracker.getJobInfo(number) for number in tracker.getJobIdsForGroup(group)]
    stages = {stage for job in jobs if job is not None for stage in job.stageIds}
    found = [info for stage in stages if (info := tracker.getStageInfo(stage)) is not None]
    return sum(info.numCompletedTasks for info in found), sum(info.numTasks for info in found)
