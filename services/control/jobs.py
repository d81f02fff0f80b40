"""Runs long operations, each in a thread, and writes down how far they are."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from starlette.concurrency import run_in_threadpool

from dovetail.errors import DovetailError, Unavailable
from services.control.store.jobs import CANCELLED, DONE, FAILED, RUNNING, JobRow, JobRows
from services.problem import ProblemError, conflict, not_found

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

log = logging.getLogger(__name__)

LOOK_S = 0.3
_TOLD_S = 2.0
_LOOKED_S = 0.25
_BEAT_S = 3.0
"""A fifth of the silence after which a job is buried."""
CANCELLABLE = ("drain", "replay", "spark")


class CancelledError(Exception):
    """Somebody has cancelled the job."""


class Progress:
    """What a job's work tells of itself."""

    def __init__(self, rows: JobRows, number: int, stopping: threading.Event) -> None:
        self.number = number
        self._rows = rows
        self._stopping = stopping
        self._told = ("", None)
        self._told_at = 0.0

    def tell(self, text: str, share: float | None = None) -> None:
        """Say how far it is; raises if it is not to go on."""
        now = time.monotonic()
        due = now - self._told_at > _TOLD_S or (text, share) != self._told
        if self._stopping.is_set():
            raise Unavailable("control was stopped meanwhile; what it had ordered stays ordered")
        if due:
            self._told, self._told_at = (text, share), now  # type: ignore[assignment]
            if self._rows.tell(self.number, share, text):
                raise CancelledError

    def wait(self, waits: Callable[[], str], within_s: float, share: float | None = None) -> None:
        """Go on when there is nothing to wait for any more; a text says what for."""
        deadline = time.monotonic() + within_s
        while text := waits():
            if time.monotonic() > deadline:
                raise Unavailable(f"after {within_s:.0f} s still {text}")
            self.tell(text, share)
            self._stopping.wait(LOOK_S)


class Jobs:
    def __init__(self, rows: JobRows) -> None:
        self.rows = rows
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(
        self,
        pipeline: str,
        kind: str,
        by: str,
        why: str,
        work: Callable[[Progress], dict[str, Any] | None],
    ) -> JobRow:
        """Begin the work; its row tells the rest."""
        job = self.rows.add(pipeline, kind, by, why)
        thread = threading.Thread(
            target=self._run, args=(job, work), name=f"job {job.id}", daemon=True
        )
        self._threads = [one for one in self._threads if one.is_alive()]
        self._threads.append(thread)
        thread.start()
        return job

    def find(self, number: int) -> JobRow:
        job = self.rows.find(number)
        if job is None:
            raise not_found(f"there is no job {number}; GET /v1/jobs lists them")
        return job

    async def follow(self, number: int, wait_s: float) -> JobRow:
        """The job, when it has ended or moved, or after so many seconds.

        A thread is needed for each look, and none to wait.
        """
        first = job = await run_in_threadpool(self.find, number)
        deadline = time.monotonic() + wait_s
        while job.state == RUNNING and job == first and time.monotonic() < deadline:
            await asyncio.sleep(_LOOKED_S)
            job = await run_in_threadpool(self.find, number)
        return job

    def cancel(self, number: int) -> JobRow:
        """Have it end as soon as it tells how far it is."""
        job = self.find(number)
        if job.state != RUNNING:
            raise conflict(f"job {number} has ended already: it is {job.state}")
        if job.kind not in CANCELLABLE:
            kinds = ", ".join(CANCELLABLE)
            raise conflict(f"a job of kind {job.kind} cannot be cancelled, only those of {kinds}")
        self.rows.cancel(number)
        return job

    def stop(self) -> None:
        """End what runs; whatever it had ordered stays ordered."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(timeout=5)

    def _run(self, job: JobRow, work: Callable[[Progress], dict[str, Any] | None]) -> None:
        try:
            with self._beating(job):
                result = work(Progress(self.rows, job.id, self._stopping))
            self._end(job, DONE, result=result)
        except CancelledError:
            self._end(job, CANCELLED)
        except (DovetailError, ProblemError) as error:
            self._end(job, FAILED, error=str(error))
        except Exception as error:
            log.exception("a job failed", extra={"job": job.id})
            self._end(job, FAILED, error=f"a bug: {type(error).__name__}; the log has more")

    @contextmanager
    def _beating(self, job: JobRow) -> Iterator[None]:
        """Say that a job is alive, from a thread of its own: its work may wait in one long call."""
        over = threading.Event()

        def beat() -> None:
            while not over.wait(_BEAT_S):
                try:
                    self.rows.beat(job.id)
                except DovetailError as error:
                    log.warning("a job's beat is not written", extra={"reason": str(error)})

        threading.Thread(target=beat, name=f"beat of job {job.id}", daemon=True).start()
        try:
            yield
        finally:
            over.set()

    def _end(self, job: JobRow, state: str, **more: Any) -> None:
        log.info("job ended", extra={"job": job.id, "kind": job.kind, "state": state})
        try:
            self.rows.end(job.id, state, **more)
        except Unavailable as error:
            log.warning("a job's end is not written", extra={"job": job.id, "reason": str(error)})
