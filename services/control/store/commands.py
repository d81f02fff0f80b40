"""What each service was told, and in which order; the topic has the latest of it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import distinct_on

from dovetail.roles import SCHEMA
from services.control.store.tables import COMMANDS
from services.spark.runs import as_unavailable

if TYPE_CHECKING:
    from collections.abc import Mapping

PAUSE, RESUME, DRAIN = "pause", "resume", "drain"


@dataclass(frozen=True, slots=True)
class CommandRow:
    service: str
    number: int
    action: str
    revision: int
    read_from: dict[str, int] | None
    read_from_number: int


@dataclass(frozen=True, slots=True)
class Order:
    """What a service is to be told."""

    action: str
    revision: int
    read_from: dict[str, int] | None = None
    """A new place to read on from; None: what was said of it before stays; empty: it is done."""


class Commands:
    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine

    def latest(self, pipeline: str) -> dict[str, CommandRow]:
        """What each service was told last."""
        with as_unavailable(), self._engine.connect() as connection:
            return _latest(connection, pipeline)

    def add(self, pipeline: str, by: str, orders: Mapping[str, Order]) -> dict[str, CommandRow]:
        """Number these orders, one for each service, and keep them.

        Numbers grow with the clock, so that they stay above those of a database that is no more.
        """
        with as_unavailable(), self._engine.begin() as connection:
            connection.execute(sa.text(f"LOCK TABLE {SCHEMA}.commands IN EXCLUSIVE MODE"))
            before = _latest(connection, pipeline)
            last = connection.scalar(sa.select(sa.func.max(COMMANDS.c.number))) or 0
            number = max(last + 1, time.time_ns() // 1_000_000)
            added = {}
            for service, order in orders.items():
                kept = before.get(service)
                read_from, at = (kept.read_from, kept.read_from_number) if kept else (None, 0)
                if order.read_from is not None:
                    read_from, at = order.read_from, number
                row = CommandRow(service, number, order.action, order.revision, read_from, at)
                values = {name: getattr(row, name) for name in CommandRow.__dataclass_fields__}
                connection.execute(sa.insert(COMMANDS).values(pipeline=pipeline, by=by, **values))
                added[service] = row
                number += 1
            # The numbers tell what was ordered when; of what was, only so much is kept.
            connection.execute(
                sa.delete(COMMANDS).where(
                    COMMANDS.c.pipeline == pipeline,
                    COMMANDS.c.at < sa.func.now() - sa.text("interval '30 days'"),
                    COMMANDS.c.number.not_in([row.number for row in before.values()]),
                )
            )
        return added


def _latest(connection: sa.Connection, pipeline: str) -> dict[str, CommandRow]:
    columns = [COMMANDS.c[name] for name in CommandRow.__dataclass_fields__]
    wanted = (
        sa.select(*columns)
        .ext(distinct_on(COMMANDS.c.service))
        .where(COMMANDS.c.pipeline == pipeline)
        .order_by(COMMANDS.c.service, COMMANDS.c.number.desc())
    )
    return {row.service: CommandRow(*row) for row in connection.execute(wanted)}
