"""A stage as a process: the loop in a thread, FastAPI in front of it.

/health   200 while the loop lives and makes its turns, or waits for a broker or a database
/ready    200 when it has partitions and everything it needs; else 503 and why. An alarm is told
          beside it: what somebody should look at although events are answered
/metrics  Prometheus

and whatever the stage offers beside them: an annex.

It keeps to what control orders (orders.py): it pauses and goes on, and takes a new revision of the
pipeline by ending its loop as at any stop and running itself anew, in its own place. Whoever
supervises it sees the same process.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
import threading
from abc import ABC, abstractmethod
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import uvicorn
from fastapi import FastAPI, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from dovetail.contracts.control_pb2 import Command, Heartbeat
from dovetail.errors import ConfigError, DovetailError, MasterDataError, NotAllowedError
from dovetail.pipeline.load import load_pipeline
from dovetail.service import logs, tls
from dovetail.service.allocator import keep_freed_memory
from dovetail.service.heartbeat import Heart, Look
from dovetail.service.metrics import Metrics
from dovetail.service.orders import Orders
from dovetail.service.revision import Revision
from dovetail.settings import Settings
from dovetail.stream.acls import settle_topics
from dovetail.stream.forgotten import require_remembered
from dovetail.stream.handler import Move
from dovetail.stream.ledger import IN
from dovetail.stream.loop import Loop
from dovetail.topology import Topology

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from fastapi import APIRouter

    from dovetail.pipeline.spec import Pipeline
    from dovetail.stream.handler import Handler, Step
    from dovetail.topology import Stage

log = logging.getLogger(__name__)

_HUNG_S = 300.0
"""Without a turn for so long a stage is stuck; its group has given it up by then
(`max.poll.interval.ms`), and no read of the database takes as long."""


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

    def guard(self, app: FastAPI, routes: APIRouter) -> None:
        """Close its routes to those who may not use them."""

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


@dataclass(frozen=True, slots=True)
class Beside:
    """A further stage of the same process: it has a loop of its own."""

    build: Callable[[Context], Handler]
    step: Callable[[Pipeline], Step]


def run_stage(
    kind: str,
    step: Callable[[Pipeline], Step],
    build: Callable[[Context], Handler],
    concerns: Callable[[Pipeline], object] = lambda pipeline: pipeline,
    warm: Callable[[str, Pipeline], None] = lambda _service, _pipeline: None,
    beside: Mapping[str, Beside] | None = None,
) -> int:
    """Run one stage as this process, from its settings to its last step.

    `warm` loads its kernels before it takes part, so that no event waits for them. It runs itself
    anew for a revision that changes what of the pipeline `concerns` it. The same process runs the
    stages `beside` it, by their services, where the topology has them.
    """
    service = kind
    try:
        keep_freed_memory()
        settings = Settings.from_environment()
        by_file = load_pipeline(settings.pipeline)
        service = _seen_from(by_file, settings.link).service(kind)
        logs.configure(service=service, node=settings.node)
        settle_topics(settings, Topology(by_file), service)
        orders = Orders(settings, by_file.name, service)
        revision = Revision.ordered(settings.pipeline, by_file, orders.read())
        topology = _seen_from(revision.pipeline, settings.link)
        for each in topology.of_process(service):
            require_remembered(settings, topology, each)
        pipeline = revision.pipeline.link(settings.link)
        metrics = Metrics(kind)
        context = Context(settings, pipeline, topology, metrics)
        handler = build(context)
        parts = [(topology.stage(service), handler, step)]
        parts += [
            (other, run.build(context), run.step)
            for other in topology.of_process(service)
            if (run := (beside or {}).get(other.service))
        ]
        loops = [
            Loop(
                each,
                topology.group(each.keeper),
                settings,
                of_each,
                step_of(pipeline),
                partial(_counted, metrics, inner=_is_inner(each, [one for one, *_ in parts])),
            )
            for each, of_each, step_of in parts
        ]
        stage = StageService(
            service,
            context,
            loops,
            [of_each for _, of_each, _ in parts],
            orders,
            revision,
            concerns,
            partial(warm, service, pipeline),
        )
        # What is there now stays: the collector need not look at it again. And a step makes
        # thousands of short-lived objects at once, none of them in a cycle.
        gc.freeze()
        gc.set_threshold(100_000, 20, 20)
    except DovetailError as error:
        print(f"{service}: {error}", file=sys.stderr)
        return exit_code(error)
    code = stage.run()
    if stage.anew and not code:
        sys.stderr.flush()
        # In the same process: to its supervisor nothing has happened.
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - no shell is wanted
    return code


def _is_inner(stage: Stage, of_process: Sequence[Stage]) -> bool:
    """Whether another stage of the same process has counted what comes to this one."""
    return any(stage.reads in other.writes for other in of_process)


def _counted(metrics: Metrics, counts: Counter[str], seconds: float, *, inner: bool) -> None:
    metrics.committed(_outside(counts) if inner else counts, seconds)


def _outside(counts: Counter[str]) -> Counter[str]:
    return Counter({name: events for name, events in counts.items() if name != IN})


def _seen_from(pipeline: Pipeline, link: int) -> Topology:
    if not 1 <= link <= pipeline.links:
        raise ConfigError(
            f"DOVETAIL_LINK is out of range: {pipeline.name} joins {pipeline.links} tables; give 1"
            f" to {pipeline.links}"
        )
    return Topology(pipeline, link)


def end_in_order() -> None:
    """Let SIGTERM be no failure, once all is served.

    The server raises it anew then, and the process would end by it: with 143, in a container.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))


def exit_code(error: DovetailError) -> int:
    """2 where only a change by the user helps, 1 where another try may."""
    return 2 if isinstance(error, ConfigError | MasterDataError | NotAllowedError) else 1


class StageService:
    """Runs a loop until SIGTERM, then drains: the step under way is finished first."""

    def __init__(
        self,
        name: str,
        context: Context,
        loops: Sequence[Loop],
        handlers: Sequence[Handler],
        orders: Orders,
        revision: Revision,
        concerns: Callable[[Pipeline], object],
        warm: Callable[[], None],
    ) -> None:
        """The first of the loops and handlers is the one that answers."""
        settings = context.settings
        self._name = name
        self._loops = loops
        self._handlers = handlers
        self._metrics = context.metrics
        self._annexes = context.annexes
        self._orders = orders
        self._revision = revision
        self._concerns = concerns
        self._warm = warm
        self._draining = False
        source = context.topology.source
        self._taking = [loop for loop in loops if loop.stage.reads == source]
        """Those that take events in."""
        self.anew = False
        """Whether the process is to run itself anew, for another revision."""
        if orders.command is not None:
            self._obey(orders.command)
        self._failure: BaseException | None = None
        self._warmed = threading.Event()
        self._threads = [
            threading.Thread(target=self._work, args=(loop,), name=f"loop {loop.stage.service}")
            for loop in loops
        ]
        self._heart = Heart(settings, context.pipeline.name, name, self._look)
        self._server = uvicorn.Server(
            uvicorn.Config(
                self._app(),
                settings.host,
                settings.port,
                log_config=None,
                access_log=False,
                proxy_headers=False,
                **tls.served(),
            )
        )

    def run(self) -> int:
        """Serve until told to stop; return the process's exit code."""
        end_in_order()
        self._server.run()
        if isinstance(self._failure, ConfigError | NotAllowedError):
            # Once more and last, in plain words: whoever looks for the reason looks there.
            print(f"{self._name}: {self._failure}", file=sys.stderr)
            return exit_code(self._failure)
        return 1 if self._failure else 0

    def _app(self) -> FastAPI:
        @asynccontextmanager
        async def lifespan(_: FastAPI) -> AsyncIterator[None]:
            self._start_loops()
            self._heart.start()
            self._orders.follow(self._told)
            for annex in self._annexes:
                annex.start(self._fail)
            yield
            log.info("draining")
            self._orders.stop()
            for annex in self._annexes:
                annex.stop()
            self._stop_loops()
            self._end_loops()
            self._heart.stop()
            log.info("stopped")

        app = FastAPI(title=f"Dovetail {self._name}", lifespan=lifespan, openapi_url=None)

        @app.get("/health")
        def health(response: Response) -> dict[str, str]:
            failed = self._failed()
            if failed:
                response.status_code = 503
                return {"state": "failed", "reason": failed}
            return {"state": "alive"}

        @app.get("/ready")
        def ready(response: Response) -> dict[str, str]:
            reason = self._reason()
            if reason:
                response.status_code = 503
                return {"state": "not ready", "reason": reason}
            state = Heartbeat.State.Name(self._state()).removeprefix("STATE_").lower()
            alarm = self._alarm()
            return {"state": state, "alarm": alarm} if alarm else {"state": state}

        @app.get("/metrics")
        def metrics() -> Response:
            self._metrics.show(self._figures())
            return Response(generate_latest(self._metrics.registry), media_type=CONTENT_TYPE_LATEST)

        for annex in self._annexes:
            routes = annex.routes()
            app.include_router(routes)
            annex.guard(app, routes)
        return app

    def _told(self, command: Command) -> None:
        """Obey a command that has come while it runs."""
        log.info(
            "command",
            extra={
                "number": command.number,
                "action": Command.Action.Name(command.action),
                "revision": command.revision,
            },
        )
        self._obey(command)
        revision = self._revision.after(command)
        if self._concerns(revision.pipeline) != self._concerns(self._revision.pipeline):
            log.info("running anew", extra={"revision": revision.number})
            self.anew = True
            self._server.should_exit = True
        else:
            self._revision = revision

    def _obey(self, command: Command) -> None:
        """Pause, or drain: then the first stage takes nothing more, and the others finish."""
        if command.read_from:
            for loop in self._taking:
                loop.move = Move(command.read_from_number, dict(command.read_from))
        self._draining = command.action == Command.ACTION_DRAIN
        paused = command.action == Command.ACTION_PAUSE
        for loop in self._loops:
            loop.paused = paused or (self._draining and loop in self._taking)

    def _state(self) -> Heartbeat.State:
        if not (self._draining or any(loop.paused for loop in self._loops)):
            return Heartbeat.STATE_READY
        over = all(loop.resting and (loop.paused or not loop.lag) for loop in self._at_work())
        return Heartbeat.STATE_PAUSED if over else Heartbeat.STATE_DRAINING

    def _work(self, loop: Loop) -> None:
        try:
            loop.reason = "loading its kernels"
            if loop is self._loops[0]:
                self._warm()
                self._warmed.set()
            self._warmed.wait()
            loop.run()
        except BaseException as failure:  # noqa: BLE001 - told, and the process ends by it
            self._fail(failure)
            self._warmed.set()
            self._stop_loops()

    def _start_loops(self) -> None:
        for thread in self._threads:
            thread.start()

    def _end_loops(self) -> None:
        for thread in self._threads:
            thread.join()

    def _stop_loops(self) -> None:
        for loop in self._loops:
            loop.stop()

    def _fail(self, failure: BaseException) -> None:
        self._failure = failure
        log.critical("the stage failed", exc_info=failure)
        self._server.should_exit = True

    def _failed(self) -> str:
        """Why only a new process helps; empty while it works."""
        if self._failure or not all(thread.is_alive() for thread in self._threads):
            return repr(self._failure)
        for loop in self._loops:
            if loop.still_s > _HUNG_S:
                why = loop.reason or "a call does not come back"
                return f"no turn for {loop.still_s:.0f} s: {why}"
        if self._heart.ended or self._orders.ended:
            return "it sends no heartbeats, or follows no orders, any more: see the log"
        return ""

    def _reason(self) -> str:
        """Why it is not ready; empty when it is."""
        reasons = [loop.reason for loop in self._at_work()]
        return next(filter(None, (*reasons, *(one.waiting_for() for one in self._annexes))), "")

    def _at_work(self) -> list[Loop]:
        """All but a loop beside the first that has nothing to do: others have all partitions."""
        return [loop for loop in self._loops if not loop.spare or loop is self._loops[0]]

    def _alarm(self) -> str:
        alarms = (handler.alarm() for handler in self._handlers)
        return next(filter(None, alarms), "") or self._revision.refused

    def _figures(self) -> dict[str, float]:
        return {
            "ready": float(not self._reason()),
            "alarm": float(bool(self._alarm())),
            "lag": sum(loop.lag for loop in self._loops),
            **{k: v for handler in self._handlers for k, v in handler.figures().items()},
        }

    def _look(self) -> Look:
        # Copied at once: the loop may count an outcome for the first time meanwhile.
        stages = [loop.stage for loop in self._loops]
        total: Counter[str] = Counter()
        for loop in self._loops:
            counted = Counter(dict(loop.counts))
            total += _outside(counted) if _is_inner(loop.stage, stages) else counted
        counts = {f"events.{name}": count for name, count in total.items()}
        command = self._orders.command
        reason, alarm = self._reason(), self._alarm()
        if any(loop.halted and loop.paused for loop in self._loops):
            # It rests, as it was told to: only so can it be told where to read on.
            reason, alarm = "", reason
        return Look(
            reason,
            alarm,
            {**counts, **self._figures(), **self._metrics.latency.told()},
            self._state(),
            tuple(self._loops[0].partitions),
            self._revision.number,
            command.number if command else 0,
        )
