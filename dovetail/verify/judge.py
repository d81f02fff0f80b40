"""Is an event good, and what is its join key? The contract of events, spelled out once more.

It shares nothing with `dovetail.stream.events` but the contract, so that a defect there
cannot hide here.
"""

from __future__ import annotations

import json
import math
import re
from datetime import date
from typing import TYPE_CHECKING, Any

from dovetail.pipeline.spec import FieldType

if TYPE_CHECKING:
    from collections.abc import Callable

    from dovetail.pipeline.spec import Pipeline

JoinKey = tuple[int | str, ...]

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
"""JSON can escape one; Unicode's text cannot hold it."""
_DECIMAL = re.compile(r"-?[0-9]+(\.[0-9]+)?")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIME = re.compile(
    r"[Tt ]([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]+)?"
    r"([Zz]|[+-]([01][0-9]|2[0-3])(:?[0-5][0-9])?)?"
)


class Judge:
    """Judges the events of one pipeline."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._most_bytes = pipeline.source.max_event_bytes
        self._fields = {
            name: (_FITS[field.type], field.optional)
            for name, field in pipeline.source.fields.items()
        }
        self._required = {name for name, (_, optional) in self._fields.items() if not optional}
        self._key = pipeline.key
        # A composite key's parts are joined by U+001F, and PostgreSQL's text has no U+0000.
        self._forbidden = "\0" if len(pipeline.key) == 1 else "\0\x1f"
        self._decoder = json.JSONDecoder(
            object_pairs_hook=_Members,
            parse_constant=_refuse,
            parse_float=_Fractional,
        )

    def key_of(self, value: bytes | None) -> JoinKey | None:
        """Return a good event's join key; None says that the event is bad."""
        if value is None or len(value) > self._most_bytes:
            return None
        members = self._members(value)
        if members is None or not all(self._member_fits(*member) for member in members):
            return None
        # Of a name that occurs twice, every occurrence has to fit and the last one counts.
        event = dict(members)
        if not event.keys() >= self._required:
            return None
        return tuple(event[name] for name in self._key)

    def _members(self, value: bytes) -> _Members | None:
        try:
            found = self._decoder.decode(value.decode())
        except (ValueError, RecursionError):
            # Nor can an event be good that nests too deep or holds a number too long for
            # Python: no field's type takes either.
            return None
        return found if isinstance(found, _Members) else None

    def _member_fits(self, name: str, value: object) -> bool:
        if name not in self._fields:
            return False
        fits, optional = self._fields[name]
        if value is None:
            return optional
        return fits(value) and not (name in self._key and self._is_forbidden(value))

    def _is_forbidden(self, part: object) -> bool:
        return isinstance(part, str) and any(letter in part for letter in self._forbidden)


class _Members(list[tuple[str, Any]]):
    """An object's members in their order, repeated names included."""


class _Fractional(str):
    """A number with a fraction or an exponent, as it was written."""

    __slots__ = ()


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _is_int(value: object) -> bool:
    return type(value) is int and -(2**63) <= value < 2**63


def _is_number(value: object) -> bool:
    if type(value) is int:
        return math.isfinite(float(str(value)))
    return type(value) is _Fractional and math.isfinite(float(value))


def _is_text(value: object) -> bool:
    return type(value) is str and _LONE_SURROGATE.search(value) is None


def _is_decimal(value: object) -> bool:
    return _is_number(value) or (type(value) is str and _DECIMAL.fullmatch(value) is not None)


def _is_boolean(value: object) -> bool:
    return type(value) is bool


def _is_date(value: object) -> bool:
    if type(value) is not str or _DATE.fullmatch(value) is None:
        return False
    try:
        date.fromisoformat(value)
    except ValueError:
        return False
    return True


def _is_timestamp(value: object) -> bool:
    return type(value) is str and _is_date(value[:10]) and _TIME.fullmatch(value, 10) is not None


_FITS: dict[FieldType, Callable[[object], bool]] = {
    FieldType.INT: _is_int,
    FieldType.FLOAT: _is_number,
    FieldType.DECIMAL: _is_decimal,
    FieldType.TEXT: _is_text,
    FieldType.BOOLEAN: _is_boolean,
    FieldType.DATE: _is_date,
    FieldType.TIMESTAMP: _is_timestamp,
}
