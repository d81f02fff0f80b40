"""A row in the control database for every run of a job.

    take the lock ──► row: running ──► figures and a heartbeat, every two seconds ──► done | failed

One run of a job a pipeline at a time: an advisory lock, held by the run's own connection, sees to
it. It goes when the process does, however it ends. A row that says `running` without a fresh
heartbeat is of a process that died; whoever takes the lock next writes that down.

A connection that is lost is made anew, and the lock taken again: the run goes on if its row is the
job's latest still, and is over if another has begun meanwhile.
"""

from __future__ import annotations

import os
import socket
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import psycopg
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import NullPool

from dovetail.certificates import told
from dovetail.errors import ConfigError, DovetailError, Unavailable
from dovetail.master.session import NETWORK
from dovetail.roles import SCHEMA, lacks
from dovetail.settings import parts_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime
    from types import TracebackType

BEAT_S = 2.0
STATES = ("running", "done", "failed", "lost")
"""Of which `lost` is one said to be running, by a process that died."""
SILENT = "30 seconds"
"""A run not heard of for so long is of a process that died."""
_KEEPALIVES = ("keepalives_idle", "keepalives_interval", "keepalives_count")

_METADATA = sa.MetaData(schema=SCHEMA)
RUNS = sa.Table(
    "spark_runs",
    _METADATA,
    sa.Column("id", sa.BigInteger, sa.Identity(always=True), primary_key=True),
    sa.Column("pipeline", sa.Text, nullable=False),
    sa.Column("job", sa.Text, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("process", sa.Text, nullable=False),
    sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
    sa.Column("heard_at", sa.DateTime(timezone=True), nullable=False),
    sa.Column("ended_at", sa.DateTime(timezone=True)),
    sa.Column("figures", JSONB, nullable=False),
    sa.Column("error", sa.Text),
    sa.Index("spark_runs_of_a_job", "pipeline", "job", "id"),
)

Figure = float | str


class AlreadyRunsError(DovetailError):
    """The job of this pipeline is run by somebody else."""


def control_engine(database_url: str, *, pooled: bool = False) -> sa.Engine:
    """The control database; every connection is closed after its use, and locks go with it.

    Pooled, for whoever asks often and takes no locks: connections stay open, and are tried first.
    """
    parts_of(database_url)
    try:
        url = sa.make_url(database_url).set(drivername="postgresql+psycopg")
    except (SQLAlchemyError, ValueError):
        raise ConfigError(
            "the database's URL is not written as one: write postgresql://user@host:5432/database"
        ) from None
    pool: dict[str, Any] = {"poolclass": NullPool}
    if pooled:
        pool = {"pool_size": 4, "max_overflow": 12, "pool_timeout": 10, "pool_pre_ping": True}
    engine = sa.create_engine(url, connect_args=dict(NETWORK), **pool)
    sa.event.listen(engine, "handle_error", _name_what_is_denied)
    return engine


def _name_what_is_denied(failed: sa.engine.ExceptionContext) -> None:
    error = failed.original_exception
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        user = failed.engine.url.username if failed.engine is not None else ""
        raise lacks(user or "", told(error), statement=failed.statement or "") from error


def create_tables(connection: sa.Connection, metadata: sa.MetaData) -> None:
    """Create the schema and what is missing in it; two that do so at once do not collide."""
    connection.execute(sa.text(f"SELECT pg_advisory_xact_lock(hashtextextended('{SCHEMA}', 0))"))
    ensure_schema(connection)
    metadata.create_all(connection)


def ensure_schema(connection: sa.Connection) -> None:
    """Create it where it is missing; even IF NOT EXISTS asks for a right that its owner lacks."""
    if connection.scalar(sa.select(sa.func.to_regnamespace(SCHEMA).is_(None))):
        connection.execute(sa.schema.CreateSchema(SCHEMA, if_not_exists=True))


class Run:
    """One run of a job, from `with` to its end; `figure` tells how far it is."""

    def __init__(self, engine: sa.Engine, pipeline: str, job: str) -> None:
        self.id = 0
        self.pipeline = pipeline
        self.job = job
        self.figures: dict[str, Figure] = {}
        self._engine = engine
        self._connection: sa.Connection | None = None
        self._guard = threading.Lock()
        """Of the connection: it is held for as long as the database takes to answer."""
        self._noting = threading.Lock()
        self._ended = threading.Event()
        self._beats = threading.Thread(target=self._beat, name="run", daemon=True)

    def figure(self, name: str, value: Figure) -> None:
        """Note a figure; it is in the database with the next heartbeat."""
        with self._noting:
            self.figures[name] = value

    def require(self) -> None:
        """Raise unless this is still the only run: to be asked before anything becomes visible."""
        with as_unavailable():
            self._write()

    def __enter__(self) -> Self:
        with as_unavailable():
            self._connection = self._engine.connect()
            try:
                self._begin(self._connection)
            except BaseException:
                self._connection.close()
                raise
        self._beats.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        _: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._beats.join()
        told = None if kind is None else str(error) or kind.__name__
        ending = (
            sa.update(RUNS)
            .where(RUNS.c.id == self.id)
            .values(
                state="done" if kind is None else "failed",
                heard_at=sa.func.now(),
                ended_at=sa.func.now(),
                figures=self.figures,
                error=told,
            )
        )
        if self._connection is not None:
            self._connection.close()
        try:
            with self._engine.begin() as connection:
                connection.execute(ending)
        except SQLAlchemyError as failure:
            if kind is None:
                raise Unavailable(
                    f"{self.job} is done, but its end could not be written: {_told(failure)}"
                ) from failure

    def _begin(self, connection: sa.Connection) -> None:
        create_tables(connection, _METADATA)
        connection.commit()
        if not _locked(connection, self._lock):
            raise self._already(connection)
        connection.execute(
            sa.update(RUNS)
            .where(self._mine, RUNS.c.state == "running")
            .values(
                state="failed",
                ended_at=RUNS.c.heard_at,
                error="the process ended without a word",
            )
        )
        row = {
            "pipeline": self.pipeline,
            "job": self.job,
            "state": "running",
            "process": f"{socket.gethostname()}:{os.getpid()}",
            "started_at": sa.func.now(),
            "heard_at": sa.func.now(),
            "figures": {},
        }
        self.id = connection.scalar(sa.insert(RUNS).values(row).returning(RUNS.c.id)) or 0
        connection.commit()

    @property
    def _mine(self) -> sa.ColumnElement[bool]:
        return (RUNS.c.pipeline == self.pipeline) & (RUNS.c.job == self.job)

    @property
    def _lock(self) -> str:
        return f"{SCHEMA}.spark_runs {self.pipeline} {self.job}"

    def _already(self, connection: sa.Connection) -> DovetailError:
        running = connection.execute(
            sa.select(RUNS.c.process, RUNS.c.started_at)
            .where(self._mine, RUNS.c.state == "running")
            .order_by(RUNS.c.id.desc())
        ).first()
        who = f"process {running.process} since {running.started_at:%F %T %Z}" if running else "one"
        return AlreadyRunsError(
            f"{self.job} of {self.pipeline} is being run by {who}: wait for its end, or stop it"
        )

    def _beat(self) -> None:
        while not self._ended.wait(BEAT_S):
            try:
                self._write()
            except AlreadyRunsError:
                return
            except (SQLAlchemyError, DovetailError):
                continue  # who asks by require() is told

    def _write(self) -> None:
        """Say on the connection that holds the lock that the run goes on."""
        with self._guard:
            if self._connection is not None:
                try:
                    self._say(self._connection)
                except SQLAlchemyError:
                    self._connection.close()
                    self._connection = None
            if self._connection is None:
                self._connection = self._again()

    def _say(self, connection: sa.Connection) -> None:
        with self._noting:
            figures = dict(self.figures)
        connection.execute(
            sa.update(RUNS)
            .where(RUNS.c.id == self.id)
            .values(heard_at=sa.func.now(), figures=figures)
        )
        connection.commit()

    def _again(self) -> sa.Connection:
        """Connect anew, and take the lock again, which was lost with the connection."""
        connection = self._engine.connect()
        try:
            self._take_again(connection)
            self._say(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _take_again(self, connection: sa.Connection) -> None:
        locked = _locked(connection, self._lock)
        latest = connection.scalar(sa.select(sa.func.max(RUNS.c.id)).where(self._mine))
        if latest != self.id:
            raise AlreadyRunsError(
                f"the control database was lost, and another run of {self.job} of "
                f"{self.pipeline} has begun meanwhile: this one is over"
            )
        if not locked:
            raise Unavailable(
                f"the control database was lost and has not noticed: the connection that is gone "
                f"still has the lock on {self.job} of {self.pipeline}, for half a minute at most"
            )


def _locked(connection: sa.Connection, lock: str) -> bool:
    """Take a lock, unless another has it; it goes with the connection."""
    # Nobody tells the database of a machine that is gone: it has to ask.
    asking = (sa.func.set_config(f"tcp_{name}", str(NETWORK[name]), False) for name in _KEEPALIVES)
    connection.execute(sa.select(*asking))
    key = sa.func.hashtextextended(lock, 0)
    return bool(connection.scalar(sa.select(sa.func.pg_try_advisory_lock(key))))


@dataclass(frozen=True, slots=True)
class RunRow:
    id: int
    job: str
    state: str
    """One of STATES."""
    process: str
    started_at: datetime
    ended_at: datetime | None
    seconds: float
    """How long it took, or takes by now."""
    figures: dict[str, Any]
    error: str | None


def last_runs(engine: sa.Engine, pipeline: str, most: int = 1) -> list[RunRow]:
    """The last runs of every job of a pipeline, the latest first; none if there never was one."""
    silent = (RUNS.c.state == "running") & (
        RUNS.c.heard_at < sa.func.now() - sa.text(f"interval '{SILENT}'")
    )
    until = sa.func.coalesce(RUNS.c.ended_at, RUNS.c.heard_at)
    place = sa.func.row_number().over(partition_by=RUNS.c.job, order_by=RUNS.c.id.desc())
    rows = sa.select(
        RUNS.c.id,
        RUNS.c.job,
        sa.case((silent, "lost"), else_=RUNS.c.state).label("state"),
        RUNS.c.process,
        RUNS.c.started_at,
        RUNS.c.ended_at,
        sa.cast(sa.extract("epoch", until - RUNS.c.started_at), sa.Float).label("seconds"),
        RUNS.c.figures,
        RUNS.c.error,
        place.label("place"),
    ).where(RUNS.c.pipeline == pipeline)
    numbered = rows.subquery()
    with as_unavailable(), engine.connect() as connection:
        if not sa.inspect(connection).has_table(RUNS.name, schema=SCHEMA):
            return []
        found = connection.execute(
            sa.select(numbered).where(numbered.c.place <= most).order_by(numbered.c.id.desc())
        )
        return [RunRow(*row[:-1]) for row in found]


@contextmanager
def as_unavailable() -> Iterator[None]:
    """Tell errors of the control database as what they are to the user."""
    try:
        yield
    except SQLAlchemyError as error:
        raise Unavailable(f"the control database cannot be used: {_told(error)}") from error


def _told(error: Exception) -> str:
    by_database = getattr(error, "orig", None) or error
    if isinstance(by_database, psycopg.Error):
        return told(by_database)
    return " ".join(str(by_database).split())
