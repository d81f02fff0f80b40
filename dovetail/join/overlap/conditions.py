"""Range and inequality conditions: each says that two closed intervals of int64 share a point.

| condition (s of the event, r of the master row) | event's interval | row's interval      |
| ----------------------------------------------- | ---------------- | ------------------- |
| `less_than`              s <  r                 | [s, s]           | [-∞, r - 1]         |
| `at_most`                s <= r                 | [s, s]           | [-∞, r]             |
| `greater_than`           s >  r                 | [s, s]           | [r + 1, ∞]          |
| `at_least`               s >= r                 | [s, s]           | [r, ∞]              |
| `between`                s BETWEEN r1 AND r2    | [s, s]           | [r1, r2]            |
| `point_in_interval`      r1 <= s < r2 …         | [s, s]           | [r1, r2 - 1] …      |
| `interval_contains_point` s1 <= r < s2 …        | [s1, s2 - 1] …   | [r, r]              |
| `band`                   s - x <= r <= s + y    | [s - x, s + y]   | [r, r]              |
| `overlaps`               both have two ends     | [s1, s2] …       | [r1, r2] …          |

Infinity is the int64 extreme. An open end moves by one. An interval that ends before it begins
is empty and overlaps nothing: so does a NULL (`empty_where`).

Values that are not int64 are first mapped onto it, in their order: `ordered_floats`,
`ordered_timestamps`, `ordered_dates`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from dovetail.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from dovetail.join.columns import Flags, Ints

LEAST, MOST = -(1 << 63), (1 << 63) - 1
"""Minus and plus infinity."""
Ends = Literal["[]", "[)", "(]", "()"]
"""Which ends belong to an interval, as SQL writes its ranges: [ and ] do, ( and ) do not."""
Unit = Literal["s", "ms", "us", "ns"]


@dataclass(frozen=True, slots=True)
class Intervals:
    """Closed intervals: the i-th holds all from `lows[i]` to `highs[i]`; none if low > high."""

    lows: Ints
    highs: Ints

    def __len__(self) -> int:
        return len(self.lows)

    @property
    def nbytes(self) -> int:
        return self.lows.nbytes + self.highs.nbytes

    def slice(self, first: int, end: int) -> Intervals:
        return Intervals(self.lows[first:end], self.highs[first:end])

    def empty_where(self, nulls: Flags) -> Intervals:
        """Make those empty that come from a NULL: it compares with nothing."""
        return Intervals(np.where(nulls, MOST, self.lows), np.where(nulls, LEAST, self.highs))


def points(values: Ints) -> Intervals:
    return Intervals(values, values)


def intervals(lows: Ints, highs: Ints, ends: Ends = "[]") -> Intervals:
    """Intervals between two columns; `[)` is `low <= x AND x < high`."""
    # Beyond the last value there is none, so an open end that cannot move leaves nothing.
    nothing = np.zeros(len(lows), np.bool_)
    if ends[0] == "(":
        nothing |= lows == MOST
        lows = lows + np.int64(1)
    if ends[1] == ")":
        nothing |= highs == LEAST
        highs = highs - np.int64(1)
    made = Intervals(lows, highs)
    return made.empty_where(nothing) if nothing.any() else made


@dataclass(frozen=True, slots=True)
class Condition:
    """Makes the two sides' intervals out of the columns that the condition compares."""

    events: Callable[..., Intervals]
    rows: Callable[..., Intervals]


def less_than() -> Condition:
    return Condition(points, lambda values: intervals(_all(values, LEAST), values, "[)"))


def at_most() -> Condition:
    return Condition(points, lambda values: intervals(_all(values, LEAST), values))


def greater_than() -> Condition:
    return Condition(points, lambda values: intervals(values, _all(values, MOST), "(]"))


def at_least() -> Condition:
    return Condition(points, lambda values: intervals(values, _all(values, MOST)))


def between() -> Condition:
    """The event's value BETWEEN two of the row."""
    return point_in_interval("[]")


def point_in_interval(ends: Ends = "[)") -> Condition:
    """The event's value lies in the row's interval: the price that was valid at its time."""
    return Condition(points, lambda lows, highs: intervals(lows, highs, ends))


def interval_contains_point(ends: Ends = "[)") -> Condition:
    """The event's interval holds the row's value."""
    return Condition(lambda lows, highs: intervals(lows, highs, ends), points)


def band(before: int, after: int) -> Condition:
    """The row's value is at most so far before the event's, and so far after it.

    Of floats, widen the event's value before it is ordered and use `interval_contains_point`.
    """
    return Condition(lambda values: _around(values, before, after), points)


def overlaps(events: Ends = "[)", rows: Ends = "[)") -> Condition:
    """The event's interval and the row's share a point."""
    return Condition(
        lambda lows, highs: intervals(lows, highs, events),
        lambda lows, highs: intervals(lows, highs, rows),
    )


def _all(values: Ints, value: int) -> Ints:
    return np.full(len(values), value, np.int64)


def _around(values: Ints, before: int, after: int) -> Intervals:
    # An end that runs out of int64 is infinite, unless it is the one that all should be within.
    nothing = (values > MOST + min(before, 0)) | (values < LEAST - min(after, 0))
    return Intervals(_shift(values, -before), _shift(values, after)).empty_where(nothing)


def _shift(values: Ints, by: int) -> Ints:
    if by >= 0:
        return np.where(values > MOST - by, MOST, values + np.int64(by))
    return np.where(values < LEAST - by, LEAST, values + np.int64(by))


def ordered_floats(values: NDArray[np.float64]) -> Ints:
    """Map float64 onto int64 in PostgreSQL's order: -0 equals 0, NaN equals NaN and is largest."""
    # Adding 0 turns -0 into 0. Below it more bits mean a lower value, so they are turned over.
    same = np.where(np.isnan(values), np.nan, values + 0.0)
    bits = np.ascontiguousarray(same, np.float64).view(np.int64)
    return bits ^ ((bits >> 63) & MOST)


def ordered_timestamps(values: NDArray[Any], unit: Unit = "us") -> Ints:
    """Map datetime64 of any resolution onto int64, counted in `unit` from 1970 on.

    NaT has no place in the order: make its interval `empty_where(np.isnat(values))`.
    """
    target = values.astype(f"datetime64[{unit}]")
    exact = target.astype(values.dtype) == values
    if not (exact | np.isnat(values)).all():
        raise ConfigError(
            f"timestamps of {values.dtype} cannot be told apart in, or are out of reach of, the "
            f"unit {unit!r}: choose another one for both sides"
        )
    return target.view(np.int64)


def ordered_dates(values: NDArray[Any]) -> Ints:
    """Map datetime64[D] onto days since 1970; to compare with timestamps, order both as those."""
    if values.dtype != np.dtype("datetime64[D]"):
        raise ConfigError(f"{values.dtype} are no dates: use ordered_timestamps")
    return values.view(np.int64)
