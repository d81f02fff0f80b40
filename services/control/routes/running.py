"""Pause, resume, drain, start, read again; and the jobs that these are."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import UTC
from typing import TYPE_CHECKING, Annotated, Any, Literal

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]
from fastapi import APIRouter, Query
from starlette.concurrency import run_in_threadpool

from dovetail.errors import Unavailable
from dovetail.stream.topics import admin_of, beginnings, partitions_of
from services.access.roles import Role, needs
from services.control.hub import shown_job
from services.control.routes.common import Asker, require_confirmed
from services.control.shapes import (
    Act,
    FromBeginning,
    FromOffsets,
    JobShape,
    Most,
    Number,
    PipelineName,
    Reason,
    Restart,
    Word,
)
from services.problem import Blame, Kind, ProblemError, again_later

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from services.access.roles import Who
    from services.control.hub import Hub

MOST_WAITING = 16
_CANCELLED_WITHIN_S = 3.0


def running_routes(hub: Hub) -> APIRouter:
    app = APIRouter(tags=["running"])
    waiting = _Waiting()

    @app.post("/v1/pipelines/{name}/pause", status_code=202, response_model=JobShape)
    @needs(Role.OPERATE)
    def pause(name: PipelineName, act: Act, who: Asker) -> dict[str, Any]:
        """Let a stage, or all, take nothing more; what was taken is answered."""
        hub.require_here(name)
        job = hub.operations.pause(who, act.why, act.service)
        hub.changes.note(who, "pipeline.pause", name, why=act.why, service=act.service)
        return shown_job(job)

    @app.post("/v1/pipelines/{name}/resume", status_code=202, response_model=JobShape)
    @needs(Role.OPERATE)
    def resume(name: PipelineName, act: Act, who: Asker) -> dict[str, Any]:
        hub.require_here(name)
        job = hub.operations.resume(who, act.why, act.service)
        hub.changes.note(who, "pipeline.resume", name, why=act.why, service=act.service)
        return shown_job(job)

    @app.post("/v1/pipelines/{name}/start", status_code=202, response_model=JobShape)
    @needs(Role.OPERATE)
    def start(name: PipelineName, reason: Reason, who: Asker) -> dict[str, Any]:
        """Let a pipeline go on whose processes are there."""
        hub.require_here(name)
        job = hub.operations.start(who, reason.why)
        hub.changes.note(who, "pipeline.start", name, why=reason.why)
        return shown_job(job)

    @app.post("/v1/pipelines/{name}/drain", status_code=202, response_model=JobShape)
    @needs(Role.OPERATE)
    def drain(name: PipelineName, reason: Reason, who: Asker) -> dict[str, Any]:
        """Let ingest take nothing more, and everything taken be answered."""
        hub.require_here(name)
        job = hub.operations.drain(who, reason.why)
        hub.changes.note(who, "pipeline.drain", name, why=reason.why)
        return shown_job(job)

    @app.post("/v1/pipelines/{name}/restart", status_code=202, response_model=JobShape)
    @needs(Role.ADMIN)
    def restart(name: PipelineName, order: Restart, who: Asker) -> dict[str, Any]:
        """Read the source again from an offset or a time; outputs are repeated."""
        hub.require_here(name)
        require_confirmed(
            order.confirm, "every event that is read again is answered again, so outputs repeat"
        )
        offsets = _offsets(hub, order)
        exact = isinstance(order.from_, FromOffsets)
        job = hub.operations.restart(who, order.why, offsets, exact=exact)
        hub.changes.note(who, "pipeline.restart", name, why=order.why, offsets=offsets)
        return shown_job(job)

    @app.get("/v1/jobs", response_model=list[JobShape])
    def list_jobs(
        pipeline: Word | None = None,
        kind: Word | None = None,
        state: Literal["running", "done", "failed", "cancelled"] | None = None,
        most: Most = 50,
    ) -> list[dict[str, Any]]:
        rows = hub.jobs.rows.last(most, pipeline=pipeline, kind=kind, state=state)
        return [shown_job(row) for row in rows]

    @app.get("/v1/jobs/{number}", response_model=JobShape)
    async def show_job(
        number: Number, wait: Annotated[float, Query(ge=0, le=30)] = 0
    ) -> dict[str, Any]:
        """Show a job; with `wait` when it has ended or moved, or after so many seconds."""
        if not wait:
            return shown_job(await run_in_threadpool(hub.jobs.find, number))
        with waiting.one_more():
            return shown_job(await hub.jobs.follow(number, wait))

    @app.post("/v1/jobs/{number}/cancel", response_model=JobShape)
    @needs(Role.OPERATE)
    async def cancel_job(number: Number, who: Asker) -> dict[str, Any]:
        await run_in_threadpool(cancel, number, who)
        return shown_job(await hub.jobs.follow(number, _CANCELLED_WITHIN_S))

    def cancel(number: int, who: Who) -> None:
        job = hub.jobs.cancel(number)
        hub.changes.note(who, "job.cancel", job.pipeline, job=number, kind=job.kind)

    return app


class _Waiting:
    """Those who wait for a job; for the event loop's thread alone."""

    def __init__(self) -> None:
        self._count = 0

    @contextmanager
    def one_more(self) -> Iterator[None]:
        if self._count >= MOST_WAITING:
            raise again_later(
                Kind.TOO_MANY_REQUESTS,
                f"{MOST_WAITING} requests wait for jobs already; ask without `wait`, or later",
                5,
            )
        self._count += 1
        try:
            yield
        finally:
            self._count -= 1


def _offsets(hub: Hub, order: Restart) -> dict[int, int]:
    """Where to read on, by partition; what is gone from the topic cannot be read again."""
    source = hub.topology.source
    admin = admin_of(hub.settings)
    first = dict(enumerate(beginnings(admin, source)))
    place = order.from_
    if isinstance(place, FromBeginning):
        return first
    if isinstance(place, FromOffsets):
        wanted = {int(number): at for number, at in place.offsets.items()}
        unknown = [number for number in wanted if number not in first]
        if unknown:
            raise ProblemError(
                Kind.REQUEST_INVALID,
                f"{source.name} has the partitions 0 to {len(first) - 1}, not {unknown[0]}",
                blames=[Blame(f"body.from.offsets.{unknown[0]}", "there is no such partition")],
            )
        gone = [number for number, at in wanted.items() if at < first[number]]
        if gone:
            raise ProblemError(
                Kind.REQUEST_INVALID,
                f"partition {gone[0]} begins at {first[gone[0]]} now: what was before is gone",
                blames=[Blame(f"body.from.offsets.{gone[0]}", "that offset is gone")],
            )
        return wanted
    return _at_time(hub, place.time)


def _at_time(hub: Hub, when: datetime) -> dict[int, int]:
    """The first record at or after a time, by partition, where there is one."""
    source = hub.topology.source
    admin = admin_of(hub.settings)
    moment = when if when.tzinfo else when.replace(tzinfo=UTC)
    at_ms = max(0, int(moment.timestamp() * 1000))
    asked = {
        TopicPartition(source.name, number): OffsetSpec.for_timestamp(at_ms)
        for number in range(partitions_of(admin, source))
    }
    try:
        futures = admin.list_offsets(asked)
        found = {at.partition: future.result().offset for at, future in futures.items()}
    except KafkaException as error:
        raise Unavailable(f"offsets of {source.name} cannot be read: {error}") from error
    return {number: at for number, at in found.items() if at >= 0}
