"""The tables that migrations.py has made, as SQLAlchemy writes queries over them."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB

from dovetail.roles import SCHEMA

_METADATA = sa.MetaData(schema=SCHEMA)


def _when(name: str) -> sa.Column[object]:
    return sa.Column(name, sa.DateTime(timezone=True))


def _texts(*names: str) -> list[sa.Column[str]]:
    return [sa.Column(name, sa.Text) for name in names]


PIPELINES = sa.Table(
    "pipelines",
    _METADATA,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("revision", sa.Integer),
    sa.Column("file_digest", sa.LargeBinary),
    _when("created_at"),
)
REVISIONS = sa.Table(
    "revisions",
    _METADATA,
    *_texts("pipeline", "document", "origin", "by", "why"),
    sa.Column("revision", sa.Integer),
    sa.Column("parsed", JSONB),
    sa.Column("changes", JSONB),
    _when("at"),
)
COMMANDS = sa.Table(
    "commands",
    _METADATA,
    sa.Column("number", sa.BigInteger, primary_key=True),
    *_texts("pipeline", "service", "action", "by"),
    sa.Column("revision", sa.Integer),
    sa.Column("read_from", JSONB),
    sa.Column("read_from_number", sa.BigInteger),
    _when("at"),
)
JOBS = sa.Table(
    "jobs",
    _METADATA,
    sa.Column("id", sa.BigInteger, sa.Identity(always=True), primary_key=True),
    *_texts("pipeline", "kind", "state", "by", "why", "text", "error"),
    _when("started_at"),
    _when("heard_at"),
    _when("ended_at"),
    sa.Column("progress", sa.Double),
    sa.Column("result", JSONB),
    sa.Column("cancel", sa.Boolean),
)
CHANGES = sa.Table(
    "changes",
    _METADATA,
    sa.Column("id", sa.BigInteger, sa.Identity(always=True), primary_key=True),
    _when("at"),
    *_texts("by", "role", "address", "action", "pipeline", "why"),
    sa.Column("detail", JSONB),
)
HISTORY = sa.Table(
    "history",
    _METADATA,
    *_texts("pipeline", "service"),
    sa.Column("bucket", sa.BigInteger),
    sa.Column("node", sa.Integer),
    sa.Column("figures", JSONB),
)
REPLAYS = sa.Table(
    "replays",
    _METADATA,
    *_texts("pipeline", "origin", "letters", "mark", "by", "sent_to"),
    sa.Column("time", sa.Integer),
    sa.Column("letter", sa.BigInteger),
    sa.Column("behind", sa.BigInteger),
    _when("at"),
)
