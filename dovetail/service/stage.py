"""A stage as a process: the loop in a thread, FastAPI in front of it.

/health   200 while the loop lives
/ready    200 when it has partitions and everything it needs; else 503 and why. An alarm is told
          beside it: what somebody should look at although events are answered
/metrics  Prometheus

and whatever the stage offers beside them: an annex.
"""

from __future__ import annotations

import gc
import logging
import sys
import threading
from abc import ABC, abstractmethod
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import uvicorn
from fastapi import FastAPI, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from dovetail.errors import ConfigError, DovetailError, MasterDataError
from dovetail.pipeline.load import load_pipeline
from dovetail.service import logs
from dovetail.service.allocator import keep_freed_memory
from dovetail.service.heartbeat import Heart, Look
from dovetail.service.metrics import Metrics
from dovetail.settings import Settings
from dovetail.stream.loop import Loop
from dovetail.stream.topics import ensure_topics
from dovetail.topology import Topology

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from fastapi import APIRouter

    from dovetail.pipeline.spec import Pipeline
    from dovetail.stream.loop import Handler, Step

log = logging.getLogger(__name__)


class Annex(ABC):
    """Routes of a stage's own, with what has to run for them."""

    @abstractmethod
    def routes(self) -> APIRouter: ...

    @abstractmethod
    def start(self, failed: Callable[[BaseException], None]) -> None:
        """Begin; `failed` is told what it cannot go on after, and ends the process."""

    @abstractmethod
    def stop(self) -> None:
        """End when all requests are answered."""

    def waiting_for(self) -> str:
        """Why it is not ready; empty when it is."""
        return ""


@dataclass(frozen=True, slots=True)
class Context:
    """What a handler is built from."""

    settings: Settings
    pipeline: Pipeline
    """Of the link that the stage belongs to."""
    topology: Topology
    metrics: Metrics
    annexes: list[Annex] = field(default_factory=list)
    """Whoever builds the handler may add to them."""


def run_stage(
    kind: str, step: Callable[[Pipeline], Step], build: Callable[[Context], Handler]
) -> int:
    """Run one stage as this process, from its settings to its last step."""
    service = kind
    try:
        keep_freed_memory()
        settings = Settings.from_environment()
        whole = load_pipeline(settings.pipeline)
        topology = _seen_from(whole, settings.link)
        pipeline = whole.link(settings.link)
        service = topology.service(kind)
        logs.configure(service=service, node=settings.node)
        ensure_topics(settings, topology.topics())
        metrics = Metrics()
        context = Context(settings, pipeline, topology, metrics)
        handler = build(context)
        loop = Loop(
            topology.stage(service),
            topology.group(service),
            settings,
            handler,
            step(pipeline),
            metrics.committed,
        )
        stage = StageService(service, context, loop, handler)
        # What is there now stays: the collector need not look at it again. And a step makes
        # thousands of short-lived objects at once, none of them in a cycle.
        gc.freeze()
        gc.set_threshold(100_000, 20, 20)
    except DovetailError as error:
        print(f"{service}: {error}", file=sys.stderr)
        return exit_code(error)
    return stage.run()


def _seen_from(pipeline: Pipeline, link: int) -> Topology:
    if not 1 <= link <= pipeline.links:
        raise ConfigError(
            f"DOVETAIL_LINK={link}: {pipeline.name} joins {pipeline.links} tables; give 1 to"
            f" {pipeline.links}"
        )
    return Topology(pipeline, link)


def exit_code(error: DovetailError) -> int:
    """2 where only a change by the user helps, 1 where another try may."""
    return 2 if isinstance(error, ConfigError | MasterDataError) else 1


class StageService:
    """Runs a loop until SIGTERM, then drains: the step under way is finished first."""

    def __init__(
        self,
        name: str,
        context: Context,
        loop: Loop,
        handler: Handler,
    ) -> None:
        settings = context.settings
        self._name = name
        self._loop = loop
        self._handler = handler
        self._metrics = context.metrics
        self._annexes = context.annexes
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="loop")
        self._heart = Heart(settings, context.pipeline.name, name, self._look)
        self._server = uvicorn.Server(
            uvicorn.Config(
                self._app(), settings.host, settings.port, log_config=None, access_log=False
            )
        )

    def run(self) -> int:
        """Serve until told to stop; return the process's exit code."""
        self._server.run()
        return 1 if self._failure else 0

    def _app(self) -> FastAPI:
        @asynccontextmanager
        async def lifespan(_: FastAPI) -> AsyncIterator[None]:
            self._thread.start()
            self._heart.start()
            for annex in self._annexes:
                annex.start(self._fail)
            yield
            log.info("draining")
            for annex in self._annexes:
                annex.stop()
            self._loop.stop()
            self._thread.join()
            self._heart.stop()
            log.info("stopped")

        app = FastAPI(title=f"Dovetail {self._name}", lifespan=lifespan)

        @app.get("/health")
        def health(response: Response) -> dict[str, str]:
            if self._failure or not self._thread.is_alive():
                response.status_code = 503
                return {"state": "failed", "reason": repr(self._failure)}
            return {"state": "alive"}

        @app.get("/ready")
        def ready(response: Response) -> dict[str, str]:
            reason = self._reason()
            if reason:
                response.status_code = 503
                return {"state": "not ready", "reason": reason}
            alarm = self._handler.alarm()
            return {"state": "ready", "alarm": alarm} if alarm else {"state": "ready"}

        @app.get("/metrics")
        def metrics() -> Response:
            self._metrics.show(self._figures())
            return Response(generate_latest(self._metrics.registry), media_type=CONTENT_TYPE_LATEST)

        for annex in self._annexes:
            app.include_router(annex.routes())
        return app

    def _work(self) -> None:
        try:
            self._loop.run()
        except BaseException as failure:  # noqa: BLE001 - told, and the process ends by it
            self._fail(failure)

    def _fail(self, failure: BaseException) -> None:
        self._failure = failure
        log.critical("the stage failed", exc_info=failure)
        self._server.should_exit = True

    def _reason(self) -> str:
        """Why it is not ready; empty when it is."""
        reasons = (self._loop.reason, *(annex.waiting_for() for annex in self._annexes))
        return next(filter(None, reasons), "")

    def _figures(self) -> dict[str, float]:
        alarm = float(bool(self._handler.alarm()))
        return {"lag": self._loop.lag, "alarm": alarm, **self._handler.figures()}

    def _look(self) -> Look:
        counts = {f"events.{name}": count for name, count in self._loop.counts.items()}
        return Look(self._reason(), self._handler.alarm(), {**counts, **self._figures()})
