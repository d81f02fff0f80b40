"""Conditions beside equality, by the names of columns: for `join(…, condition=…)`.

    between("sold_at", "valid_from", "valid_to", ends="[)")   the price that was valid

The stream's columns come first. A NULL compares with nothing, as in SQL.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

from dovetail.errors import ConfigError
from dovetail.join.overlap import conditions
from dovetail.join.overlap.conditions import Ends

if TYPE_CHECKING:
    from dovetail.join.overlap.conditions import Condition as Intervals


@dataclass(frozen=True, slots=True)
class Condition:
    """Columns of the stream compared with columns of the relation."""

    stream: tuple[str, ...]
    relation: tuple[str, ...]
    intervals: Intervals
    """Makes both sides' intervals, which have to overlap, of the columns' values."""


def less_than(ours: str, theirs: str) -> Condition:
    """The stream's column < the relation's."""
    return Condition((ours,), (theirs,), conditions.less_than())


def at_most(ours: str, theirs: str) -> Condition:
    """The stream's column <= the relation's."""
    return Condition((ours,), (theirs,), conditions.at_most())


def greater_than(ours: str, theirs: str) -> Condition:
    """The stream's column > the relation's."""
    return Condition((ours,), (theirs,), conditions.greater_than())


def at_least(ours: str, theirs: str) -> Condition:
    """The stream's column >= the relation's."""
    return Condition((ours,), (theirs,), conditions.at_least())


def between(ours: str, low: str, high: str, *, ends: Ends = "[]") -> Condition:
    """The stream's column BETWEEN two of the relation's; `[)` leaves the upper end out."""
    made = conditions.point_in_interval(_known(ends))
    return Condition((ours,), (low, high), made)


def contains(low: str, high: str, theirs: str, *, ends: Ends = "[]") -> Condition:
    """The relation's column BETWEEN two of the stream's."""
    made = conditions.interval_contains_point(_known(ends))
    return Condition((low, high), (theirs,), made)


def overlaps(ours: tuple[str, str], theirs: tuple[str, str], *, ends: Ends = "[)") -> Condition:
    """The interval between two of the stream's columns and that of the relation's share a point."""
    made = conditions.overlaps(_known(ends), _known(ends))
    return Condition(_pair(ours), _pair(theirs), made)


def _known(ends: Ends) -> Ends:
    if ends not in get_args(Ends):
        raise ConfigError(f"there are no ends {ends!r}: choose one of {', '.join(get_args(Ends))}")
    return ends


def _pair(columns: tuple[str, str]) -> tuple[str, str]:
    if isinstance(columns, str) or len(columns) != 2:
        raise ConfigError(
            f"an interval lies between two columns, e.g. ('low', 'high'): {columns!r}"
        )
    return columns[0], columns[1]
