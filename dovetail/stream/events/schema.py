"""What a pipeline's events look like."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING

from dovetail.errors import ConfigError
from dovetail.stream.events.paths import MOST_NAMES, join, split

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


MOST_NESTING = 64
"""Levels of brackets and braces in a value of type JSON; deeper is of the wrong type."""

NO_TIME = -(1 << 63)
"""In the place of an event time, of an event that has none."""


class FieldType(IntEnum):
    """What a field's value may be in JSON.

    INT        a number without fraction or exponent, within int64
    FLOAT      a number that a float64 holds without becoming infinite
    DECIMAL    such a number, or a string `-?digits[.digits]`
    TEXT       a string
    BOOLEAN    true or false
    DATE       a string `YYYY-MM-DD`, a day from the year 0001 on
    TIMESTAMP  a string: a DATE, then `T`, `t` or a space, `hh:mm:ss` (no leap second), then, if
               given, a fraction `.digits`, and then, if given, `Z`, `z`, `±hh`, `±hhmm` or `±hh:mm`
    JSON       any value but null: an object or an array is nested at most MOST_NESTING deep
    """

    INT = 0
    FLOAT = 1
    DECIMAL = 2
    TEXT = 3
    BOOLEAN = 4
    DATE = 5
    TIMESTAMP = 6
    JSON = 7

    @classmethod
    def named(cls, name: str) -> FieldType:
        try:
            return cls[name.upper()]
        except KeyError:
            known = ", ".join(str(kind) for kind in cls)
            raise ConfigError(f"no field type is called {name!r}: use one of {known}") from None

    def __str__(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Field:
    type: FieldType
    optional: bool = False
    """It may be missing or null."""


class Need(IntEnum):
    """Whether an event must have a field, or an object with such a field in it."""

    OPTIONAL = 0
    """It may be missing or null."""
    FIELD = 1
    KEY = 2


@dataclass(frozen=True, slots=True)
class Node:
    """A field, or an object with fields in it."""

    path: tuple[str, ...]
    field: Field | None
    """None for an object."""
    need: Need
    first: int
    """The rank to report where it is missing: a field's own, an object's first needed one."""

    def __str__(self) -> str:
        return join(self.path)


@dataclass(frozen=True, slots=True)
class EventSchema:
    """The fields that an event may have, and which of them make its join key.

    Fields are named by their paths. Every field that is not optional must be there, and no other
    field may be, in the event and in each of its objects alike.
    """

    fields: Mapping[str, Field]
    key: tuple[str, ...]
    max_bytes: int
    """The longest event accepted, surrounding whitespace included."""
    event_time: str | None = None
    """The timestamp that says when the event happened."""
    ranked: tuple[str, ...] = field(init=False)
    """The key's fields, then the others: the order in which missing ones are reported."""
    nodes: tuple[Node, ...] = field(init=False)
    """The fields by rank, then the objects around them."""
    rows: Mapping[tuple[str, ...], int] = field(init=False)
    """Where the node of a path stands among them."""

    def __post_init__(self) -> None:
        others = (name for name in self.fields if name not in self.key)
        object.__setattr__(self, "ranked", (*self.key, *others))
        if self.max_bytes < 2:
            raise ConfigError(f"max_bytes is {self.max_bytes}: an event has at least 2 bytes, {{}}")
        if not self.key:
            raise ConfigError("the event's key is empty: name at least one field")
        if len(set(self.key)) < len(self.key):
            raise ConfigError(f"the event's key {self.key} names a field twice")
        for name in self.fields:
            _check_path(name)
        for name in self.key:
            self._check_key(name)
        timed = self.fields.get(self.event_time or "")
        if self.event_time is not None and (timed is None or timed.type is not FieldType.TIMESTAMP):
            raise ConfigError(
                f"the event time {self.event_time!r} is not a field of type timestamp"
            )
        object.__setattr__(self, "nodes", tuple(self._nodes()))
        rows = {node.path: row for row, node in enumerate(self.nodes)}
        object.__setattr__(self, "rows", rows)

    def _check_key(self, name: str) -> None:
        found = self.fields.get(name)
        if found is None:
            raise ConfigError(f"key field {name!r} is not among the event's fields")
        if found.optional:
            raise ConfigError(f"key field {name!r} is optional: a join key must always be there")
        if found.type not in {FieldType.INT, FieldType.TEXT}:
            raise ConfigError(f"key field {name!r} is {found.type}: a join key is int or text")

    def _nodes(self) -> Iterator[Node]:
        objects: dict[tuple[str, ...], list[int]] = {}
        paths = [split(name) for name in self.ranked]
        for rank, path in enumerate(paths):
            for depth in range(1, len(path)):
                objects.setdefault(path[:depth], []).append(rank)
            yield Node(path, self.fields[self.ranked[rank]], self._need(rank), rank)
        for path, within in objects.items():
            if path in paths:
                raise ConfigError(f"{join(path)!r} is a field and has fields in it: name it once")
            needed = [rank for rank in within if self._need(rank)]
            need = max(self._need(rank) for rank in within)
            yield Node(path, None, need, min(needed, default=within[0]))

    def _need(self, rank: int) -> Need:
        if rank < len(self.key):
            return Need.KEY
        return Need.OPTIONAL if self.fields[self.ranked[rank]].optional else Need.FIELD

    @property
    def int_key(self) -> bool:
        """Whether the join key is one int, which is then its own canonical form."""
        return len(self.key) == 1 and self.fields[self.key[0]].type is FieldType.INT


def _check_path(path: str) -> None:
    names = split(path)
    if len(names) > MOST_NAMES:
        raise ConfigError(f"field {path!r} stands too deep: a path has at most {MOST_NAMES} names")
    for name in names:
        # A plain name stands in an event byte for byte, so that the kernel can compare bytes.
        if not name or not name.isprintable() or '"' in name or "\\" in name:
            raise ConfigError(f"rename field {path!r}: {name!r} is empty or needs escapes in JSON")
