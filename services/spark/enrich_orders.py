"""What control has ordered of `enrich`: to work or to rest, by which revision, from where on.

A command may come at any moment. It is taken up between two batches, by whoever runs the query.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from dovetail.contracts.control_pb2 import Command
from dovetail.service.orders import Orders
from dovetail.service.revision import Revision
from dovetail.stream.handler import Move
from dovetail.topology import ENRICH

if TYPE_CHECKING:
    from pathlib import Path

    from dovetail.pipeline.spec import Pipeline
    from dovetail.settings import Settings

_RESTS = (Command.ACTION_PAUSE, Command.ACTION_DRAIN)
"""Nothing is in flight between two batches: who pauses has drained."""


@dataclass(frozen=True, slots=True)
class Standing:
    """What holds by a command, or by the file alone."""

    revision: Revision
    number: int = 0
    """Of the command; 0 if there was none."""
    rests: bool = False
    move: Move | None = None

    def after(self, command: Command) -> Standing:
        move = Move(command.read_from_number, dict(command.read_from))
        return replace(
            self,
            revision=self.revision.after(command),
            number=command.number,
            rests=command.action in _RESTS,
            move=move if command.read_from else None,
        )

    def is_like(self, other: Standing) -> bool:
        """Whether both mean the same work: who does it need not begin anew."""
        mine = (self.revision.pipeline, self.rests, self.move)
        return mine == (other.revision.pipeline, other.rests, other.move)


class EnrichOrders:
    """Keeps what holds; `with` it, it is followed."""

    def __init__(self, settings: Settings, file: Path, pipeline: Pipeline) -> None:
        self._orders = Orders(settings, pipeline.name, ENRICH)
        self.standing = Standing(Revision.ordered(file, pipeline, None))
        command = self._orders.read()
        if command is not None:
            self._hear(command)

    def __enter__(self) -> Self:
        self._orders.follow(self._hear)
        return self

    def __exit__(self, *_: object) -> None:
        self._orders.stop()

    def _hear(self, command: Command) -> None:
        self.standing = self.standing.after(command)
