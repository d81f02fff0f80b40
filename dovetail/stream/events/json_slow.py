"""The slow path: one event in plain Python, for what the kernel leaves undecided.

It reads whatever the kernel reads and gives the same answer, so that it is also the kernel's
oracle. The grammar stands in regular expressions, and a match that stops early stops at the
offending byte. Nesting is followed with a list, not by recursion: its depth is bounded by the
event's size alone.
"""

from __future__ import annotations

import json
import math
import re
from datetime import date
from typing import TYPE_CHECKING, NamedTuple

from dovetail.join.keys import SEPARATOR
from dovetail.stream.events.paths import split
from dovetail.stream.events.reasons import Reason
from dovetail.stream.events.schema import MOST_NESTING, NO_TIME, FieldType, Need

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dovetail.stream.events.schema import EventSchema, Node

_SPACE = re.compile(rb"[ \t\n\r]*+")
_NUMBER = re.compile(rb"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?")
_SCALAR = re.compile(rb"true|false|null|" + _NUMBER.pattern)
# No group is possessive: before Python 3.11.5 such a match may end within a turn that has failed.
_STRING_BUT_ITS_END = re.compile(
    rb"""
    "(?: [\x20\x21\x23-\x5b\x5d-\x7f]++                               # plain ASCII
      |  \\["\\/bfnrt]
      |  \\u(?![dD][89a-fA-F])[0-9a-fA-F]{4}
      |  \\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}   # a surrogate pair
      |  [\xc2-\xdf][\x80-\xbf]                                       # UTF-8, no surrogates
      |  \xe0[\xa0-\xbf][\x80-\xbf]
      |  [\xe1-\xec\xee\xef][\x80-\xbf]{2}
      |  \xed[\x80-\x9f][\x80-\xbf]
      |  \xf0[\x90-\xbf][\x80-\xbf]{2}
      |  [\xf1-\xf3][\x80-\xbf]{3}
      |  \xf4[\x80-\x8f][\x80-\xbf]{2}
    )*
    """,
    re.VERBOSE,
)
# The usual member in one match, for speed alone: what it does not match is read step by step.
_PLAIN_STRING = rb'"[\x20\x21\x23-\x5b\x5d-\x7f]*+"'
_PLAIN_MEMBER = re.compile(
    rb"(%b)%b:%b(%b|%b)%b"
    % (
        *(_PLAIN_STRING, _SPACE.pattern, _SPACE.pattern),
        *(_PLAIN_STRING, _SCALAR.pattern, _SPACE.pattern),
    )
)
_ANY_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*"', re.DOTALL)
_BRACKETS = re.compile(rb"[\[\]{}]")
_INT = re.compile(rb"-?[0-9]{1,19}")
_DECIMAL = re.compile(r"-?[0-9]+(\.[0-9]+)?")
_DATE = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})")
_TIMESTAMP = re.compile(
    r"(.{10})[Tt ]([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]+)?"
    r"([Zz]|[+-]([01][0-9]|2[0-3])(:?[0-5][0-9])?)?",
    re.DOTALL,
)


_EPOCH = date(1970, 1, 1).toordinal()


class Verdict(NamedTuple):
    """What became of one event; offsets count from its first byte."""

    reason: Reason
    field: int
    """The offending node's place in the schema; -1 for none."""
    offset: int
    """Where the offence is; -1 for nowhere."""
    start: int
    end: int
    key: int | bytes
    """The int key, or the canonical bytes of any other; 0 if the event is bad."""
    time: int = NO_TIME
    """The event's time in ms since 1970."""


class _Member(NamedTuple):
    name: str
    name_at: int
    value_at: int
    value: bytes
    """As it stands in the event."""


class _BrokenError(Exception):
    """The event is no JSON from this offset on."""

    def __init__(self, offset: int) -> None:
        super().__init__(offset)
        self.offset = offset


def classify(event: bytes, schema: EventSchema) -> Verdict:
    if len(event) > schema.max_bytes:
        return _bad(event, Reason.OVERSIZED)
    start = _past_space(event, 0)
    if start == len(event):
        return _bad(event, Reason.EMPTY)
    try:
        members, end = _object(event, start)
    except _BrokenError as broken:
        return _bad(event, Reason.INVALID_JSON, offset=broken.offset)
    return _judge(event, start, end, members, schema)


def _bad(event: bytes, reason: Reason, field: int = -1, offset: int = -1) -> Verdict:
    return Verdict(reason, field, offset, 0, len(event), 0)


def _judge(
    event: bytes, start: int, end: int, members: list[_Member], schema: EventSchema
) -> Verdict:
    walk = _Walk(event, schema)
    verdict = walk.object(members, ())
    if verdict is not None:
        return verdict
    if walk.missing:
        rank = min(walk.missing)
        is_key = rank < len(schema.key)
        return _bad(event, Reason.MISSING_KEY if is_key else Reason.MISSING_FIELD, rank)
    key, time = _key(walk.values, schema), _time(walk.values, schema)
    return Verdict(Reason.GOOD, -1, -1, start, end, key, time)


class _Walk:
    """Goes through an event's members, those of its objects where the objects stand."""

    def __init__(self, event: bytes, schema: EventSchema) -> None:
        self._event = event
        self._schema = schema
        self.values: dict[int, bytes] = {}
        """By rank, the last one of each field."""
        self.missing: set[int] = set()
        """The ranks to report of what any occurrence of an object lacks."""

    def object(self, members: list[_Member], path: tuple[str, ...]) -> Verdict | None:
        """Give the verdict on the first member that is bad, if one is."""
        seen = set()
        for member in members:
            row = self._schema.rows.get((*path, member.name))
            if row is None:
                return _bad(self._event, Reason.UNKNOWN_FIELD, offset=member.name_at)
            seen.add(row)
            verdict = self._member(member, row)
            if verdict is not None:
                return verdict
        for row, node in enumerate(self._schema.nodes):
            if node.path[:-1] == path and node.need and row not in seen:
                self.missing.add(node.first)
        return None

    def _member(self, member: _Member, row: int) -> Verdict | None:
        node = self._schema.nodes[row]
        if node.field is None and member.value.startswith(b"{"):
            inner, _ = _members_within(self._event, member.value_at)
            return self.object(inner, node.path)
        reason = _offence(member, node, self._schema)
        if reason is not Reason.GOOD:
            return _bad(self._event, reason, row, member.value_at)
        self.values[row] = member.value
        return None


def _offence(member: _Member, node: Node, schema: EventSchema) -> Reason:
    if member.value == b"null":
        return (Reason.GOOD, Reason.NULL_FIELD, Reason.NULL_KEY)[node.need]
    if node.field is None or not _FITS[node.field.type](member.value):
        return Reason.WRONG_TYPE
    if node.need is Need.KEY and node.field.type is FieldType.TEXT:
        text = _decoded(member.value)
        if "\0" in text or (len(schema.key) > 1 and chr(SEPARATOR) in text):
            return Reason.INVALID_KEY
    return Reason.GOOD


def _key(values: dict[int, bytes], schema: EventSchema) -> int | bytes:
    if schema.int_key:
        return int(values[0])
    parts = (values[rank] for rank in range(len(schema.key)))
    texts = (_decoded(part) if part.startswith(b'"') else str(int(part)) for part in parts)
    return chr(SEPARATOR).join(texts).encode()


def _time(values: dict[int, bytes], schema: EventSchema) -> int:
    if schema.event_time is None:
        return NO_TIME
    value = values.get(schema.rows[split(schema.event_time)], b"null")
    return NO_TIME if value == b"null" else _milliseconds(_decoded(value))


# --- the grammar


def _past_space(event: bytes, at: int) -> int:
    return _SPACE.match(event, at).end()  # type: ignore[union-attr]  # it matches nothing, too


def _expect(event: bytes, at: int, byte: bytes) -> int:
    """Step over whitespace and this byte."""
    at = _past_space(event, at)
    if event[at : at + 1] != byte:
        raise _BrokenError(at)
    return at + 1


def _object(event: bytes, start: int) -> tuple[list[_Member], int]:
    """Read the event's members, and where its closing brace ends."""
    members, end = _members_within(event, start)
    rest = _past_space(event, end)
    if rest != len(event):
        raise _BrokenError(rest)
    return members, end


def _members_within(event: bytes, start: int) -> tuple[list[_Member], int]:
    """Read the members of the object that starts here, and where its closing brace ends."""
    at = _past_space(event, _expect(event, start, b"{"))
    if event[at : at + 1] == b"}":
        return [], at + 1
    found = list(_members(event, at))
    return [member for member, _ in found], found[-1][1] + 1


def _members(event: bytes, at: int) -> Iterator[tuple[_Member, int]]:
    """Give each member with the position of the comma or the closing brace behind it."""
    while True:
        member, past = _member(event, at)
        yield member, past
        if event[past : past + 1] == b"}":
            return
        at = _past_space(event, _expect(event, past, b","))


def _member(event: bytes, at: int) -> tuple[_Member, int]:
    plain = _PLAIN_MEMBER.match(event, at)
    if plain is not None:
        return _Member(plain[1][1:-1].decode(), at, plain.start(2), plain[2]), plain.end()
    name_end = _past_string(event, at)
    value_at = _past_space(event, _expect(event, name_end, b":"))
    value_end = _past_value(event, value_at)
    name, value = _decoded(event[at:name_end]), event[value_at:value_end]
    return _Member(name, at, value_at, value), _past_space(event, value_end)


def _past_string(event: bytes, at: int) -> int:
    body = _STRING_BUT_ITS_END.match(event, at)
    if body is None:
        raise _BrokenError(at)
    if event[body.end() : body.end() + 1] != b'"':
        raise _BrokenError(body.end())
    return body.end() + 1


def _past_scalar(event: bytes, at: int) -> int:
    if event[at : at + 1] == b'"':
        return _past_string(event, at)
    scalar = _SCALAR.match(event, at)
    if scalar is None:
        raise _BrokenError(at)
    return scalar.end()


def _past_value(event: bytes, at: int) -> int:
    closers: list[bytes] = []
    while True:
        # Step 1: a value is due; opening one that is not empty makes its first value due.
        closer = {b"{": b"}", b"[": b"]"}.get(event[at : at + 1])
        if closer is None:
            at = _past_scalar(event, at)
        else:
            at = _past_space(event, at + 1)
            if event[at : at + 1] != closer:
                closers.append(closer)
                at = _past_label(event, at, closer)
                continue
            at += 1
        # Step 2: a value is done; close what it was the last of.
        while closers:
            at = _past_space(event, at)
            if event[at : at + 1] != closers[-1]:
                break
            closers.pop()
            at += 1
        if not closers:
            return at
        # Step 3: a comma makes the next value due.
        at = _past_label(event, _past_space(event, _expect(event, at, b",")), closers[-1])


def _past_label(event: bytes, at: int, closer: bytes) -> int:
    """Step over the name and the colon that stand before a value in an object."""
    if closer == b"]":
        return at
    return _past_space(event, _expect(event, _past_string(event, at), b":"))


# --- the types, of values that are not null


def _decoded(string: bytes) -> str:
    text: str = json.loads(string) if b"\\" in string else string[1:-1].decode()
    return text


def _is_int(value: bytes) -> bool:
    return _INT.fullmatch(value) is not None and -(1 << 63) <= int(value) < 1 << 63


def _is_float(value: bytes) -> bool:
    return _NUMBER.fullmatch(value) is not None and math.isfinite(float(value))


def _is_text(value: bytes) -> bool:
    return value.startswith(b'"')


def _is_decimal(value: bytes) -> bool:
    if _is_text(value):
        return _DECIMAL.fullmatch(_decoded(value)) is not None
    return _is_float(value)


def _is_boolean(value: bytes) -> bool:
    return value in {b"true", b"false"}


def _is_day(text: str) -> bool:
    parts = _DATE.fullmatch(text)
    try:
        return parts is not None and bool(date(*map(int, parts.groups())))
    except ValueError:
        return False


def _is_date(value: bytes) -> bool:
    return _is_text(value) and _is_day(_decoded(value))


def _is_timestamp(value: bytes) -> bool:
    if not _is_text(value):
        return False
    parts = _TIMESTAMP.fullmatch(_decoded(value))
    return parts is not None and _is_day(parts[1])


def _milliseconds(timestamp: str) -> int:
    """Give its moment in whole ms since 1970; without an offset it is in UTC."""
    parts = _TIMESTAMP.fullmatch(timestamp)
    assert parts is not None
    fraction, zone = (parts[3] or ".")[1:4], parts[4] or "Z"
    minutes = (date.fromisoformat(parts[1]).toordinal() - _EPOCH) * 1440
    minutes += int(timestamp[11:13]) * 60 + int(timestamp[14:16])
    if zone not in "Zz":
        ahead = int(parts[5]) * 60 + int((parts[6] or "0").lstrip(":"))
        minutes -= ahead if zone[0] == "+" else -ahead
    return minutes * 60_000 + int(timestamp[17:19]) * 1000 + int(fraction.ljust(3, "0"))


def _is_json(value: bytes) -> bool:
    """Say whether a value, known to be well-formed, is nested no deeper than allowed."""
    depth = deepest = 0
    for bracket in _BRACKETS.findall(_ANY_STRING.sub(b"", value)):
        depth += 1 if bracket in b"[{" else -1
        deepest = max(deepest, depth)
    return deepest <= MOST_NESTING


_FITS: dict[FieldType, Callable[[bytes], bool]] = {
    FieldType.INT: _is_int,
    FieldType.FLOAT: _is_float,
    FieldType.DECIMAL: _is_decimal,
    FieldType.TEXT: _is_text,
    FieldType.BOOLEAN: _is_boolean,
    FieldType.DATE: _is_date,
    FieldType.TIMESTAMP: _is_timestamp,
    FieldType.JSON: _is_json,
}
