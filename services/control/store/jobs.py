"""Long operations that can be followed; see services/control/jobs.py for who does them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from dovetail.errors import Unavailable
from services.control.store.tables import JOBS
from services.problem import conflict
from services.spark.runs import as_unavailable

if TYPE_CHECKING:
    from datetime import datetime

    from services.problem import ProblemError

ALONE = ("settings", "pause", "resume", "drain", "start", "restart")
"""Kinds of which there is one at a time for a pipeline."""
RUNNING, DONE, FAILED, CANCELLED = "running", "done", "failed", "cancelled"
STATES = (RUNNING, DONE, FAILED, CANCELLED)
SILENT_S = 15
"""A job not heard of for so long is of a control that died."""


@dataclass(frozen=True, slots=True)
class JobRow:
    id: int
    kind: str
    pipeline: str
    state: str
    by: str
    why: str
    started_at: datetime
    ended_at: datetime | None
    progress: float | None
    text: str
    result: dict[str, Any] | None
    error: str | None
    cancel: bool


_COLUMNS = [JOBS.c[name] for name in JobRow.__dataclass_fields__]


def _alive(number: int) -> sa.Update:
    running = (JOBS.c.id == number) & (JOBS.c.state == RUNNING)
    return sa.update(JOBS).where(running).values(heard_at=sa.func.now())


class JobRows:
    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine

    def add(self, pipeline: str, kind: str, by: str, why: str) -> JobRow:
        """Begin one; refused while another moves the same pipeline."""
        made = (
            sa.insert(JOBS)
            .values(pipeline=pipeline, kind=kind, state=RUNNING, by=by, why=why, progress=0.0)
            .returning(*_COLUMNS)
        )
        try:
            with as_unavailable(), self._engine.begin() as connection:
                return JobRow(*connection.execute(made).one())
        except Unavailable as error:
            if isinstance(error.__cause__, IntegrityError):
                raise self._busy(pipeline) from None
            raise

    def _busy(self, pipeline: str) -> ProblemError:
        for job in self.last(50, pipeline=pipeline, state=RUNNING):
            if job.kind in ALONE:
                return conflict(
                    f"job {job.id} ({job.kind}) of {pipeline} is under way: wait for its end, or"
                    f" cancel it (POST /v1/jobs/{job.id}/cancel)"
                )
        return conflict(f"another job of {pipeline} was under way: try again")

    def tell(self, number: int, progress: float | None, text: str) -> bool:
        """Say how far it is, and that it is alive; True if it is to be cancelled.

        Raises if it was buried meanwhile: another one may be under way in its place.
        """
        told = _alive(number).values(progress=progress, text=text).returning(JOBS.c.cancel)
        with as_unavailable(), self._engine.begin() as connection:
            cancel = connection.scalar(told)
        if cancel is None:
            raise Unavailable("it was not heard of for too long; what it had ordered stays ordered")
        return bool(cancel)

    def beat(self, number: int) -> None:
        """Say that it is alive."""
        with as_unavailable(), self._engine.begin() as connection:
            connection.execute(_alive(number))

    def end(
        self,
        number: int,
        state: str,
        *,
        result: dict[str, Any] | None = None,
        error: str | None = None,
    ) -> None:
        values: dict[str, Any] = {"state": state, "ended_at": sa.func.now(), "error": error}
        if result is not None:
            values["result"] = result
        if state == DONE:
            values |= {"progress": 1.0, "text": ""}
        with as_unavailable(), self._engine.begin() as connection:
            connection.execute(
                sa.update(JOBS).where(JOBS.c.id == number, JOBS.c.state == RUNNING).values(values)
            )

    def cancel(self, number: int) -> None:
        with as_unavailable(), self._engine.begin() as connection:
            connection.execute(sa.update(JOBS).where(JOBS.c.id == number).values(cancel=True))

    def bury(self) -> None:
        """Write down the end of jobs whose control died."""
        silent = JOBS.c.heard_at < sa.func.now() - sa.text(f"interval '{SILENT_S} seconds'")
        with as_unavailable(), self._engine.begin() as connection:
            connection.execute(
                sa.update(JOBS)
                .where(JOBS.c.state == RUNNING, silent)
                .values(
                    state=FAILED,
                    ended_at=JOBS.c.heard_at,
                    error="control ended meanwhile; what it had ordered stays ordered",
                )
            )

    def find(self, number: int) -> JobRow | None:
        wanted = sa.select(*_COLUMNS).where(JOBS.c.id == number)
        with as_unavailable(), self._engine.connect() as connection:
            row = connection.execute(wanted).first()
        return JobRow(*row) if row else None

    def last(
        self,
        most: int,
        *,
        pipeline: str | None = None,
        kind: str | None = None,
        state: str | None = None,
    ) -> list[JobRow]:
        wanted = sa.select(*_COLUMNS).order_by(JOBS.c.id.desc()).limit(most)
        for column, value in (("pipeline", pipeline), ("kind", kind), ("state", state)):
            if value is not None:
                wanted = wanted.where(JOBS.c[column] == value)
        with as_unavailable(), self._engine.connect() as connection:
            return [JobRow(*row) for row in connection.execute(wanted)]
