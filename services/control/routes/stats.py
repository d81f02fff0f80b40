"""Figures now, over time, and live; the conservation sum; how much memory for a rate."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from dovetail.errors import ConfigError, Unavailable
from dovetail.join.cost.factors import TYPICAL
from dovetail.join.cost.footprint import engine_workload
from dovetail.join.cost.popularity import ZipfPopularity
from dovetail.join.cost.sizing import enough_for, memory_for, models, rate_for
from dovetail.pipeline.size import parse_size
from services.access.roles import Role, needs
from services.control.hub import shown_job
from services.control.monitor import totals
from services.control.shapes import Figure, SizeQuestion, Sizes, Whole, Word
from services.control.store.history import EVERY_S, KEPT_S
from services.problem import Blame, Kind, ProblemError, again_later

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from dovetail.join.cost.sizing import Sizing
    from services.control.hub import Hub
    from services.control.store.history import Point

MOST_STREAMS = 16
_MOST_POINTS = 2_000
_LIVE_S = 1.0
_PARTS = ("cache", "pending", "queue", "disk_buffer")
_FIGURES = Annotated[list[Figure] | None, Query(max_length=100)]


def stats_routes(hub: Hub) -> APIRouter:
    app = APIRouter(tags=["stats"])
    streams = _Streams()

    @app.get("/v1/stats")
    def stats() -> dict[str, Any]:
        """What every service does now, and the totals of the pipeline."""
        return hub.stats()

    @app.get("/v1/stats/history")
    def history(
        seconds: Annotated[Whole, Query(ge=EVERY_S, le=KEPT_S)] = 3600,
        step: Annotated[Whole, Query(ge=EVERY_S, le=KEPT_S)] = EVERY_S,
        figure: _FIGURES = None,
        service: Word | None = None,
    ) -> dict[str, Any]:
        """Show figures over time; the totals of the pipeline have no service."""
        step = max(step, -(-seconds // _MOST_POINTS))
        every = -(-step // EVERY_S)
        points = hub.history.since(seconds, every, service)
        return _history(points, every, set(figure or ()))

    @app.get("/v1/audit")
    def audit() -> dict[str, Any]:
        """The conservation sum as of now; `problems` is empty unless it is off."""
        return totals(hub.monitor.audit())

    @app.get("/v1/events/live", response_class=StreamingResponse)
    async def live(request: Request) -> StreamingResponse:
        """Server-sent events: `stats` each second, `job` whenever one has moved."""
        return StreamingResponse(
            streams.of(hub, request),
            media_type="text/event-stream",
            headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
        )

    @app.post("/v1/size", response_model=Sizes)
    @needs(Role.READ)
    def size(question: SizeQuestion) -> dict[str, Any]:
        """Say how much memory a rate needs, or which rate a memory allows, by algorithm."""
        return {"answers": _sized(question)}

    return app


class _Streams:
    """Those who listen; for the event loop's thread alone."""

    def __init__(self) -> None:
        self._open = 0

    def of(self, hub: Hub, request: Request) -> AsyncIterator[str]:
        if self._open >= MOST_STREAMS:
            raise again_later(
                Kind.TOO_MANY_REQUESTS,
                f"{MOST_STREAMS} streams are open already; close one, or ask /v1/stats",
                5,
            )
        return self._events(hub, request)

    async def _events(self, hub: Hub, request: Request) -> AsyncIterator[str]:
        self._open += 1
        known: dict[int, dict[str, Any]] = {}
        try:
            while not await request.is_disconnected():
                try:
                    yield _event("stats", await run_in_threadpool(hub.stats))
                    for job in await run_in_threadpool(_latest_jobs, hub):
                        if known.get(job["id"]) != job:
                            yield _event("job", job)
                        known[job["id"]] = job
                except Unavailable as error:
                    yield f": {' '.join(str(error).split())}\n\n"
                await asyncio.sleep(_LIVE_S)
        finally:
            self._open -= 1


def _latest_jobs(hub: Hub) -> list[dict[str, Any]]:
    return [shown_job(job) for job in hub.jobs.rows.last(10, pipeline=hub.name)]


def _event(name: str, data: dict[str, Any]) -> str:
    return f"event: {name}\ndata: {json.dumps(data, default=_written)}\n\n"


def _written(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _history(points: list[Point], every: int, wanted: set[str]) -> dict[str, Any]:
    times = sorted({point.bucket // every for point in points})
    places = {moment: place for place, moment in enumerate(times)}
    series: dict[tuple[str, int, str], list[float | None]] = {}
    for point in points:
        for name, value in point.figures.items():
            if not wanted or name in wanted:
                key = (point.service, point.node, name)
                values = series.setdefault(key, [None] * len(times))
                values[places[point.bucket // every]] = value
    return {
        "step_s": every * EVERY_S,
        "at": [
            datetime.fromtimestamp(moment * every * EVERY_S, UTC).isoformat() for moment in times
        ],
        "series": [
            {
                "service": service or None,
                "node": node if service else None,
                "figure": name,
                "values": values,
            }
            for (service, node, name), values in sorted(series.items())
        ],
    }


def _sized(asked: SizeQuestion) -> list[dict[str, Any]]:
    memory = _memory(asked.memory)
    if asked.rate is None and memory is None:
        raise _wrong("body.rate", "name a rate or a memory, and the other one is computed")
    known = models(asked.nodes)
    among = asked.algorithms or [
        name for name, model in known.items() if asked.index or not model.needs_index
    ]
    unknown = [name for name in among if name not in known]
    if unknown:
        raise _wrong("body.algorithms", f"{unknown[0]!r} is none of {', '.join(known)}")
    workload = engine_workload(
        ZipfPopularity(asked.rows, asked.skew, asked.rows_a_key),
        asked.row_bytes,
        asked.event_bytes,
        ordered=asked.ordered,
        unique=asked.unique,
    )
    try:
        if memory is None:
            assert asked.rate is not None
            found = memory_for(workload, TYPICAL, asked.rate, among, asked.nodes)
        else:
            found = rate_for(workload, TYPICAL, memory, among, asked.nodes)
    except ConfigError as error:
        raise _wrong("body", str(error)) from None
    enough = enough_for(found, asked.rate) if asked.rate and memory is not None else found
    return [_answer(one, one in enough) for one in found]


def _answer(sizing: Sizing, enough: bool) -> dict[str, Any]:
    plan = sizing.plan
    return {
        "algorithm": sizing.algorithm,
        "rate": plan.rate if plan else None,
        "memory": plan.memory if plan else None,
        "hit_share": plan.hit_share if plan else None,
        "parts": dict(zip(_PARTS, plan.parts.values(), strict=True)) if plan else None,
        "reason": sizing.reason,
        "enough": enough and plan is not None,
    }


def _memory(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return parse_size(text)
    except ValueError as error:
        raise _wrong("body.memory", str(error)) from None


def _wrong(field: str, text: str) -> ProblemError:
    return ProblemError(Kind.REQUEST_INVALID, text, blames=[Blame(field, text)])
