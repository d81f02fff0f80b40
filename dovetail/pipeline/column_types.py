"""Which columns of PostgreSQL can be joined by, and which can be put into the output."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.pipeline.shape import FieldType

if TYPE_CHECKING:
    from dovetail.pipeline.relation import Column

INTS = frozenset({"int2", "int4", "int8"})
TEXTS = frozenset({"text", "varchar"})
OUTPUT = (
    INTS
    | TEXTS
    | {
        "float4",
        "float8",
        "numeric",
        "bool",
        "date",
        "timestamp",
        "timestamptz",
        "uuid",
    }
)


def why_not_key(column: Column, field: str, of: FieldType) -> str | None:
    """Return why events cannot be joined by this column, and the cure; None if they can."""
    if of is FieldType.INT and column.type in INTS:
        return None
    if of is FieldType.TEXT and column.type in TEXTS:
        return None if column.deterministic else _folding_collation(column)
    if column.type in INTS | TEXTS:
        fitting = FieldType.INT if column.type in INTS else FieldType.TEXT
        return (
            f"column '{column.name}' is {column.written}, but the event's {field} is {of};"
            f" write {field}: {fitting} in source.fields, or {_cast(column, of)}"
        )
    reason = _REASONS.get(column.type, "events cannot be joined by that type")
    return f"key column '{column.name}' is {column.written}: {reason}; {_cast(column, of)}"


_REASONS = {
    "bpchar": "it pads with blanks and compares without them",
    "numeric": "1 and 1.00 are equal there but two keys in events",
    "uuid": "one value can be written in several ways",
    "citext": "it ignores case, so that one row has many keys",
}


def _folding_collation(column: Column) -> str:
    return (
        f"key column '{column.name}' has a nondeterministic collation, under which different texts"
        f' are equal; join a view with {_quoted(column.name)} COLLATE "C" instead, over an index'
        " with that collation"
    )


def _cast(column: Column, of: FieldType) -> str:
    name = _quoted(column.name)
    to = "bigint" if of is FieldType.INT else "text"
    cast = {"bpchar": f"rtrim({name})", "citext": f"lower({name}::text)"}.get(
        column.type, f"{name}::{to}"
    )
    if column.type == "bpchar" and of is FieldType.INT:
        cast = f"rtrim({name})::{to}"
    return f"join a view with {cast} AS {name}, over an index on that expression"


def why_not_output(column: Column) -> str | None:
    """Return why this column cannot be put into the output, and the cure; None if it can."""
    if column.type in OUTPUT:
        return None
    name = _quoted(column.name)
    cure = {
        "bytea": f"encode({name}, 'base64') AS {name}",
        "bpchar": f"rtrim({name}) AS {name}",
    }.get(column.type, f"{name}::text AS {name}")
    return (
        f"column '{column.name}' is {column.written}, which the output cannot hold;"
        f" leave it out, or join a view with {cure}"
    )


def _quoted(name: str) -> str:
    plain = name.isidentifier() and name.isascii() and name == name.lower()
    return name if plain else '"' + name.replace('"', '""') + '"'
