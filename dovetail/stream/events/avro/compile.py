"""Compiles a writer's schema, resolved against the reader's, into a program.

Follows "Schema Resolution" of the specification: fields are matched by name or by the reader's
aliases; one that only the writer has is skipped, one that only the reader has is written from its
default; int → long → float → double and string ↔ bytes are promoted; unions are resolved branch by
branch. A record's name counts only where it has to choose a branch.

    { "name": <op of its type> , "name": … }      the fields in the writer's order, then defaults

Each record is compiled once and called where it occurs, so that a program is no longer than its
schema, and a record may contain itself.
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

from dovetail.errors import ConfigError
from dovetail.stream.events import rendering as rendered
from dovetail.stream.events.avro.ops import IS_MAP, IS_SKIPPED, Op

if TYPE_CHECKING:
    from dovetail.stream.events.avro.schema import Field, Type
    from dovetail.stream.events.program import Writer

_PLAIN = {
    "null": Op.NULL,
    "boolean": Op.BOOLEAN,
    "int": Op.INT,
    "long": Op.LONG,
    "float": Op.FLOAT,
    "double": Op.DOUBLE,
    "bytes": Op.BYTES,
    "string": Op.STRING,
}
_PROMOTED = {
    ("int", "long"): Op.INT,
    ("int", "float"): Op.LONG_AS_FLOAT,
    ("int", "double"): Op.LONG_AS_DOUBLE,
    ("long", "float"): Op.LONG_AS_FLOAT,
    ("long", "double"): Op.LONG_AS_DOUBLE,
    ("float", "double"): Op.FLOAT_AS_DOUBLE,
    ("string", "bytes"): Op.BYTES,
    ("bytes", "string"): Op.STRING,
}
_A_SECOND = {"millis": 1_000, "micros": 1_000_000, "nanos": 1_000_000_000}
_MOST_EXPANDED = 10_000
"""Fields of records within records that a rendering spells out."""


def compile_avro(writer: Type, reader: Type, into: Writer) -> int:
    """Write a program for a writer's data as the reader wants them; gives its first op.

    A ConfigError says why the one cannot be read as the other.
    """
    compiler = _Compiler(into)
    start = into.op(Op.CALL)
    into.op(Op.END)
    into.aim(start, compiler.record(writer, reader))
    compiler.finish()
    return start


class _Compiler:
    def __init__(self, into: Writer) -> None:
        self._into = into
        self._places: dict[tuple[int, int], int] = {}
        """Of the records compiled, by the identities of writer and reader (0: it is skipped)."""
        self._calls: list[tuple[int, Type, Type | None]] = []
        """Records called whose place is not known yet."""

    def finish(self) -> None:
        """Compile what is called until nothing new is."""
        while self._calls:
            call, writer, reader = self._calls.pop()
            place = self._places.get(_pair(writer, reader))
            if place is None:
                place = self.record(writer, reader)
            self._into.aim(call, place)

    def record(self, writer: Type, reader: Type | None) -> int:
        into = self._into
        place = self._places[_pair(writer, reader)] = into.here
        if reader is None:
            for field in writer.fields:
                self._skip(field.type)
            into.op(Op.RETURN)
            return place
        wanted = _counterparts(writer, reader)
        before = "{"
        for field in writer.fields:
            target = wanted.get(field.name)
            if target is None:
                self._skip(field.type)
                continue
            before += f'"{target.name}":'
            try:
                self._value(field.type, target.type, before)
            except ConfigError as error:
                raise ConfigError(f"{reader.name}.{target.name}: {error}") from None
            before = ","
        added = [field for field in reader.fields if field not in wanted.values()]
        for field in added:
            before += f'"{field.name}":{_default(field, reader)}'
            into.op(Op.TEXT, before)
            before = ","
        into.op(Op.RETURN, "}" if before == "," else "{}")
        return place

    def _value(self, writer: Type, reader: Type, before: str = "") -> None:
        into = self._into
        if writer.kind == "union":
            self._union(writer, reader, before)
            return
        if reader.kind == "union":
            reader = _branch_for(writer, reader)
        if writer.kind != reader.kind:
            op = _PROMOTED.get((writer.kind, reader.kind))
            if op is None:
                raise ConfigError(f"{writer} cannot be read as {reader}")
            into.op(op, before)
        elif writer.kind == "record":
            self._calls.append((into.op(Op.CALL, before), writer, reader))
        elif writer.kind in ("array", "map"):
            self._loop(writer, reader, before)
        elif writer.kind == "enum":
            self._enum(writer, reader, before)
        elif writer.kind == "fixed" and writer.size != reader.size:
            raise ConfigError(f"{writer} has {writer.size} bytes, not {reader.size}")
        else:
            self._scalar(writer, reader, before)

    def _scalar(self, writer: Type, reader: Type, before: str) -> None:
        into, logical = self._into, reader.logical
        unit = _A_SECOND.get(logical.rpartition("-")[2], 0)
        if logical == "decimal":
            if writer.logical == "decimal" and writer.scale != reader.scale:
                raise ConfigError(f"a decimal of scale {writer.scale} is not one of {reader.scale}")
            into.op(Op.DECIMAL, before, reader.scale, writer.size if writer.kind == "fixed" else -1)
        elif logical == "date":
            into.op(Op.DATE, before)
        elif logical.startswith("time-"):
            into.op(Op.TIME, before, unit)
        elif logical:
            into.op(Op.TIMESTAMP, before, unit, not logical.startswith("local-"))
        elif writer.kind == "fixed":
            into.op(Op.FIXED, before, writer.size)
        else:
            into.op(_PLAIN[writer.kind], before)

    def _enum(self, writer: Type, reader: Type, before: str) -> None:
        places: list[int] = []
        for symbol in writer.symbols:
            known = symbol if symbol in reader.symbols else reader.symbol_default
            places += (-1, -1) if known is None else self._into.text(f'"{known}"')
        self._into.op(Op.ENUM, before, self._into.list(places), len(writer.symbols))

    def _union(self, writer: Type, reader: Type, before: str) -> None:
        into = self._into
        branches = into.list([0] * len(writer.branches))
        into.op(Op.UNION, before, branches, len(writer.branches))
        ends, errors = [], []
        for number, branch in enumerate(writer.branches):
            into.set(branches + number, into.here)
            try:
                self._value(branch, reader)
            except ConfigError as error:
                errors.append(error)
                into.op(Op.REFUSE)
            else:
                ends.append(into.op(Op.JUMP))
        if not ends:
            raise errors[0]
        for end in ends:
            into.aim(end, into.here)

    def _loop(self, writer: Type, reader: Type, before: str) -> None:
        into = self._into
        assert writer.items is not None
        assert reader.items is not None
        is_map = writer.kind == "map"
        into.op(Op.LOOP, before + ("{" if is_map else "["))
        head = into.op(Op.NEXT, b=IS_MAP if is_map else 0)
        self._value(writer.items, reader.items)
        into.op(Op.JUMP, a=head)
        into.aim(head, into.here)
        into.op(Op.TEXT, "}" if is_map else "]")

    def _skip(self, writer: Type) -> None:
        into = self._into
        if writer.kind == "record":
            self._calls.append((into.op(Op.CALL), writer, None))
        elif writer.kind in ("array", "map"):
            assert writer.items is not None
            into.op(Op.LOOP)
            head = into.op(Op.NEXT, b=IS_SKIPPED | (IS_MAP if writer.kind == "map" else 0))
            self._skip(writer.items)
            into.op(Op.JUMP, a=head)
            into.aim(head, into.here)
        elif writer.kind == "union":
            branches = into.list([0] * len(writer.branches))
            into.op(Op.UNION, "", branches, len(writer.branches))
            ends = []
            for number, branch in enumerate(writer.branches):
                into.set(branches + number, into.here)
                self._skip(branch)
                ends.append(into.op(Op.JUMP))
            for end in ends:
                into.aim(end, into.here)
        elif writer.kind in ("int", "long", "enum"):
            into.op(Op.SKIP_LONG)
        elif writer.kind in ("bytes", "string"):
            into.op(Op.SKIP_BYTES)
        else:
            sizes = {"null": 0, "boolean": 1, "float": 4, "double": 8}
            into.op(Op.SKIP_FIXED, a=sizes.get(writer.kind, writer.size))


def _pair(writer: Type, reader: Type | None) -> tuple[int, int]:
    return id(writer), 0 if reader is None else id(reader)


def _counterparts(writer: Type, reader: Type) -> dict[str, Field]:
    """Give for each of the writer's fields the reader's, if it has one."""
    theirs = {field.name for field in writer.fields}
    found: dict[str, Field] = {}
    for field in reader.fields:
        name = next((name for name in (field.name, *field.aliases) if name in theirs), None)
        if name is not None:
            found.setdefault(name, field)
    return found


def _branch_for(writer: Type, reader: Type) -> Type:
    """Choose the reader's branch: of the same name, of the same kind, or the first promotion."""
    same = [branch for branch in reader.branches if branch.kind == writer.kind]
    for branch in same:
        if _last(branch.name) == _last(writer.name):
            return branch
    if same:
        return same[0]
    for branch in reader.branches:
        if (writer.kind, branch.kind) in _PROMOTED:
            return branch
    raise ConfigError(f"{writer} is none of {reader}")


def _last(name: str) -> str:
    return name.rpartition(".")[2]


# --- defaults, which the schema gives as JSON


def _default(field: Field, record: Type) -> str:
    if not field.has_default:
        raise ConfigError(
            f"{record.name}.{field.name} is not in the writer's schema and has no default"
        )
    of = field.type.branches[0] if field.type.kind == "union" else field.type
    return _json(of, field.default, f"{record.name}.{field.name}")


def _json(of: Type, value: Any, where: str) -> str:
    """Write a default as the kernel would write the value."""
    if of.logical:
        raise ConfigError(f"{where}: a default for {of.logical} is not supported")
    if of.kind == "record":
        if not isinstance(value, dict):
            raise ConfigError(f"{where}: its default is no object")
        return _object(
            (part.name, _json(part.type, value[part.name], where))
            if part.name in value
            else (part.name, _default(part, of))
            for part in of.fields
        )
    if of.kind == "map" and isinstance(value, dict) and of.items:
        inner = of.items
        return _object((name, _json(inner, item, where)) for name, item in value.items())
    if of.kind == "array" and isinstance(value, list) and of.items:
        return "[" + ",".join(_json(of.items, item, where) for item in value) + "]"
    if of.kind == "union":
        return _json(of.branches[0], value, where)
    if of.kind in ("bytes", "fixed") and isinstance(value, str):
        # The specification writes bytes as the characters of the same numbers.
        return f'"{base64.b64encode(value.encode("latin-1")).decode()}"'
    if not _DEFAULTS.get(of.kind, lambda _: False)(value):
        raise ConfigError(f"{where}: its default {json.dumps(value)} is no {of}")
    return json.dumps(value, ensure_ascii=False)


_DEFAULTS = {
    "null": lambda value: value is None,
    "boolean": lambda value: type(value) is bool,
    "int": lambda value: type(value) is int and -(1 << 31) <= value < 1 << 31,
    "long": lambda value: type(value) is int and -(1 << 63) <= value < 1 << 63,
    "float": lambda value: type(value) in (int, float),
    "double": lambda value: type(value) in (int, float),
    "string": lambda value: type(value) is str,
    "enum": lambda value: type(value) is str,
}


def _object(members: Any) -> str:
    return "{" + ",".join(f"{json.dumps(name)}:{value}" for name, value in members) + "}"


# --- what the reader's schema makes of each field


def rendering(record: Type) -> dict[str, rendered.Rendering]:
    """Say for each field of a record which types its JSON text can have."""
    return _Renderer().record(record, ())


class _Renderer:
    def __init__(self) -> None:
        self._fields = 0

    def record(self, record: Type, around: tuple[Type, ...]) -> dict[str, rendered.Rendering]:
        self._fields += len(record.fields)
        if self._fields > _MOST_EXPANDED:
            raise ConfigError(f"'{record.name}' has too many records within records")
        return {field.name: self._of(field.type, (*around, record)) for field in record.fields}

    def _of(self, of: Type, around: tuple[Type, ...]) -> rendered.Rendering:
        if of.kind == "union":
            branches = [branch for branch in of.branches if branch.kind != "null"]
            return self._of(branches[0], around) if len(branches) == 1 else _several(branches)
        if of.kind == "record" and of not in around:
            return self.record(of, around)
        if of.logical:
            return _LOGICAL.get(of.logical, rendered.TIMESTAMP)
        return _RENDERED.get(of.kind, rendered.ANY)


def _several(branches: list[Type]) -> rendered.Types:
    """Of a union of several, any type that one of them can have."""
    types = rendered.ANY
    for branch in branches:
        types |= _LOGICAL.get(branch.logical, _RENDERED.get(branch.kind, rendered.ANY))
    return types


_RENDERED = {
    "boolean": rendered.BOOLEAN,
    "int": rendered.INT,
    "long": rendered.INT,
    "float": rendered.FLOAT,
    "double": rendered.FLOAT,
    "string": rendered.TEXT,
    "enum": rendered.BASE64,
    "bytes": rendered.BASE64,
    "fixed": rendered.BASE64,
}
_LOGICAL = {
    "decimal": rendered.DECIMAL,
    "date": rendered.DATE,
    "time-millis": rendered.BASE64,
    "time-micros": rendered.BASE64,
}
