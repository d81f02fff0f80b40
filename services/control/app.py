"""The control service's REST API."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, FastAPI, HTTPException, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from services.control.monitor import totals

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from prometheus_client.core import Metric

    from dovetail.pipeline.spec import Pipeline
    from services.control.monitor import Monitor


def create_app(
    pipeline: Pipeline, monitor: Monitor, collectors: Sequence[Collector] = ()
) -> FastAPI:
    """`collectors` are what else `/metrics` shows."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        monitor.start()
        yield
        monitor.stop()

    app = FastAPI(title="Dovetail control", version="1", lifespan=lifespan)
    app.include_router(_service_routes(monitor, collectors))
    app.include_router(_pipeline_routes(pipeline, monitor))
    return app


def _service_routes(monitor: Monitor, collectors: Sequence[Collector]) -> APIRouter:
    app = APIRouter()
    registry = CollectorRegistry()
    for collector in (PipelineCollector(monitor), *collectors):
        registry.register(collector)

    @app.get("/health")
    def health() -> dict[str, str]:
        return {"state": "alive"}

    @app.get("/ready")
    def ready(response: Response) -> dict[str, str]:
        if monitor.ready:
            return {"state": "ready"}
        response.status_code = 503
        return {"state": "not ready", "reason": "no ledger has been read yet"}

    @app.get("/metrics")
    def metrics() -> Response:
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    return app


def _pipeline_routes(pipeline: Pipeline, monitor: Monitor) -> APIRouter:
    app = APIRouter()

    @app.get("/")
    def index() -> dict[str, str]:
        return {
            "pipeline": f"/v1/pipelines/{pipeline.name}",
            "stats": "/v1/stats",
            "audit": "/v1/audit",
            "metrics": "/metrics",
            "documentation": "/docs",
        }

    @app.get("/v1/pipelines/{name}")
    def show_pipeline(name: str) -> dict[str, Any]:
        if name != pipeline.name:
            raise HTTPException(404, f"no pipeline {name!r} runs here; there is {pipeline.name!r}")
        return pipeline.model_dump(mode="json")

    @app.get("/v1/stats")
    def stats() -> dict[str, Any]:
        """What every service does now, and the totals of the pipeline."""
        return monitor.stats()

    @app.get("/v1/audit")
    def audit() -> dict[str, Any]:
        """The conservation sum as of now; `problems` is empty unless it is off."""
        return totals(monitor.audit())

    return app


class PipelineCollector(Collector):
    """The pipeline's exact totals, from the ledgers."""

    def __init__(self, monitor: Monitor) -> None:
        self._monitor = monitor

    def collect(self) -> Iterator[Metric]:
        seen = self._monitor.stats()["totals"]
        if seen is None:
            return
        events = CounterMetricFamily(
            "dovetail_pipeline_events", "Events by outcome, from the ledgers", labels=["outcome"]
        )
        for outcome in ("in", "enriched", "unmatched", "parked", "dead_lettered", "shed"):
            events.add_metric([outcome], seen[outcome])
        yield events
        yield GaugeMetricFamily(
            "dovetail_in_flight", "Events taken, not answered", seen["in_flight"]
        )
        yield GaugeMetricFamily("dovetail_waiting", "Records ingest has not taken", seen["waiting"])
        yield GaugeMetricFamily(
            "dovetail_conservation_problems", "Equations that do not hold", len(seen["problems"])
        )
