"""Columns of Arrow mapped onto int64 in their order, so that a range condition can compare them.

| columns of both sides     | become                                                   |
| ------------------------- | -------------------------------------------------------- |
| ints                      | themselves                                               |
| floats                    | PostgreSQL's order: NaN is the largest, and equals itself |
| decimals                  | ints of the finest scale among them                      |
| timestamps                | ticks of the finest unit among them                      |
| dates, times of day       | days, nanoseconds                                        |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dovetail.errors import ConfigError
from dovetail.join.overlap.conditions import ordered_floats

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dovetail.join.columns import Flags, Ints

_UNITS = ("s", "ms", "us", "ns")
_DIGITS = 38
"""Of a decimal of 128 bits."""


@dataclass(frozen=True, slots=True)
class Order:
    kind: pa.DataType
    """What every column is cast to before it is mapped."""

    def ints(self, name: str, column: pa.Array) -> tuple[Ints, Flags]:
        """The values of a column, and which of them are NULL."""
        nulls: Flags = np.array(column.is_null())
        try:
            values = self._mapped(column.cast(self.kind))
        except pa.ArrowInvalid as error:
            raise _too_large(name, str(error)) from error
        return np.where(nulls, 0, values), nulls

    def _mapped(self, column: pa.Array) -> Ints:
        if pa.types.is_floating(self.kind):
            return ordered_floats(np.array(column.fill_null(0.0), np.float64))
        if pa.types.is_decimal(self.kind):
            return _unscaled(column)
        if pa.types.is_date32(self.kind):
            column = column.cast(pa.int32())
        return np.array(column.cast(pa.int64()).fill_null(0), np.int64)


def order_of(fields: Sequence[pa.Field]) -> Order:
    """The order that all these columns have in common; ConfigError, with the cure, if none."""
    sorts = {_sort_of(field): field for field in fields}
    if len(sorts) > 1:
        one, other = list(sorts.values())[:2]
        raise ConfigError(
            f"column {one.name!r} is {one.type} and column {other.name!r} is {other.type}, which "
            f"are not compared with each other: cast one of them"
        )
    kinds = [field.type for field in fields]
    first = kinds[0]
    if pa.types.is_integer(first):
        return Order(pa.int64())
    if pa.types.is_floating(first):
        return Order(pa.float64())
    if pa.types.is_decimal(first):
        return Order(pa.decimal128(_DIGITS, max(kind.scale for kind in kinds)))
    if pa.types.is_timestamp(first):
        unit = max((kind.unit for kind in kinds), key=_UNITS.index)
        return Order(pa.timestamp(unit, None if first.tz is None else "UTC"))
    return Order(pa.date32() if pa.types.is_date(first) else pa.time64("ns"))


def _sort_of(field: pa.Field) -> str:
    kind = field.type
    if pa.types.is_timestamp(kind):
        return "time with a zone" if kind.tz else "time"
    sorts = {
        "int": pa.types.is_integer,
        "float": pa.types.is_floating,
        "decimal": pa.types.is_decimal,
        "date": pa.types.is_date,
        "time of day": pa.types.is_time,
    }
    for sort, is_one in sorts.items():
        if is_one(kind):
            return sort
    raise ConfigError(
        f"column {field.name!r} is {kind}, which a range condition cannot compare: cast it to a "
        f"number, a date or a time"
    )


def _unscaled(column: pa.Array) -> Ints:
    """A decimal's digits as ints; ArrowInvalid if one needs more than 64 bits."""
    filled = pc.fill_null(column, pa.scalar(0, column.type)) if column.null_count else column
    words = np.frombuffer(filled.buffers()[1], np.int64).reshape(-1, 2)
    words = words[filled.offset : filled.offset + len(filled)]
    lows = words[:, 0].copy()
    if (words[:, 1] != lows >> 63).any():
        raise pa.ArrowInvalid(f"a value has more digits than fit at a scale of {column.type.scale}")
    return lows


def _too_large(name: str, why: str) -> ConfigError:
    return ConfigError(
        f"column {name!r} has a value that cannot be compared in 64 bits ({why}): cast the columns "
        f"of the condition to one type"
    )
