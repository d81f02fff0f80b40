"""Pipelines and their revisions: the document, what it says, who wrote it, when and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from services.control.store.tables import PIPELINES, REVISIONS
from services.spark.runs import as_unavailable

if TYPE_CHECKING:
    from datetime import datetime

FILE, API = "file", "api"


@dataclass(frozen=True, slots=True)
class RevisionRow:
    pipeline: str
    revision: int
    document: str
    parsed: dict[str, Any]
    changes: list[str]
    origin: str
    by: str
    why: str
    at: datetime


@dataclass(frozen=True, slots=True)
class NewRevision:
    document: str
    parsed: dict[str, Any]
    changes: list[str]
    origin: str
    by: str
    why: str


_COLUMNS = [REVISIONS.c[name] for name in RevisionRow.__dataclass_fields__]
_CURRENT = (
    sa.select(*_COLUMNS)
    .join(
        PIPELINES,
        (PIPELINES.c.name == REVISIONS.c.pipeline) & (PIPELINES.c.revision == REVISIONS.c.revision),
    )
    .order_by(REVISIONS.c.pipeline)
)


class Pipelines:
    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine

    def all(self) -> list[RevisionRow]:
        """Every pipeline's revision that is in force."""
        with as_unavailable(), self._engine.connect() as connection:
            return [RevisionRow(*row) for row in connection.execute(_CURRENT)]

    def current(self, name: str) -> RevisionRow | None:
        wanted = _CURRENT.where(REVISIONS.c.pipeline == name)
        with as_unavailable(), self._engine.connect() as connection:
            row = connection.execute(wanted).first()
        return RevisionRow(*row) if row else None

    def file_digest(self, name: str) -> bytes | None:
        """Of the file that its last revision of a file was read from."""
        wanted = sa.select(PIPELINES.c.file_digest).where(PIPELINES.c.name == name)
        with as_unavailable(), self._engine.connect() as connection:
            found = connection.scalar(wanted)
        return None if found is None else bytes(found)

    def revisions(self, name: str, most: int) -> list[RevisionRow]:
        wanted = (
            sa.select(*_COLUMNS)
            .where(REVISIONS.c.pipeline == name)
            .order_by(REVISIONS.c.revision.desc())
            .limit(most)
        )
        with as_unavailable(), self._engine.connect() as connection:
            return [RevisionRow(*row) for row in connection.execute(wanted)]

    def revision(self, name: str, number: int) -> RevisionRow | None:
        wanted = sa.select(*_COLUMNS).where(
            REVISIONS.c.pipeline == name, REVISIONS.c.revision == number
        )
        with as_unavailable(), self._engine.connect() as connection:
            row = connection.execute(wanted).first()
        return RevisionRow(*row) if row else None

    def create(self, name: str, first: NewRevision, file_digest: bytes | None = None) -> bool:
        """Store a pipeline with its first revision; False if the name is taken."""
        made = insert(PIPELINES).values(name=name, revision=1, file_digest=file_digest)
        with as_unavailable(), self._engine.begin() as connection:
            added = made.on_conflict_do_nothing().returning(PIPELINES.c.name)
            if connection.execute(added).first() is None:
                return False
            _insert(connection, name, 1, first)
        return True

    def revise(
        self, name: str, after: int, new: NewRevision, file_digest: bytes | None = None
    ) -> int | None:
        """Put a revision in force after that one; its number, or None if another came first."""
        values: dict[str, Any] = {"revision": after + 1}
        if file_digest is not None:
            values["file_digest"] = file_digest
        changed = (
            sa.update(PIPELINES)
            .where(PIPELINES.c.name == name, PIPELINES.c.revision == after)
            .values(values)
        )
        with as_unavailable(), self._engine.begin() as connection:
            if not connection.execute(changed).rowcount:
                return None
            _insert(connection, name, after + 1, new)
        return after + 1

    def delete(self, name: str) -> bool:
        gone = sa.delete(PIPELINES).where(PIPELINES.c.name == name)
        with as_unavailable(), self._engine.begin() as connection:
            return bool(connection.execute(gone).rowcount)


def _insert(connection: sa.Connection, name: str, number: int, new: NewRevision) -> None:
    row = {field: getattr(new, field) for field in NewRevision.__dataclass_fields__}
    connection.execute(sa.insert(REVISIONS).values(pipeline=name, revision=number, **row))
