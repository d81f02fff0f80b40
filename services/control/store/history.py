"""Figures over time: a row for each process and for the totals each ten seconds, for a day."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import distinct_on, insert

from services.control.store.tables import HISTORY
from services.spark.runs import as_unavailable

if TYPE_CHECKING:
    from collections.abc import Iterable

EVERY_S = 10
KEPT_S = 24 * 3600
TOTALS = ""
"""The service's name in the rows of the pipeline's totals."""


class Figures(NamedTuple):
    service: str
    node: int
    figures: dict[str, float]


class Point(NamedTuple):
    bucket: int
    service: str
    node: int
    figures: dict[str, float]


class History:
    def __init__(self, engine: sa.Engine, pipeline: str) -> None:
        self._engine = engine
        self._pipeline = pipeline

    def add(self, rows: Iterable[Figures], now: float | None = None) -> None:
        """Keep these figures; another control may have been faster."""
        bucket = int(time.time() if now is None else now) // EVERY_S
        values: list[dict[str, Any]] = [
            {"pipeline": self._pipeline, "bucket": bucket, **row._asdict()} for row in rows
        ]
        if not values:
            return
        with as_unavailable(), self._engine.begin() as connection:
            connection.execute(insert(HISTORY).on_conflict_do_nothing(), values)

    def forget(self, now: float | None = None) -> None:
        before = (int(time.time() if now is None else now) - KEPT_S) // EVERY_S
        with as_unavailable(), self._engine.begin() as connection:
            connection.execute(
                sa.delete(HISTORY).where(
                    HISTORY.c.pipeline == self._pipeline, HISTORY.c.bucket < before
                )
            )

    def since(self, seconds: float, every: int, service: str | None = None) -> list[Point]:
        """The last row of each process in every so many buckets, the oldest first."""
        first = int(time.time() - seconds) // EVERY_S
        group = HISTORY.c.bucket.op("/")(every)
        wanted = (
            sa.select(HISTORY.c.bucket, HISTORY.c.service, HISTORY.c.node, HISTORY.c.figures)
            .ext(distinct_on(group, HISTORY.c.service, HISTORY.c.node))
            .where(HISTORY.c.pipeline == self._pipeline, HISTORY.c.bucket >= first)
            .order_by(group, HISTORY.c.service, HISTORY.c.node, HISTORY.c.bucket.desc())
        )
        if service is not None:
            wanted = wanted.where(HISTORY.c.service == service)
        with as_unavailable(), self._engine.connect() as connection:
            return [Point(*row) for row in connection.execute(wanted)]
