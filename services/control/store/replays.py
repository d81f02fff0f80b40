"""Which letters went back to the source: a row for each origin and time that it did."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

import sqlalchemy as sa

from dovetail.roles import SCHEMA
from services.control.store.tables import REPLAYS
from services.spark.runs import as_unavailable

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime


@dataclass(frozen=True, slots=True)
class Claim:
    origin: str
    time: int
    mark: str
    behind: int
    """Where the source's partition ended before."""
    sent_to: str | None
    new: bool


@dataclass(frozen=True, slots=True)
class ReplayRow:
    at: datetime
    by: str
    to: str | None


class Replays:
    def __init__(self, engine: sa.Engine, pipeline: str) -> None:
        self._engine = engine
        self._pipeline = pipeline

    def claim(
        self, origin: str, letters: str, letter: int, behind: int, by: str, *, force: bool
    ) -> Claim:
        """Claim an origin for a replay; what is claimed already is given back as it is.

        With `force` one that was sent is claimed once more.
        """
        latest = (
            sa.select(REPLAYS.c.time, REPLAYS.c.mark, REPLAYS.c.behind, REPLAYS.c.sent_to)
            .where(REPLAYS.c.pipeline == self._pipeline, REPLAYS.c.origin == origin)
            .order_by(REPLAYS.c.time.desc())
            .limit(1)
        )
        with as_unavailable(), self._engine.begin() as connection:
            connection.execute(sa.text(f"LOCK TABLE {SCHEMA}.replays IN EXCLUSIVE MODE"))
            row = connection.execute(latest).first()
            if row is not None and not (force and row.sent_to is not None):
                return Claim(origin, row.time, row.mark, row.behind, row.sent_to, new=False)
            claim = Claim(
                origin, row.time + 1 if row else 1, uuid.uuid4().hex, behind, None, new=True
            )
            connection.execute(
                sa.insert(REPLAYS).values(
                    pipeline=self._pipeline,
                    origin=origin,
                    time=claim.time,
                    letters=letters,
                    letter=letter,
                    mark=claim.mark,
                    behind=behind,
                    by=by,
                )
            )
        return claim

    def sent(self, claim: Claim, to: str) -> None:
        with as_unavailable(), self._engine.begin() as connection:
            connection.execute(
                sa.update(REPLAYS)
                .where(
                    REPLAYS.c.pipeline == self._pipeline,
                    REPLAYS.c.origin == claim.origin,
                    REPLAYS.c.time == claim.time,
                )
                .values(sent_to=to)
            )

    def of(self, origins: Iterable[str]) -> dict[str, ReplayRow]:
        """The last replay of each of these, where there was one."""
        wanted = (
            sa.select(REPLAYS.c.origin, REPLAYS.c.at, REPLAYS.c.by, REPLAYS.c.sent_to)
            .where(REPLAYS.c.pipeline == self._pipeline, REPLAYS.c.origin.in_(list(origins)))
            .order_by(REPLAYS.c.time)
        )
        with as_unavailable(), self._engine.connect() as connection:
            return {row.origin: ReplayRow(*row[1:]) for row in connection.execute(wanted)}
