"""Who changed what: a row, and a line in the log, for every change and every refusal."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from services.control.store.tables import CHANGES
from services.spark.runs import as_unavailable

if TYPE_CHECKING:
    from datetime import datetime

    from services.access.roles import Who

log = logging.getLogger("dovetail.changes")


@dataclass(frozen=True, slots=True)
class ChangeRow:
    id: int
    at: datetime
    by: str
    role: str
    address: str
    action: str
    pipeline: str | None
    detail: dict[str, Any]
    why: str


class Changes:
    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine

    def note(
        self,
        who: Who,
        action: str,
        pipeline: str | None = None,
        *,
        why: str = "",
        **detail: Any,
    ) -> None:
        log.info(action, extra={"by": who.name, "role": who.role, "pipeline": pipeline, "why": why})
        row = {
            "by": who.name,
            "role": str(who.role),
            "address": who.address,
            "action": action,
            "pipeline": pipeline,
            "detail": detail,
            "why": why,
        }
        with as_unavailable(), self._engine.begin() as connection:
            connection.execute(sa.insert(CHANGES).values(row))

    def last(
        self,
        most: int,
        *,
        by: str | None = None,
        action: str | None = None,
        pipeline: str | None = None,
        since: datetime | None = None,
    ) -> list[ChangeRow]:
        wanted = sa.select(*(CHANGES.c[name] for name in ChangeRow.__dataclass_fields__)).order_by(
            CHANGES.c.id.desc()
        )
        for column, value in (("by", by), ("action", action), ("pipeline", pipeline)):
            if value is not None:
                wanted = wanted.where(CHANGES.c[column] == value)
        if since is not None:
            wanted = wanted.where(CHANGES.c.at >= since)
        with as_unavailable(), self._engine.connect() as connection:
            return [ChangeRow(*row) for row in connection.execute(wanted.limit(most))]
