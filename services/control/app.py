"""The control service's REST API: the gate, the errors' one form, and all routes behind them."""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Depends, FastAPI, Response
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    ProcessCollector,
    generate_latest,
)

from dovetail.errors import DovetailError
from services.access.gate import OPEN_PATHS, Gate, Rules
from services.control.console import console_routes
from services.control.metrics import PipelineCollector
from services.control.plans import plan_routes
from services.control.problems import tell_problems
from services.control.query import require_known, require_once
from services.control.reference import reference_routes
from services.control.routes.access import access_routes
from services.control.routes.letters import letter_routes
from services.control.routes.look import look_routes
from services.control.routes.pipelines import pipeline_routes
from services.control.routes.running import running_routes
from services.control.routes.spark import run_routes, spark_routes
from services.control.routes.stats import stats_routes
from services.control.shapes import ProblemShape
from services.problem import MEDIA_TYPE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from prometheus_client.registry import Collector

    from services.access.roles import Who
    from services.control.hub import Hub
    from services.control.monitor import Monitor
    from services.control.store.changes import Changes

log = logging.getLogger(__name__)

_PROBLEM = {"content": {MEDIA_TYPE: {"schema": ProblemShape.model_json_schema()}}}
_RESPONSES: dict[int | str, dict[str, Any]] = {
    "4XX": {"description": "It was refused; `detail` says what to do.", **_PROBLEM},
    "5XX": {"description": "It could not be done; `detail` says what to do.", **_PROBLEM},
}
CONSOLE = "/console/"
READY = {"state": "ready"}


def create_app(hub: Hub, collectors: Sequence[Collector] = ()) -> FastAPI:
    """`collectors` are what else `/metrics` shows."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        hub.monitor.start()
        yield
        hub.jobs.stop()
        hub.monitor.stop()

    routers = [
        _service_routes(hub.monitor, collectors),
        pipeline_routes(hub),
        running_routes(hub),
        look_routes(hub),
        stats_routes(hub),
        *letter_routes(hub),
        spark_routes(hub),
        run_routes(hub.name, hub.engine),
        plan_routes(hub.topology.pipeline, hub.engine),
        access_routes(hub),
        console_routes(),
    ]
    # The pages that describe it are closed like all else: they are routes of ours, below.
    app = FastAPI(
        title="Dovetail control",
        version="1",
        lifespan=lifespan,
        openapi_url=None,
        responses=_RESPONSES,
        dependencies=[Depends(require_known), Depends(require_once)],
    )
    routers.append(reference_routes(app))
    for router in routers:
        app.include_router(router)
    tell_problems(app)
    app.state.routes = [route for router in routers for route in router.routes]
    rules = Rules(
        app.state.routes,
        open_paths=OPEN_PATHS | {"/"},
        open_folders=(CONSOLE,),
        local=hub.access.local,
        rate=hub.access.rate,
        refused=note_refusals(hub.changes),
    )
    app.add_middleware(Gate, known=hub.tokens, rules=rules)
    return app


def note_refusals(changes: Changes) -> Callable[[Who, str, str], None]:
    def note(who: Who, method: str, path: str) -> None:
        try:
            changes.note(who, "access.refused", method=method, path=path[:200])
        except DovetailError:
            log.warning("a refusal is not written down", exc_info=True)

    return note


def _service_routes(monitor: Monitor, collectors: Sequence[Collector]) -> APIRouter:
    app = APIRouter()
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    for collector in (PipelineCollector(monitor), *collectors):
        registry.register(collector)

    @app.get("/health")
    async def health(response: Response) -> dict[str, str]:
        failed = monitor.failed()
        if failed:
            response.status_code = 503
            return {"state": "failed", "reason": failed}
        return {"state": "alive"}

    @app.get("/ready")
    async def ready(response: Response) -> dict[str, str]:
        if monitor.ready:
            return {"state": "ready", "alarm": monitor.alarm} if monitor.alarm else READY
        response.status_code = 503
        return {"state": "not ready", "reason": "no ledger has been read yet"}

    @app.get("/metrics", response_class=Response)
    def metrics() -> Response:
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    return app
