"""Tells the services what to keep to: by `dovetail.control`, after it is written down.

A command says all that holds for a service, and the topic keeps the latest of each. What could not
be sent, or was lost with a topic, is sent again when a service is heard that does not know it.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException, Producer

from dovetail.contracts.control_pb2 import Command
from dovetail.errors import Unavailable
from dovetail.service.orders import key_of
from dovetail.stream.refusals import client_of
from dovetail.topology import CONTROL_TOPIC, LARGEST_MESSAGE_BYTES
from services.control.store.commands import DRAIN, PAUSE, RESUME, Commands, Order

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dovetail.settings import Settings
    from dovetail.topology import Topology
    from services.control.monitor import Member
    from services.control.store.commands import CommandRow
    from services.control.store.pipelines import Pipelines

log = logging.getLogger(__name__)

_ACTIONS = {
    PAUSE: Command.ACTION_PAUSE,
    RESUME: Command.ACTION_RESUME,
    DRAIN: Command.ACTION_DRAIN,
}
_WITHIN_S = 10.0
_THERE_S = 2.0
"""Who was heard of so lately is not about to run itself anew."""


class Commander:
    def __init__(
        self, settings: Settings, topology: Topology, commands: Commands, pipelines: Pipelines
    ) -> None:
        self._name = topology.pipeline.name
        self.services = topology.commanded
        self._commands = commands
        self._pipelines = pipelines
        self._producer = client_of(
            Producer,
            settings.client(
                {"acks": "all", "message.max.bytes": LARGEST_MESSAGE_BYTES, "log_level": 0}
            ),
        )

    def latest(self) -> dict[str, CommandRow]:
        return self._commands.latest(self._name)

    def actions(self) -> dict[str, str]:
        """What every service was told to do; whoever was told nothing goes on."""
        told = self.latest()
        return {name: told[name].action if name in told else RESUME for name in self.services}

    def revisions(self) -> dict[str, int]:
        """The revision that every service was told of; 0: none."""
        told = self.latest()
        return {name: told[name].revision if name in told else 0 for name in self.services}

    def order(self, by: str, orders: Mapping[str, Order]) -> dict[str, int]:
        """Tell these services; the numbers of the commands, by service."""
        rows = self._commands.add(self._name, by, orders)
        self._send(rows.values())
        return {service: row.number for service, row in rows.items()}

    def act(
        self,
        by: str,
        action: str,
        services: Iterable[str] | None = None,
        *,
        moved: bool = False,
    ) -> dict[str, int]:
        """Tell them to do something else, by the revision that they were told of.

        `moved`: who was to read on from elsewhere does so, and is not told of it again. A broker
        that has lost its data would not know that it was done.
        """
        told, revision = self.latest(), self._revision()
        read_from: dict[str, int] | None = {} if moved else None
        return self.order(
            by,
            {
                name: Order(action, told[name].revision if name in told else revision, read_from)
                for name in services or self.services
            },
        )

    def begin(self, by: str) -> None:
        """Say what holds, once more: the revision that is in force, and what was ordered before."""
        told, revision = self.latest(), self._revision()
        news = {
            name: Order(told[name].action if name in told else RESUME, revision)
            for name in self.services
            if name not in told or told[name].revision != revision
        }
        self._send(row for name, row in told.items() if name in self.services and name not in news)
        if news:
            self.order(by, news)

    def repair(self, members: Iterable[Member]) -> None:
        """Send again what a service that is there does not know."""
        told = self.latest()
        now = time.monotonic()
        behind = {
            member.beat.service
            for member in members
            if member.beat.service in told
            and member.beat.command < told[member.beat.service].number
            and now - member.heard < _THERE_S
        }
        if behind:
            log.info("commands sent again", extra={"services": sorted(behind)})
            self._send(told[service] for service in behind)

    def _revision(self) -> int:
        current = self._pipelines.current(self._name)
        return current.revision if current else 0

    def _send(self, rows: Iterable[CommandRow]) -> None:
        digest = self._pipelines.file_digest(self._name) or b""
        failures: list[str] = []
        for row in rows:
            try:
                self._producer.produce(
                    CONTROL_TOPIC,
                    self._message(row, digest).SerializeToString(),
                    key=key_of(self._name, row.service),
                    partition=0,
                    on_delivery=lambda error, _: failures.append(str(error)) if error else None,
                )
            except (BufferError, KafkaException) as error:
                failures.append(str(error))
        if self._producer.flush(_WITHIN_S) or failures:
            why = failures[0] if failures else f"no answer within {_WITHIN_S:.0f} s"
            raise Unavailable(
                f"the services cannot be told: {why}; they are as soon as the broker is there"
            )

    def _message(self, row: CommandRow, digest: bytes) -> Command:
        found = self._pipelines.revision(self._name, row.revision)
        return Command(
            id=str(row.number),
            pipeline=self._name,
            service=row.service,
            action=_ACTIONS[row.action],
            issued_at_ms=time.time_ns() // 1_000_000,
            number=row.number,
            revision=row.revision if found else 0,
            document=found.document if found else "",
            file_digest=digest,
            read_from={int(number): at for number, at in (row.read_from or {}).items()},
            read_from_number=row.read_from_number,
        )
