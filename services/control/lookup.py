"""Where an event of a key would be answered, and from which rows."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql

from dovetail.errors import Unavailable
from dovetail.join.keys import SEPARATOR, slot_sql
from dovetail.master.table.json_rows import json_row
from dovetail.pipeline.spec import FieldType, KeyType
from services.problem import Blame, Kind, ProblemError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dovetail.pipeline.spec import Pipeline

_WITHIN_S = 10


@dataclass(frozen=True, slots=True)
class Found:
    slot: int
    row_count: int
    rows: list[dict[str, Any]]


def parts_of(pipeline: Pipeline, key: str) -> list[str]:
    """The parts of a key as it is written in the API; refused if it cannot be one."""
    parts = key.split("|", len(pipeline.key) - 1)
    if len(parts) != len(pipeline.key):
        raise _no_key(f"the key has {len(pipeline.key)} parts: set them off by |")
    for field, part in zip(pipeline.key, parts, strict=True):
        if pipeline.source.fields[field].type is FieldType.INT and not _is_int8(part):
            raise _no_key(f"{field} is an int, and {part[:50]!r} is none")
        if "\0" in part or chr(SEPARATOR) in part:
            raise _no_key(f"{field} has a character that no key may have")
    return parts


def look_up(pipeline: Pipeline, database_url: str, parts: Sequence[str], most: int) -> Found:
    """Ask PostgreSQL for the slot, by the hash that all agree on, and for the master rows."""
    int_key = pipeline.key_type is KeyType.INT
    name = parts[0] if len(parts) == 1 else chr(SEPARATOR).join(parts)
    slots = pipeline.slots
    slot = slot_sql("%s::text::int8", "int", slots) if int_key else slot_sql("%s", "text", slots)
    table = sql.Identifier(*filter(None, pipeline.master.relation))
    wanted = sql.SQL(" AND ").join(
        sql.SQL("r.{} = {}").format(sql.Identifier(column), _value(pipeline, field))
        for column, field in zip(pipeline.master.key, pipeline.key, strict=True)
    )
    columns = pipeline.master.columns if pipeline.join.takes_columns else {}
    row: sql.Composable = json_row(columns) if columns else sql.SQL("'{{}}'")
    try:
        with psycopg.connect(
            database_url, connect_timeout=_WITHIN_S, client_encoding="utf8"
        ) as connection:
            connection.execute(f"SET statement_timeout = '{_WITHIN_S}s'")
            number = connection.execute(sql.SQL("SELECT {}").format(sql.SQL(slot)), [name])
            found = number.fetchone()
            count = connection.execute(
                sql.SQL("SELECT count(*) FROM {} r WHERE {}").format(table, wanted), parts
            ).fetchone()
            rows = connection.execute(
                sql.SQL("SELECT {} FROM {} r WHERE {} LIMIT {}").format(row, table, wanted, most),
                parts,
            ).fetchall()
    except psycopg.Error as error:
        told = " ".join(str(error).split())
        raise Unavailable(f"{pipeline.master.table} cannot be read: {told}") from None
    assert found is not None
    assert count is not None
    return Found(found[0], count[0], [json.loads(one[0]) for one in rows])


def outcome(pipeline: Pipeline, rows: int) -> str:
    """What becomes of an event whose key has so many rows."""
    if not rows:
        told = {
            "inner": "none: it goes to the unmatched",
            "left": "one output, its columns null",
            "semi": "none: it goes to the unmatched",
            "anti": "one output, as it came",
        }
        return told[str(pipeline.join)]
    if pipeline.join.takes_columns:
        return f"{rows:,} outputs, each continued by a row" if rows > 1 else "one output"
    anti = str(pipeline.join) == "anti"
    return "none: it goes to the unmatched" if anti else "one output, as it came"


def _value(pipeline: Pipeline, field: str) -> sql.SQL:
    of_int = pipeline.source.fields[field].type is FieldType.INT
    return sql.SQL("%s::text::int8") if of_int else sql.SQL("%s::text")


def _is_int8(text: str) -> bool:
    digits = text.removeprefix("-")
    return (
        digits.isascii()
        and digits.isdecimal()
        and len(digits) <= 19
        and -(2**63) <= int(text) < 2**63
    )


def _no_key(text: str) -> ProblemError:
    return ProblemError(Kind.REQUEST_INVALID, text, blames=[Blame("query.key", text)])
