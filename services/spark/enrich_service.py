"""What the rest of the pipeline sees of `enrich`: HTTP, heartbeats, metrics, one line a while.

Events by HTTP are ingest's own code: they go to the source topic, as any sender's do.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Self

import numpy as np
import uvicorn
from fastapi import FastAPI, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from dovetail.contracts.control_pb2 import Heartbeat
from dovetail.errors import Unavailable
from dovetail.service import tls
from dovetail.service.heartbeat import Heart, Look
from dovetail.service.metrics import Metrics
from dovetail.service.stage import Context
from dovetail.stream import ledger
from dovetail.topology import ENRICH, Topology
from services.ingest.routes import EventsByHttp
from services.mapper.skew import Skew
from services.spark.enrich_look import look_routes

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from dovetail.settings import Settings
    from services.spark.enrich_look import Question, Said
    from services.spark.enrich_node import Report
    from services.spark.enrich_orders import Standing

log = logging.getLogger(__name__)

_TOLD_EVERY_S = 5.0


def _nobody(_: Question) -> list[Said]:
    raise Unavailable("it is starting: ask again later")


class EnrichService:
    """Answers as a stage does, for the driver; HTTP only where DOVETAIL_PORT is set."""

    def __init__(self, settings: Settings, standing: Standing, stopping: threading.Event) -> None:
        """`stopping` is set if it cannot go on."""
        pipeline = standing.revision.pipeline
        self.trouble = "starting"
        """Why batches are not answered; empty when they are."""
        self.failure: BaseException | None = None
        """What it could not go on after."""
        self.ask: Callable[[Question], list[Said]] = _nobody
        """Asks those who do the work now."""
        self._stopping = stopping
        self._obeyed = standing
        self._metrics = Metrics(ENRICH)
        self._skew = Skew(pipeline.slots, time.monotonic())
        self._lag = self._metrics.event_time_lag() if pipeline.source.event_time else None
        self._inbox = EventsByHttp(Context(settings, pipeline, Topology(pipeline), self._metrics))
        self._counts: Counter[str] = Counter()
        self._figures: dict[str, float] = {}
        self._alarm = ""
        self._told_at = time.monotonic()
        self._told = 0
        self._heart = Heart(settings, pipeline.name, ENRICH, self._look)
        config = uvicorn.Config(
            self._app(),
            settings.host,
            settings.port,
            log_config=None,
            access_log=False,
            proxy_headers=False,
            **tls.served(),
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

    def obeys(self, standing: Standing, trouble: str) -> None:
        """Say that this is what is done now, or tried."""
        self._obeyed = standing
        self.trouble = trouble

    def note(self, reports: list[Report], seconds: float, figures: Mapping[str, float]) -> None:
        """Show what a batch did."""
        pipeline = self._obeyed.revision.pipeline
        batch: Counter[str] = Counter()
        for report in reports:
            batch.update(report.counts)
            self._metrics.latency.take(report.latency)
            if self._lag is not None:
                self._lag.take(report.lag)
        self._metrics.committed(batch, seconds)
        self._counts.update(batch)
        self._alarm = next((report.alarm for report in reports if report.alarm), "")
        self._figures = {
            "budget_bytes": pipeline.memory * pipeline.nodes,
            "held_bytes": sum(report.held_bytes for report in reports),
            "cache_keys": sum(report.cached_keys for report in reports),
            "batch_seconds": seconds,
            "batch_events": batch[ledger.IN],
            **self._skew_of(reports),
            **figures,
        }
        self._tell(seconds, batch[ledger.IN])

    def _skew_of(self, reports: list[Report]) -> dict[str, float]:
        by_slot = np.zeros(self._obeyed.revision.pipeline.slots, np.int64)
        for report in reports:
            by_slot[list(report.taken)] += list(report.taken.values())
        self._skew.add(by_slot, time.monotonic())
        return self._skew.figures()

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
        # Copied at once: a batch may bring an outcome for the first time meanwhile.
        counts = {f"events.{name}": float(count) for name, count in dict(self._counts).items()}
        obeyed = self._obeyed
        return Look(
            self._reason(),
            self._alarmed(),
            {**counts, **self._figures, **self._metrics.latency.told()},
            Heartbeat.STATE_PAUSED if obeyed.rests else Heartbeat.STATE_READY,
            revision=obeyed.revision.number,
            command=obeyed.number,
        )

    def _alarmed(self) -> str:
        return self._alarm or self._obeyed.revision.refused

    def _reason(self) -> str:
        """Why it is not ready; empty when it is."""
        return self.trouble or (self._inbox.waiting_for() if self._server is not None else "")

    def _ask(self, question: Question) -> list[Said]:
        return self.ask(question)

    def _fail(self, failure: BaseException) -> None:
        log.critical("events by HTTP failed", exc_info=failure)
        self.failure = failure
        self._stopping.set()

    def _serve(self) -> None:
        if self._server is not None:
            self._server.run()

    def _app(self) -> FastAPI:
        @asynccontextmanager
        async def lifespan(_: FastAPI) -> AsyncIterator[None]:
            self._inbox.start(self._fail)
            yield
            self._inbox.stop()

        app = FastAPI(title="Dovetail enrich", lifespan=lifespan, openapi_url=None)
        routes = self._inbox.routes()
        # Not included: the gate has to see each of them.
        routes.routes += look_routes(self._ask).routes
        app.include_router(routes)
        self._inbox.guard(app, routes)

        @app.get("/health")
        def health(response: Response) -> dict[str, str]:
            if self._heart.ended:
                response.status_code = 503
                return {"state": "failed", "reason": "it sends no heartbeats any more: see the log"}
            return {"state": "alive"}

        @app.get("/ready")
        def ready(response: Response) -> dict[str, str]:
            if reason := self._reason():
                response.status_code = 503
                return {"state": "not ready", "reason": reason}
            state = "paused" if self._obeyed.rests else "ready"
            alarm = self._alarmed()
            return {"state": state, "alarm": alarm} if alarm else {"state": state}

        @app.get("/metrics")
        def metrics() -> Response:
            ready, alarm = float(not self._reason()), float(bool(self._alarmed()))
            self._metrics.show({"ready": ready, "alarm": alarm, **self._figures})
            return Response(generate_latest(self._metrics.registry), media_type=CONTENT_TYPE_LATEST)

        return app
