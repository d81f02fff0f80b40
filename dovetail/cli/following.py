"""Follows a long operation until it ends."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from dovetail.cli import exits
from dovetail.cli.output import count, fields, moment, plain, state
from dovetail.errors import Unavailable

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator

    from rich.console import RenderableType

    from dovetail.cli.client import Client
    from dovetail.cli.output import Output

    Job = dict[str, Any]

_WAIT_S = 10
_PATIENCE_S = 30.0
"""A control service that is away is asked again for so long: it may have been restarted."""
_PAUSE_S = 0.5


def conclude(
    job: Job, arguments: argparse.Namespace, client: Client, output: Output, **beside: object
) -> int:
    """Follow a job unless the user does not want to, show it, and tell how it ended.

    `beside` is what else the API has answered.
    """
    if not arguments.no_wait:
        job = follow(job, client, output)
    if beside:
        output.show({**beside, "job": job}, lambda _: shown(job))
    else:
        output.show(job, shown)
    return exits.NO if job["state"] in {"failed", "cancelled"} else exits.FINE


def follow(job: Job, client: Client, output: Output) -> Job:
    """Wait for the end; the job goes on if this is interrupted."""
    try:
        with _progress(job, output) as show:
            seen = time.monotonic()
            while job["state"] == "running":
                try:
                    job = client.get(f"/v1/jobs/{job['id']}", wait=_WAIT_S)
                    seen = time.monotonic()
                except Unavailable:
                    if time.monotonic() - seen > _PATIENCE_S:
                        raise
                    time.sleep(_PAUSE_S)
                show(job)
    except KeyboardInterrupt:
        number = job["id"]
        output.say(
            f"job {number} goes on: `dovetail jobs follow {number}` follows it again,"
            f" `dovetail jobs cancel {number}` ends it if that can be done"
        )
        raise
    return job


@contextmanager
def _progress(job: Job, output: Output) -> Iterator[Callable[[Job], None]]:
    """A bar on a terminal, else a line whenever something else is said; both on stderr."""
    if not output.errors.is_terminal:
        told = ""

        def tell(now: Job) -> None:
            nonlocal told
            if now["state"] == "running" and now["text"] and now["text"] != told:
                told = now["text"]
                output.say(f"{now['kind']}: {told}")

        tell(job)
        yield tell
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.fields[kind]}", markup=False),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}", markup=False),
    )
    with Progress(*columns, console=output.errors, transient=True) as bar:
        task = bar.add_task(_said(job), kind=job["kind"], total=None)

        def draw(now: Job) -> None:
            known = now["progress"]
            bar.update(
                task,
                description=_said(now),
                total=None if known is None else 1.0,
                completed=known or 0.0,
            )

        draw(job)
        yield draw


def _said(job: Job) -> str:
    return plain(job["text"] or "").plain


def shown(job: Job) -> Iterator[RenderableType]:
    told: dict[str, object] = {
        "job": f"{job['id']}: {job['kind']}"
        + (f" of {job['pipeline']}" if job["pipeline"] else ""),
        "state": state(job["state"]),
        "by": job["by"],
        "why": job["why"],
        "started": moment(job["started_at"]),
        "ended": moment(job["ended_at"]),
        "progress": None if job["progress"] is None else f"{job['progress']:.0%}",
        "text": job["text"],
        "error": job["error"],
    }
    for name, value in (job["result"] or {}).items():
        told[name] = count(value) if isinstance(value, int) else value
    ended = job["state"] != "running"
    yield fields(
        {
            name: value
            for name, value in told.items()
            if value not in (None, "") and not (ended and name in {"progress", "text"})
        }
    )
