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
from dovetail.verify.formats import text_reader
from dovetail.verify.join import key_fields

if TYPE_CHECKING:
    from collections.abc import Callable

    from dovetail.pipeline.spec import Pipeline

JoinKey = tuple[int | str | None, ...]

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
        self._text_of = text_reader(pipeline.source)
        self._event = _Object()
        for path, field in pipeline.source.fields.items():
            self._event.add(_names(path), _Leaf(_FITS[field.type], field.optional))
        self._key = [_names(path) for path in key_fields(pipeline)]
        # A composite key's parts are joined by U+001F, and PostgreSQL's text has no U+0000.
        forbidden = "\0" if len(pipeline.key) == 1 else "\0\x1f"
        for path in pipeline.key:
            self._event.leaf(_names(path)).forbidden = forbidden
        self._decoder = json.JSONDecoder(
            object_pairs_hook=_Members,
            parse_constant=_refuse,
            parse_float=_Fractional,
            parse_int=_whole,
        )

    def text_of(self, value: bytes | None) -> bytes | None:
        """Return an event's JSON text; None says that it is no event of its format."""
        return None if value is None else self._text_of(value)

    def key_of(self, value: bytes | None) -> JoinKey | None:
        """Return what a good event's JSON text is joined by; None says that the event is bad.

        A further table's key may have no value: None, or a text that PostgreSQL cannot hold.
        """
        if value is None or len(value) > self._most_bytes:
            return None
        try:
            event = self._decoder.decode(value.decode())
            # UTF-8 has no lone surrogate: where nothing is escaped as \u…, there is none.
            whole = b"\\u" not in value or _is_unicode(event)
            good = whole and event is not None and self._event.fits(event)
        except (ValueError, RecursionError):
            # Nor can an event be good that nests too deep for Python: no field's type takes it.
            return None
        return tuple(_last(event, names) for names in self._key) if good else None


def _names(path: str) -> list[str]:
    """Take a path apart at its single dots; a doubled one is a dot of a name."""
    return [name.replace("..", ".") for name in re.findall(r"(?:\.\.|[^.])+", path)]


def _last(members: _Members, names: list[str]) -> int | str | None:
    """Follow the names; of those that occur twice, the last one counts."""
    value: Any = members
    for name in names:
        value = None if value is None else dict(value).get(name)
    found: int | str | None = value
    return None if isinstance(found, str) and "\0" in found else found


class _Leaf:
    """A field."""

    def __init__(self, has_type: Callable[[object], bool], optional: bool) -> None:
        self._has_type = has_type
        self.optional = optional
        self.forbidden = ""

    def fits(self, value: object) -> bool:
        if value is None:
            return self.optional
        if isinstance(value, str) and any(letter in value for letter in self.forbidden):
            return False
        return self._has_type(value)


class _Object:
    """The event, or an object in it: every occurrence has to have all that is needed."""

    def __init__(self) -> None:
        self._members: dict[str, _Leaf | _Object] = {}

    def add(self, names: list[str], leaf: _Leaf) -> None:
        if len(names) == 1:
            self._members[names[0]] = leaf
            return
        inner = self._members.setdefault(names[0], _Object())
        assert isinstance(inner, _Object)
        inner.add(names[1:], leaf)

    def leaf(self, names: list[str]) -> _Leaf:
        found = self._members[names[0]]
        return found.leaf(names[1:]) if isinstance(found, _Object) else found

    @property
    def optional(self) -> bool:
        return all(member.optional for member in self._members.values())

    def fits(self, value: object) -> bool:
        if value is None:
            return self.optional
        if not isinstance(value, _Members):
            return False
        # Of a name that occurs twice, every occurrence has to fit.
        there = {name for name, _ in value}
        return all(
            name in self._members and self._members[name].fits(inner) for name, inner in value
        ) and all(member.optional or name in there for name, member in self._members.items())


class _Members(list[tuple[str, Any]]):
    """An object's members in their order, repeated names included."""


class _Fractional(str):
    """A number with a fraction or an exponent, as it was written."""

    __slots__ = ()


class _Long(str):
    """A whole number beyond any float's range, and maybe beyond what Python reads."""

    __slots__ = ()


def _whole(digits: str) -> int | _Long:
    return int(digits) if len(digits) < 400 else _Long(digits)


def _is_unicode(value: object) -> bool:
    """Tell whether no text in a value has a lone surrogate."""
    if isinstance(value, list | tuple):
        return all(map(_is_unicode, value))
    return not isinstance(value, str) or _LONE_SURROGATE.search(value) is None


def _is_json(value: object) -> bool:
    return _depth(value) <= 64


def _depth(value: object) -> int:
    if isinstance(value, _Members):
        return 1 + max((_depth(inner) for _, inner in value), default=0)
    return 1 + max(map(_depth, value), default=0) if isinstance(value, list) else 0


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _is_int(value: object) -> bool:
    return type(value) is int and -(2**63) <= value < 2**63


def _is_number(value: object) -> bool:
    if type(value) is int:
        return math.isfinite(float(str(value)))
    return type(value) is _Fractional and math.isfinite(float(value))


def _is_text(value: object) -> bool:
    return type(value) is str


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
    FieldType.JSON: _is_json,
}
