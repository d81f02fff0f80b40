"""What each role may do in PostgreSQL, and no more, as one SQL script.

    dovetail_reader     SELECT on the master tables: DATABASE_URL of every service
    dovetail_control    owns the schema of the control service's tables: CONTROL_DATABASE_URL of
                        control, and of jobs on Spark, which write down their runs
    dovetail_gate       SELECT on the tokens, and when one was used last: CONTROL_DATABASE_URL of
                        the other services, which ask whether a token holds

The script can be run again at any time. Passwords are set apart from it. What the gate needs is
granted by control itself, once it has made the tables.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from dovetail.errors import NotAllowedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dovetail.pipeline.spec import Pipeline

READER, CONTROL, GATE = "dovetail_reader", "dovetail_control", "dovetail_gate"
ROLES = (READER, CONTROL, GATE)
SCHEMA = "dovetail"
TOKENS = "tokens"

_DENIED = re.compile(r"permission denied for (table|view|schema|sequence|relation|database) (\S+)")
VERBS = ("SELECT", "INSERT", "UPDATE", "DELETE")


def script(pipeline: Pipeline) -> str:
    """What an administrator of the database runs, once and after a change of the tables."""
    return "\n".join(_statements(pipeline)) + "\n"


def _statements(pipeline: Pipeline) -> Iterator[str]:
    for role in ROLES:
        yield (
            f"DO $$ BEGIN CREATE ROLE {role} LOGIN; "
            "EXCEPTION WHEN duplicate_object THEN NULL; END $$;"
        )
    yield f"CREATE SCHEMA IF NOT EXISTS {SCHEMA} AUTHORIZATION {CONTROL};"
    yield from _handed_over()
    yield f"REVOKE ALL ON SCHEMA {SCHEMA} FROM PUBLIC, {READER};"
    for number in range(1, pipeline.links + 1):
        schema, table = pipeline.link(number).master.relation
        if schema:
            yield f"GRANT USAGE ON SCHEMA {_quoted(schema)} TO {READER};"
        name = ".".join(_quoted(part) for part in (schema, table) if part)
        yield f"GRANT SELECT ON TABLE {name} TO {READER};"


def _handed_over() -> Iterator[str]:
    """Give control what another role made before there was one of its own: as in 0.2.0."""
    yield f"ALTER SCHEMA {SCHEMA} OWNER TO {CONTROL};"
    # A table's sequence follows its table, and has no owner of its own. A table of control's is not
    # touched, as that would wait for all who use it.
    yield (
        "DO $$ DECLARE made regclass; BEGIN FOR made IN SELECT oid FROM pg_class "
        f"WHERE relnamespace = '{SCHEMA}'::regnamespace AND relkind = 'r' "
        f"AND relowner <> '{CONTROL}'::regrole "
        f"LOOP EXECUTE format('ALTER TABLE %s OWNER TO {CONTROL}', made); END LOOP; END $$;"
    )


def gate_grants() -> tuple[str, ...]:
    """What control, who owns the tokens, lets the gate do."""
    return (
        f"GRANT USAGE ON SCHEMA {SCHEMA} TO {GATE}",
        f"GRANT SELECT, UPDATE (last_used_at) ON {SCHEMA}.{TOKENS} TO {GATE}",
    )


def lacks(user: str, told: str, needed: str = "", statement: str = "") -> NotAllowedError:
    """Say what PostgreSQL has denied, and the grant that is missing.

    `needed` is the grant where the caller knows it: `SELECT ON goods`. Else it is something of the
    control service's, for this statement.
    """
    found = _DENIED.search(told)
    if not needed and found:
        needed = _grant_for(found[1], found[2].rstrip(";,"), statement)
    return NotAllowedError(
        f"role {user} lacks a permission in PostgreSQL: {told}. Grant it with: GRANT {needed} TO "
        f"{_quoted(user)}. All that the services need is granted by what `dovetail permissions "
        "<pipeline's file> --sql` prints"
    )


def _grant_for(kind: str, name: str, statement: str) -> str:
    verb = statement.split(maxsplit=1)[0].upper() if statement.strip() else ""
    if kind == "schema":
        return f"{'CREATE' if verb == 'CREATE' else 'USAGE'} ON SCHEMA {name}"
    if kind == "database":
        return f"CREATE ON DATABASE {name}"
    if kind == "sequence":
        return f"USAGE ON SEQUENCE {SCHEMA}.{name}"
    return f"{verb if verb in VERBS else 'SELECT'} ON TABLE {SCHEMA}.{name}"


def _quoted(name: str) -> str:
    if re.fullmatch(r"[a-z_][a-z0-9_]*", name):
        return name
    doubled = name.replace('"', '""')
    return f'"{doubled}"'
