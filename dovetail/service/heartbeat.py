"""About once a second a service says on `dovetail.stats` how it is."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from typing import TYPE_CHECKING, NamedTuple

import psutil
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from dovetail.contracts.control_pb2 import Heartbeat
from dovetail.service import tls
from dovetail.topology import STATS_TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable

    from dovetail.settings import Settings

log = logging.getLogger(__name__)
EVERY_S = 1.0


def reachable(host: str) -> str:
    """The address by which others reach what is bound to this one, or to all of the machine's."""
    if host not in ("0.0.0.0", "::", ""):  # noqa: S104 - nothing is bound here
        return host
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return socket.gethostname()


def _told(error: KafkaError | None, _: Message) -> None:
    if error is not None:
        log.warning("heartbeat not sent", extra={"reason": error.str()})


class Look(NamedTuple):
    """How a service is at this moment."""

    not_ready: str
    """Why it is not ready; empty when it is."""
    alarm: str
    """What somebody should look at although it is ready; empty if nothing is."""
    figures: dict[str, float]
    state: Heartbeat.State = Heartbeat.STATE_READY
    """What it is when it is ready: perhaps paused."""
    partitions: tuple[int, ...] = ()
    revision: int = 0
    command: int = 0


class Heart:
    """Sends heartbeats from a thread of its own until it is stopped."""

    def __init__(
        self,
        settings: Settings,
        pipeline: str,
        service: str,
        look: Callable[[], Look],
    ) -> None:
        self._settings = settings
        self._pipeline = pipeline
        self._service = service
        self._look = look
        self._stop = threading.Event()
        self._producer = Producer(settings.client())
        self._process = psutil.Process()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(timeout=5)

    @property
    def ended(self) -> bool:
        """Whether its thread has ended, and nobody has stopped it."""
        begun = self._thread.ident is not None
        return begun and not self._thread.is_alive() and not self._stop.is_set()

    def _run(self) -> None:
        while not self._stop.wait(EVERY_S):
            try:
                self._beat()
            except Exception:
                # The next one may go well; without any, a service that works is taken for gone.
                log.exception("heartbeat not sent")
        self._producer.flush(2)

    def _beat(self) -> None:
        seen = self._look()
        figures = dict(seen.figures)
        cpu = self._process.cpu_times()
        figures["resident_bytes"] = self._process.memory_info().rss
        figures["cpu_seconds"] = cpu.user + cpu.system
        state = Heartbeat.STATE_STARTING if seen.not_ready else seen.state
        beat = Heartbeat(
            pipeline=self._pipeline,
            service=self._service,
            node=self._settings.node,
            state=state,
            at_ms=time.time_ns() // 1_000_000,
            pid=os.getpid(),
            url=f"{tls.scheme()}://{reachable(self._settings.host)}:{self._settings.port}",
            figures=figures,
            reason=seen.not_ready or seen.alarm,
            partitions=seen.partitions,
            revision=seen.revision,
            command=seen.command,
        )
        try:
            self._producer.produce(STATS_TOPIC, beat.SerializeToString(), on_delivery=_told)
            self._producer.poll(0)
        except (BufferError, KafkaException) as error:
            # The next one says more: a heartbeat is not worth waiting for.
            log.warning("heartbeat not sent", extra={"reason": str(error)})
