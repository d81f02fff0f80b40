"""What control may do in its schema, and what it lets the other services do there."""

from __future__ import annotations

import sqlalchemy as sa

from dovetail.roles import GATE, SCHEMA, VERBS, gate_grants, lacks
from services.spark.runs import as_unavailable

_CLOSED = sa.text(
    f"SELECT relname FROM pg_class WHERE relnamespace = to_regnamespace('{SCHEMA}') "
    "AND relkind = 'r' AND NOT (SELECT bool_and(has_table_privilege(pg_class.oid, verb)) "
    "FROM unnest(CAST(:verbs AS text[])) verb) ORDER BY relname LIMIT 1"
)


def require_tables(engine: sa.Engine) -> None:
    """Raise unless every table may be read and written: now, and not when one is first needed."""
    with as_unavailable(), engine.connect() as connection:
        table = connection.scalar(_CLOSED, {"verbs": list(VERBS)})
    if table is not None:
        denied = f"permission denied for table {table}"
        grant = f"{', '.join(VERBS)} ON TABLE {SCHEMA}.{table}"
        raise lacks(engine.url.username or "", denied, grant)


def let_gates_in(engine: sa.Engine) -> None:
    """Grant what roles.py says to the role of their own; nothing where no such role is."""
    with as_unavailable(), engine.begin() as connection:
        there = sa.text("SELECT 1 FROM pg_roles WHERE rolname = :name")
        if connection.scalar(there, {"name": GATE}):
            for statement in gate_grants():
                connection.execute(sa.text(statement))
