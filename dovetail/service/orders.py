"""What the control service has ordered: read when a service starts, and followed while it runs.

`dovetail.control` keeps the latest command for each pipeline and service. It says all that holds,
so a service needs no other, and goes on by it while control is down. What is malformed, stale or of
an action that is not known is refused and logged; what is meant for others is passed over.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from typing import TYPE_CHECKING

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition
from google.protobuf.message import DecodeError

from dovetail.contracts.control_pb2 import Command
from dovetail.errors import Unavailable
from dovetail.permissions import reads
from dovetail.stream.refusals import failure, is_refused
from dovetail.topology import CONTROL_TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from dovetail.settings import Settings

log = logging.getLogger(__name__)

_WITHIN_S = 30.0
_ACTIONS = (Command.ACTION_PAUSE, Command.ACTION_RESUME, Command.ACTION_DRAIN)


def key_of(pipeline: str, service: str) -> bytes:
    """The key of a service's command on the topic."""
    return f"{pipeline}/{service}".encode()


def digest_of(file: Path) -> bytes:
    """What tells a pipeline file from another."""
    return hashlib.sha256(file.read_bytes()).digest()


class Ordered:
    """The latest command for one service, out of all that are heard."""

    def __init__(self, pipeline: str, service: str) -> None:
        self._pipeline = pipeline
        self._service = service
        self.command: Command | None = None

    @property
    def number(self) -> int:
        return self.command.number if self.command else 0

    def hear(self, message: bytes | None) -> bool:
        """Take a command that is ours and newer; tell whether it was."""
        try:
            command = Command.FromString(message or b"")
        except DecodeError as error:
            log.warning("command refused: it cannot be read", extra={"reason": str(error)})
            return False
        if command.pipeline != self._pipeline or command.service not in ("", self._service):
            return False
        if command.number == self.number:
            return False  # control has started anew, and said again what holds
        if command.number < self.number:
            log.warning(
                "command refused: it is stale",
                extra={"number": command.number, "obeyed": self.number},
            )
            return False
        if command.action not in _ACTIONS:
            log.warning(
                "command refused: its action is not known",
                extra={"number": command.number, "action": int(command.action)},
            )
            return False
        self.command = command
        return True


class Orders:
    """Reads the topic: `read` what holds, then `follow` it in a thread of its own."""

    def __init__(self, settings: Settings, pipeline: str, service: str) -> None:
        self._settings = settings
        self._ordered = Ordered(pipeline, service)
        self._told: Callable[[Command], None] | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="orders", daemon=True)
        self._consumer = Consumer(
            settings.client(
                {
                    # Required, and never committed to.
                    "group.id": f"{CONTROL_TOPIC}.{pipeline}.{service}",
                    "enable.auto.commit": False,
                    "enable.partition.eof": True,
                    "log_level": 0,
                }
            )
        )

    @property
    def command(self) -> Command | None:
        return self._ordered.command

    def read(self) -> Command | None:
        """Read all that stands on the topic; the latest command for this service, if any."""
        self._consumer.assign([TopicPartition(CONTROL_TOPIC, 0, OFFSET_BEGINNING)])
        deadline = time.monotonic() + _WITHIN_S
        while True:
            message = self._consumer.poll(0.1)
            error = message.error() if message is not None else None
            if message is not None and error is None:
                self._ordered.hear(message.value())
            elif error is not None and error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
                return self.command
            elif error is not None and is_refused(error.code()):
                raise failure(
                    self._settings, error, f"{CONTROL_TOPIC} cannot be read", reads(CONTROL_TOPIC)
                )
            if time.monotonic() > deadline:
                why = error.str() if error is not None else "no answer"
                raise Unavailable(f"{CONTROL_TOPIC} cannot be read: {why}")

    def follow(self, told: Callable[[Command], None]) -> None:
        """Tell of every further command, in a thread of its own."""
        self._told = told
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5)

    @property
    def ended(self) -> bool:
        """Whether its thread has ended, and nobody has stopped it."""
        begun = self._thread.ident is not None
        return begun and not self._thread.is_alive() and not self._stop.is_set()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._turn()
            except KafkaException as error:
                log.warning("orders cannot be read", extra={"reason": str(error)})
                self._stop.wait(1)
            except Exception:
                log.exception("a command is not obeyed")
                self._stop.wait(1)
        self._consumer.close()

    def _turn(self) -> None:
        message = self._consumer.poll(0.5)
        if message is None:
            return
        failed = message.error()
        if failed is None:
            self._hear(message.value())
        elif is_refused(failed.code()):
            log.warning("orders cannot be read", extra={"reason": failed.str()})
            self._stop.wait(1)

    def _hear(self, message: bytes | None) -> None:
        before = self.command
        if self._ordered.hear(message) and self._told is not None:
            assert self.command is not None
            try:
                self._told(self.command)
            except Exception:
                # As if it had not come: control sees by the heartbeats that it is to send it again.
                self._ordered.command = before
                raise
