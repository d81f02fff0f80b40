"""The steps by which the control database came to be as it is.

Each is applied once, in its order and in a transaction of its own, under a lock: two controls may
start at once. A step that was released is never changed; a change is another step.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import sqlalchemy as sa

from dovetail.errors import ConfigError
from dovetail.roles import SCHEMA
from services.spark.runs import as_unavailable, ensure_schema

if TYPE_CHECKING:
    from collections.abc import Sequence

log = logging.getLogger(__name__)

STEPS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "pipelines and their revisions",
        (
            """CREATE TABLE {s}.pipelines (
                name text PRIMARY KEY,
                revision int NOT NULL,
                file_digest bytea,
                created_at timestamptz NOT NULL DEFAULT now()
            )""",
            """CREATE TABLE {s}.revisions (
                pipeline text NOT NULL REFERENCES {s}.pipelines (name) ON DELETE CASCADE,
                revision int NOT NULL,
                document text NOT NULL,
                parsed jsonb NOT NULL,
                changes jsonb NOT NULL,
                origin text NOT NULL,
                by text NOT NULL,
                why text NOT NULL,
                at timestamptz NOT NULL DEFAULT now(),
                PRIMARY KEY (pipeline, revision)
            )""",
        ),
    ),
    (
        "commands and jobs",
        (
            """CREATE TABLE {s}.commands (
                number bigint PRIMARY KEY,
                pipeline text NOT NULL,
                service text NOT NULL,
                action text NOT NULL,
                revision int NOT NULL,
                read_from jsonb,
                read_from_number bigint NOT NULL DEFAULT 0,
                by text NOT NULL,
                at timestamptz NOT NULL DEFAULT now()
            )""",
            "CREATE INDEX commands_of_a_service ON {s}.commands (pipeline, service, number)",
            """CREATE TABLE {s}.jobs (
                id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
                pipeline text NOT NULL,
                kind text NOT NULL,
                state text NOT NULL,
                by text NOT NULL,
                why text NOT NULL,
                started_at timestamptz NOT NULL DEFAULT now(),
                heard_at timestamptz NOT NULL DEFAULT now(),
                ended_at timestamptz,
                progress float8,
                text text NOT NULL DEFAULT '',
                result jsonb,
                error text,
                cancel boolean NOT NULL DEFAULT false
            )""",
            "CREATE INDEX jobs_that_run ON {s}.jobs (state) WHERE state = 'running'",
            # Whatever moves the whole pipeline does so alone.
            """CREATE UNIQUE INDEX jobs_one_at_a_time ON {s}.jobs (pipeline) WHERE state = 'running'
                AND kind IN ('settings', 'pause', 'resume', 'drain', 'start', 'restart')""",
        ),
    ),
    (
        "tokens and the log of changes",
        (
            """CREATE TABLE {s}.tokens (
                id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
                name text NOT NULL,
                role text NOT NULL,
                digest bytea NOT NULL UNIQUE,
                old_digest bytea,
                old_until timestamptz,
                created_at timestamptz NOT NULL DEFAULT now(),
                created_by text NOT NULL,
                expires_at timestamptz,
                last_used_at timestamptz,
                revoked_at timestamptz
            )""",
            "CREATE INDEX tokens_of_before ON {s}.tokens (old_digest)",
            """CREATE TABLE {s}.changes (
                id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
                at timestamptz NOT NULL DEFAULT now(),
                by text NOT NULL,
                role text NOT NULL,
                address text NOT NULL,
                action text NOT NULL,
                pipeline text,
                detail jsonb NOT NULL,
                why text NOT NULL
            )""",
        ),
    ),
    (
        "figures over time, and replays",
        (
            """CREATE TABLE {s}.history (
                pipeline text NOT NULL,
                bucket bigint NOT NULL,
                service text NOT NULL,
                node int NOT NULL,
                figures jsonb NOT NULL,
                PRIMARY KEY (pipeline, bucket, service, node)
            )""",
            """CREATE TABLE {s}.replays (
                pipeline text NOT NULL,
                origin text NOT NULL,
                time int NOT NULL,
                letters text NOT NULL,
                letter bigint NOT NULL,
                mark text NOT NULL,
                behind bigint NOT NULL,
                by text NOT NULL,
                at timestamptz NOT NULL DEFAULT now(),
                sent_to text,
                PRIMARY KEY (pipeline, origin, time)
            )""",
        ),
    ),
)


def migrate(engine: sa.Engine, steps: Sequence[tuple[str, tuple[str, ...]]] = STEPS) -> None:
    """Bring the control database up to date."""
    with as_unavailable():
        while _next(engine, steps):
            pass


def _next(engine: sa.Engine, steps: Sequence[tuple[str, tuple[str, ...]]]) -> bool:
    """Apply the first step that was not yet; False if there is none."""
    with engine.begin() as connection:
        lock = sa.func.hashtextextended(f"{SCHEMA} migrations", 0)
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(lock)))
        ensure_schema(connection)
        connection.execute(
            sa.text(
                f"CREATE TABLE IF NOT EXISTS {SCHEMA}.migrations"
                " (step int PRIMARY KEY, name text NOT NULL,"
                " at timestamptz NOT NULL DEFAULT now())"
            )
        )
        done: int = connection.scalar(sa.text(f"SELECT count(*) FROM {SCHEMA}.migrations")) or 0
        if done > len(steps):
            raise ConfigError(
                f"the control database is of a later release: it has {done} steps, and this one"
                f" knows {len(steps)}; run the later release"
            )
        if done == len(steps):
            return False
        name, statements = steps[done]
        for statement in statements:
            connection.execute(sa.text(statement.replace("{s}", SCHEMA)))
        connection.execute(
            sa.text(f"INSERT INTO {SCHEMA}.migrations (step, name) VALUES (:step, :name)"),
            {"step": done + 1, "name": name},
        )
    log.info("control database", extra={"step": done + 1, "what": name})
    return True
