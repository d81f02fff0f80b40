"""Compiles a message's descriptor into a program.

    { "name": <scalar, or its default> , "name": [ … ] , "name": { … } }

in the schema's order, under the names of the .proto file. As in Protobuf's own JSON, a field that
knows whether it is set (optional, message, member of a oneof) is left out where it is not, bytes
are Base64, an enum is its value's name, a Timestamp is text and a wrapper is what it wraps. Unlike
there, every other field is always written, and 64-bit integers are numbers.
"""

from __future__ import annotations

import base64
import json
import math
import struct
from typing import TYPE_CHECKING

from google.protobuf.descriptor import FieldDescriptor

from dovetail.errors import ConfigError
from dovetail.stream.events import rendering as rendered
from dovetail.stream.events.program import Writer
from dovetail.stream.events.protobuf import ops as layout
from dovetail.stream.events.protobuf.ops import Kind, Op

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, EnumDescriptor

    from dovetail.stream.events.program import Program

_MOST_DENSE = 256
_MOST_EXPANDED = 10_000
"""Fields of messages within messages that a rendering spells out."""

_KINDS = {
    FieldDescriptor.TYPE_INT64: Kind.INT64,
    FieldDescriptor.TYPE_INT32: Kind.INT32,
    FieldDescriptor.TYPE_UINT64: Kind.UINT64,
    FieldDescriptor.TYPE_UINT32: Kind.UINT32,
    FieldDescriptor.TYPE_SINT64: Kind.SINT64,
    FieldDescriptor.TYPE_SINT32: Kind.SINT32,
    FieldDescriptor.TYPE_BOOL: Kind.BOOL,
    FieldDescriptor.TYPE_ENUM: Kind.ENUM,
    FieldDescriptor.TYPE_STRING: Kind.STRING,
    FieldDescriptor.TYPE_BYTES: Kind.BYTES,
    FieldDescriptor.TYPE_DOUBLE: Kind.DOUBLE,
    FieldDescriptor.TYPE_FIXED64: Kind.FIXED64,
    FieldDescriptor.TYPE_SFIXED64: Kind.SFIXED64,
    FieldDescriptor.TYPE_FLOAT: Kind.FLOAT,
    FieldDescriptor.TYPE_FIXED32: Kind.FIXED32,
    FieldDescriptor.TYPE_SFIXED32: Kind.SFIXED32,
    FieldDescriptor.TYPE_MESSAGE: Kind.MESSAGE,
}
_TIMESTAMP = "google.protobuf.Timestamp"
_WRAPPERS = {
    f"google.protobuf.{kind}Value"
    for kind in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
}


def compile_protobuf(message: Descriptor) -> tuple[Program, int]:
    """Write a program for a message; gives the most fields that any message in it has, too."""
    compiler = _Compiler()
    return compiler.program(message), compiler.most_slots


class _Compiler:
    def __init__(self) -> None:
        self._into = Writer()
        self._places: dict[str, int] = {}
        """Of the messages compiled, by full name."""
        self._calls: list[tuple[int, Descriptor]] = []
        self.most_slots = 1

    def program(self, message: Descriptor) -> Program:
        self._message(message, Op.END)
        while self._calls:
            call, inner = self._calls.pop()
            if inner.full_name not in self._places:
                self._places[inner.full_name] = self._into.here
                self._message(inner, Op.RETURN)
            self._into.point(call, self._places[inner.full_name])
        return self._into.program()

    def _message(self, message: Descriptor, last: Op) -> None:
        into = self._into
        fields = list(message.fields)
        self.most_slots = max(self.most_slots, len(fields))
        if message.full_name == _TIMESTAMP:
            into.op(Op.SCAN, a=self._slots(fields))
            into.op(Op.MOMENT)
            into.op(last)
        elif message.full_name in _WRAPPERS or message.GetOptions().map_entry:
            into.op(Op.SCAN, a=self._slots(fields))
            if len(fields) == 2:
                into.op(Op.KEY, a=self._list(0, fields[0], always=True))
            self._bare(len(fields) - 1, fields[-1])
            into.op(last)
        else:
            into.op(Op.SCAN, "{", self._slots(fields))
            for slot, field in enumerate(fields):
                self._field(slot, field)
            into.op(Op.TEXT, "}")
            into.op(last)

    def _field(self, slot: int, field: FieldDescriptor) -> None:
        into, before = self._into, f'"{field.name}":'
        kind = _kind(field)
        where = self._list(slot, field)
        if field.is_repeated and kind is Kind.MESSAGE:
            is_map = _is_map(field)
            into.op(Op.LOOP, before + ("{" if is_map else "["), where)
            self._calls.append((into.op(Op.NEXT, a=where), _inner(field)))
            into.op(Op.TEXT, "}" if is_map else "]")
        elif field.is_repeated:
            into.op(Op.REPEATED, f"{before}[", where, kind.wire)
        elif kind is Kind.MESSAGE:
            self._calls.append((into.op(Op.MESSAGE, before, where), _inner(field)))
        else:
            into.op(Op.FIELD, before, where)

    def _bare(self, slot: int, field: FieldDescriptor) -> None:
        where = self._list(slot, field, always=True)
        if _kind(field) is Kind.MESSAGE:
            call = self._into.op(Op.BARE_MESSAGE, a=where)
            self._calls.append((call, _inner(field)))
        else:
            self._into.op(Op.BARE, a=where)

    def _slots(self, fields: list[FieldDescriptor]) -> int:
        """Write a message's list; gives where it starts."""
        oneofs: dict[str, int] = {}
        info: list[int] = []
        for field in fields:
            oneof = field.containing_oneof
            group = oneofs.setdefault(oneof.full_name, len(oneofs) + 1) if oneof else 0
            kind = _kind(field)
            packable = field.is_repeated and kind.wire != layout.BYTES
            info += [kind.wire, int(packable), group]
        numbers = {field.number: slot for slot, field in enumerate(fields)}
        dense = min(max(numbers, default=0) + 1, _MOST_DENSE)
        sparse = [(number, slot) for number, slot in numbers.items() if number >= dense]
        described = self._into.list(info)
        return self._into.list(
            [
                *(len(fields), dense, len(sparse), described),
                *(numbers.get(number, -1) for number in range(dense)),
                *(part for pair in sparse for part in pair),
            ]
        )

    def _list(self, slot: int, field: FieldDescriptor, *, always: bool = False) -> int:
        """Write a field's list; gives where it starts."""
        kind = _kind(field)
        symbols: list[int] = []
        if kind is Kind.ENUM:
            for value in _enum(field).values:
                symbols += [value.number, *self._into.text(f'"{value.name}"')]
        where = self._into.list(symbols)
        missing: tuple[int, int] = (0, -1)
        if always or not (field.has_presence or field.is_repeated):
            missing = self._into.text(_default(field))
        return self._into.list([slot, kind, field.number, *missing, where, len(symbols) // 3])


def _kind(field: FieldDescriptor) -> Kind:
    kind = _KINDS.get(field.type)
    if kind is None:
        raise ConfigError(f"{field.full_name} is a group, which is not supported")
    if kind is Kind.MESSAGE:
        name = _inner(field).full_name
        known = {_TIMESTAMP, *_WRAPPERS}
        if name.startswith("google.protobuf.") and name not in known:
            raise ConfigError(f"{field.full_name} is a {name}, which is not supported")
    return kind


def _inner(field: FieldDescriptor) -> Descriptor:
    assert field.message_type is not None
    return field.message_type


def _enum(field: FieldDescriptor) -> EnumDescriptor:
    assert field.enum_type is not None
    return field.enum_type


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def _default(field: FieldDescriptor) -> str:  # noqa: PLR0911 - one case a type
    """Write what a field has where it is not there; that of a map's key stands without quotes."""
    kind = _kind(field)
    if kind is Kind.MESSAGE:
        name = _inner(field).full_name
        if name == _TIMESTAMP:
            return '"1970-01-01T00:00:00Z"'
        if name in _WRAPPERS:
            return _default(_inner(field).fields[0])
        inner = _inner(field).fields
        members = ((part.name, _default_member(part)) for part in inner)
        return "{" + ",".join(f'"{name}":{text}' for name, text in members if text) + "}"
    value = field.default_value
    if kind is Kind.ENUM:
        names = {found.number: found.name for found in _enum(field).values}
        return f'"{names[value]}"'
    if isinstance(value, bytes):
        return f'"{base64.b64encode(value).decode()}"'
    if isinstance(value, float):
        return _float(value, single=kind is Kind.FLOAT)
    return json.dumps(value, ensure_ascii=False)


def _default_member(field: FieldDescriptor) -> str:
    if field.is_repeated:
        return "{}" if _is_map(field) else "[]"
    return "" if field.has_presence else _default(field)


def _float(value: float, *, single: bool) -> str:
    if not math.isfinite(value):
        return '"NaN"' if math.isnan(value) else '"Infinity"' if value > 0 else '"-Infinity"'
    if not single:
        return repr(value)
    digits = range(1, 10)
    packed = struct.pack("<f", value)
    return next(
        repr(float(f"{value:.{n}g}"))
        for n in digits
        if struct.pack("<f", float(f"{value:.{n}g}")) == packed
    )


def rendering(message: Descriptor) -> dict[str, rendered.Rendering]:
    """Say for each field of a message which types its JSON text can have."""
    return _Renderer().message(message, ())


class _Renderer:
    def __init__(self) -> None:
        self._fields = 0

    def message(
        self, message: Descriptor, around: tuple[str, ...]
    ) -> dict[str, rendered.Rendering]:
        self._fields += len(message.fields)
        if self._fields > _MOST_EXPANDED:
            raise ConfigError(f"'{message.full_name}' has too many messages within messages")
        within = (*around, message.full_name)
        return {field.name: self._of(field, within) for field in message.fields}

    def _of(self, field: FieldDescriptor, around: tuple[str, ...]) -> rendered.Rendering:
        kind = _kind(field)
        if field.is_repeated:
            return rendered.ANY
        if kind is not Kind.MESSAGE:
            return _RENDERED.get(kind, rendered.INT)
        inner = _inner(field)
        if inner.full_name == _TIMESTAMP:
            return rendered.TIMESTAMP
        if inner.full_name in _WRAPPERS:
            return self._of(inner.fields[0], around)
        return rendered.ANY if inner.full_name in around else self.message(inner, around)


_RENDERED = {
    Kind.BOOL: rendered.BOOLEAN,
    Kind.ENUM: rendered.BASE64,
    Kind.STRING: rendered.TEXT,
    Kind.BYTES: rendered.BASE64,
    Kind.DOUBLE: rendered.FLOAT,
    Kind.FLOAT: rendered.FLOAT,
}
