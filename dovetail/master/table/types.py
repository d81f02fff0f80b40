"""PostgreSQL's types as Arrow's, and how each is sent.

| PostgreSQL               | Arrow                        | sent as                          |
| ------------------------ | ---------------------------- | -------------------------------- |
| int2, int4, int8         | int16, int32, int64          | big-endian                       |
| float4, float8           | float32, float64             | big-endian                       |
| bool                     | bool                         | a byte                           |
| numeric(p, s), p ≤ 76    | decimal128 or decimal256     | digits to the base of 10,000     |
| numeric, uuid            | large_string                 | text: no Arrow type holds them all |
| text, varchar            | large_string                 | UTF-8                            |
| date                     | date32                       | days since 2000-01-01            |
| timestamp, timestamptz   | timestamp[us], of UTC for tz | microseconds since 2000-01-01    |
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dovetail.errors import ConfigError
from dovetail.pipeline.column_types import why_not_output

if TYPE_CHECKING:
    from dovetail.pipeline.relation import Column

TEXT, NUMBER, DATE, TIME, DECIMAL = range(5)
"""How a value is sent, for the kernel in records.py."""


@dataclass(frozen=True, slots=True)
class Sent:
    arrow: str
    """The type's name: what only sends it needs no Arrow."""
    code: int
    width: int = 0
    """Bytes of the value in Arrow; 0 if values differ in size."""
    scale: int = 0
    as_text: bool = False
    """Whether the database has to cast it first."""


_AS_TEXT = Sent("large_string", TEXT, as_text=True)
_TYPES = {
    "int2": Sent("int16", NUMBER, 2),
    "int4": Sent("int32", NUMBER, 4),
    "int8": Sent("int64", NUMBER, 8),
    "float4": Sent("float32", NUMBER, 4),
    "float8": Sent("float64", NUMBER, 8),
    "bool": Sent("bool", NUMBER, 1),
    "text": Sent("large_string", TEXT),
    "varchar": Sent("large_string", TEXT),
    "uuid": _AS_TEXT,
    "date": Sent("date32", DATE, 4),
    "timestamp": Sent("timestamp[us]", TIME, 8),
    "timestamptz": Sent("timestamp[us, UTC]", TIME, 8),
}
_PRECISION = re.compile(r"numeric\((\d+),(-?\d+)\)")


def sent(column: Column) -> Sent:
    """How a column's values are sent; ConfigError with the cure if the output cannot hold them."""
    if column.type == "numeric":
        return _decimal(column.written)
    if column.type not in _TYPES:
        raise ConfigError(why_not_output(column) or f"column {column.name!r} cannot be read")
    return _TYPES[column.type]


def _decimal(written: str) -> Sent:
    match = _PRECISION.fullmatch(written)
    if match is None:
        return _AS_TEXT
    precision, scale = int(match[1]), int(match[2])
    # Arrow has no negative scales, and no scale that is larger than the precision.
    precision, scale = max(precision - min(scale, 0), scale), max(scale, 0)
    if precision <= 38:
        return Sent(f"decimal128[{precision}, {scale}]", DECIMAL, 16, scale)
    if precision <= 76:
        return Sent(f"decimal256[{precision}, {scale}]", DECIMAL, 32, scale)
    return _AS_TEXT
