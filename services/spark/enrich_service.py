"""What the rest of the pipeline sees of `enrich`: HTTP, heartbeats, metrics, one line a while."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Self

import uvicorn
from fastapi import FastAPI, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from dovetail.service.heartbeat import Heart, Look
from dovetail.service.metrics import Metrics
from dovetail.stream import ledger
from dovetail.topology import ENRICH

if TYPE_CHECKING:
    from dovetail.pipeline.spec import Pipeline
    from dovetail.settings import Settings
    from services.spark.enrich_node import Report

_TOLD_EVERY_S = 5.0


class EnrichService:
    """Answers as a stage does, for the driver; HTTP only where DOVETAIL_PORT is set."""

    def __init__(self, settings: Settings, pipeline: Pipeline) -> None:
        self.reason = "starting"
        """Why it is not ready; empty when it is."""
        self._pipeline = pipeline
        self._metrics = Metrics()
        self._counts: Counter[str] = Counter()
        self._figures: dict[str, float] = {}
        self._alarm = ""
        self._told_at = time.monotonic()
        self._told = 0
        self._heart = Heart(settings, pipeline.name, ENRICH, self._look)
        config = uvicorn.Config(
            self._app(), settings.host, settings.port, log_config=None, access_log=False
        )
        self._server = uvicorn.Server(config) if settings.port else None
        self._thread = threading.Thread(target=self._serve, name="http", daemon=True)

    def __enter__(self) -> Self:
        self._heart.start()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.should_exit = True
        self._thread.join(timeout=5)
        self._heart.stop()

    def note(self, reports: list[Report], seconds: float) -> None:
        """Show what a batch did."""
        batch: Counter[str] = Counter()
        for report in reports:
            batch.update(report.counts)
            self._metrics.latency.take(report.latency)
        self._metrics.committed(batch, seconds)
        self._counts.update(batch)
        self._alarm = next((report.alarm for report in reports if report.alarm), "")
        self._figures = {
            "budget_bytes": self._pipeline.memory * self._pipeline.nodes,
            "held_bytes": sum(report.held_bytes for report in reports),
            "cache_keys": sum(report.cached_keys for report in reports),
            "batch_seconds": seconds,
            "batch_events": batch[ledger.IN],
        }
        self._tell(seconds, batch[ledger.IN])

    def _tell(self, seconds: float, events: int) -> None:
        now, taken = time.monotonic(), self._counts[ledger.IN]
        if now - self._told_at < _TOLD_EVERY_S:
            return
        rate = (taken - self._told) / (now - self._told_at)
        self._told_at, self._told = now, taken
        print(
            f"enrich: {taken:,} events, {rate:,.0f}/s; last batch {events:,} in {seconds:.2f} s",
            flush=True,
        )

    def _look(self) -> Look:
        counts = {f"events.{name}": float(count) for name, count in self._counts.items()}
        return Look(self.reason, self._alarm, {**counts, **self._figures})

    def _serve(self) -> None:
        if self._server is not None:
            self._server.run()

    def _app(self) -> FastAPI:
        app = FastAPI(title="Dovetail enrich")

        @app.get("/health")
        def health() -> dict[str, str]:
            return {"state": "alive"}

        @app.get("/ready")
        def ready(response: Response) -> dict[str, str]:
            if self.reason:
                response.status_code = 503
                return {"state": "not ready", "reason": self.reason}
            return {"state": "ready", "alarm": self._alarm} if self._alarm else {"state": "ready"}

        @app.get("/metrics")
        def metrics() -> Response:
            self._metrics.show({**self._figures, "alarm": float(bool(self._alarm))})
            return Response(generate_latest(self._metrics.registry), media_type=CONTENT_TYPE_LATEST)

        return app
