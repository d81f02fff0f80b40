"""The plans in the control database: what each was made for and gives, and its keys with reasons.

All of a plan's keys are in its Parquet folder. Listed here, for the API, are as many of the chosen
ones as a person or a page can use, the most worthwhile first, and for each reason some of those
that were left out. The keys of the last plans are kept; what the earlier ones gave, for ever.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB

from dovetail.roles import SCHEMA
from services.spark.runs import as_unavailable, create_tables

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

LISTED_PLANS = 5
"""Plans whose keys are kept here."""

METADATA = sa.MetaData(schema=SCHEMA)
PLANS = sa.Table(
    "plans",
    METADATA,
    sa.Column("pipeline", sa.Text, primary_key=True),
    sa.Column("version", sa.BigInteger, primary_key=True),
    sa.Column("run", sa.BigInteger, nullable=False),
    sa.Column("made_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
    sa.Column("sent_at", sa.DateTime(timezone=True)),
    sa.Column("sent", sa.BigInteger),
    sa.Column("facts", JSONB, nullable=False),
)
PLAN_KEYS = sa.Table(
    "plan_keys",
    METADATA,
    sa.Column("pipeline", sa.Text, primary_key=True),
    sa.Column("version", sa.BigInteger, primary_key=True),
    sa.Column("key", sa.LargeBinary, primary_key=True),
    sa.Column("slot", sa.Integer, nullable=False),
    sa.Column("events", sa.Double, nullable=False),
    sa.Column("rows", sa.BigInteger, nullable=False),
    sa.Column("bytes", sa.BigInteger, nullable=False),
    sa.Column("worth", sa.Double, nullable=False),
    sa.Column("verdict", sa.Text, nullable=False),
    sa.Index("plan_keys_by_worth", "pipeline", "version", "verdict", sa.text("worth DESC")),
)


@dataclass(frozen=True, slots=True)
class PlanRow:
    version: int
    made_at: datetime
    sent_at: datetime | None
    sent: int | None
    """Keys that were sent to the caches: those that these did not have already."""
    facts: dict[str, Any]


@dataclass(frozen=True, slots=True)
class PlanKey:
    """One key's place in a plan."""

    key: bytes
    """An int in decimal, or the canonical bytes of any other."""
    slot: int
    events: float
    """n, expected over the plan's horizon."""
    rows: int
    """m"""
    bytes: int
    """Of a cache that its entry takes."""
    worth: float
    """Events that a byte saves."""
    verdict: str


class PlanTables:
    """The plans of one pipeline."""

    def __init__(self, engine: sa.Engine, pipeline: str) -> None:
        self._engine = engine
        self._pipeline = pipeline

    def create(self) -> None:
        with as_unavailable(), self._engine.begin() as connection:
            create_tables(connection, METADATA)

    def add(self, run: int, facts: dict[str, Any], keys: Iterable[PlanKey]) -> int:
        """Store a plan, whole or not at all; return its version."""
        with as_unavailable(), self._engine.begin() as connection:
            last = connection.scalar(sa.select(sa.func.max(PLANS.c.version)).where(self._own))
            version = (last or 0) + 1
            row = {"pipeline": self._pipeline, "version": version, "run": run, "facts": facts}
            connection.execute(sa.insert(PLANS).values(row))
            self._copy(connection, version, keys)
            connection.execute(
                sa.delete(PLAN_KEYS).where(
                    PLAN_KEYS.c.pipeline == self._pipeline,
                    PLAN_KEYS.c.version <= version - LISTED_PLANS,
                )
            )
        return version

    def note_sent(self, version: int, keys: int) -> None:
        with as_unavailable(), self._engine.begin() as connection:
            connection.execute(
                sa.update(PLANS)
                .where(self._own, PLANS.c.version == version)
                .values(sent_at=sa.func.now(), sent=keys)
            )

    def plans(self, most: int) -> list[PlanRow]:
        """The latest plans, the newest first."""
        return self._plans(sa.true(), most)

    def plan(self, version: int) -> PlanRow | None:
        found = self._plans(PLANS.c.version == version, 1)
        return found[0] if found else None

    def keys(self, version: int, verdict: str | None, most: int) -> list[PlanKey]:
        """Listed keys of a plan, the most worthwhile first."""
        wanted = sa.true() if verdict is None else PLAN_KEYS.c.verdict == verdict
        return self._keys(version, wanted, most)

    def key(self, version: int, key: bytes) -> PlanKey | None:
        found = self._keys(version, PLAN_KEYS.c.key == key, 1)
        return found[0] if found else None

    @property
    def _own(self) -> sa.ColumnElement[bool]:
        return PLANS.c.pipeline == self._pipeline

    def _copy(self, connection: sa.Connection, version: int, keys: Iterable[PlanKey]) -> None:
        names = ", ".join(f'"{column.name}"' for column in PLAN_KEYS.columns)
        driver: Any = connection.connection.driver_connection
        with (
            driver.cursor() as cursor,
            cursor.copy(f'COPY "{SCHEMA}".plan_keys ({names}) FROM STDIN') as copy,
        ):
            for key in keys:
                copy.write_row(
                    (
                        self._pipeline,
                        version,
                        key.key,
                        key.slot,
                        key.events,
                        key.rows,
                        key.bytes,
                        key.worth,
                        key.verdict,
                    )
                )

    def _plans(self, wanted: sa.ColumnElement[bool], most: int) -> list[PlanRow]:
        rows = (
            sa.select(
                PLANS.c.version, PLANS.c.made_at, PLANS.c.sent_at, PLANS.c.sent, PLANS.c.facts
            )
            .where(self._own, wanted)
            .order_by(PLANS.c.version.desc())
            .limit(most)
        )
        with as_unavailable(), self._engine.connect() as connection:
            if not sa.inspect(connection).has_table(PLANS.name, schema=SCHEMA):
                return []
            return [PlanRow(*row) for row in connection.execute(rows)]

    def _keys(self, version: int, wanted: sa.ColumnElement[bool], most: int) -> list[PlanKey]:
        columns = PLAN_KEYS.c
        rows = (
            sa.select(
                columns.key,
                columns.slot,
                columns.events,
                columns.rows,
                columns.bytes,
                columns.worth,
                columns.verdict,
            )
            .where(columns.pipeline == self._pipeline, columns.version == version, wanted)
            .order_by(columns.worth.desc(), columns.key)
            .limit(most)
        )
        with as_unavailable(), self._engine.connect() as connection:
            return [PlanKey(*row) for row in connection.execute(rows)]
