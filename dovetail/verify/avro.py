"""Avro events as JSON text, slowly and straight from the specification.

It works on the schema's own JSON, event by event, and shares nothing with
`dovetail.stream.events` but the contract (docs/pipeline.md), so that a defect there cannot hide.
"""

from __future__ import annotations

import base64
import json
import math
import struct
from datetime import date, datetime, timedelta
from typing import Any

import numpy as np

_MOST_DEPTH = 64
_UNITS = {"millis": 10**3, "micros": 10**6, "nanos": 10**9}
_PROMOTIONS = {
    "int": {"long", "float", "double"},
    "long": {"float", "double"},
    "float": {"double"},
    "string": {"bytes"},
    "bytes": {"string"},
}


class BadEventError(Exception):
    """The bytes are no event of the schema."""


def avro_text(event: bytes, writer: Any, reader: Any, most_items: int) -> str:
    """Write a datum of the writer's schema as JSON text, resolved to the reader's."""
    bytes_in = _Bytes(event, most_items)
    text = _Resolution(bytes_in, _named(writer, "", {}), _named(reader, "", {})).value(
        writer, reader
    )
    if bytes_in.at != len(event):
        raise BadEventError
    return text


def _named(schema: Any, namespace: str, found: dict[str, Any]) -> dict[str, Any]:
    """Collect the definitions of a schema under their full names and under their last ones."""
    if isinstance(schema, list):
        for branch in schema:
            _named(branch, namespace, found)
    elif isinstance(schema, dict):
        if schema.get("type") in ("record", "error", "enum", "fixed"):
            name = schema["name"]
            namespace = schema.get("namespace", namespace)
            full = name if "." in name or not namespace else f"{namespace}.{name}"
            namespace = full.rpartition(".")[0]
            found[full] = found[full.rpartition(".")[2]] = schema
        for part in schema.get("fields", ()):
            _named(part["type"], namespace, found)
        for inner in (schema.get("items"), schema.get("values"), schema.get("type")):
            if isinstance(inner, dict | list):
                _named(inner, namespace, found)
    return found


class _Bytes:
    def __init__(self, data: bytes, most_items: int) -> None:
        self.data, self.at, self.items = data, 0, most_items

    def take(self, size: int) -> bytes:
        if size < 0 or self.at + size > len(self.data):
            raise BadEventError
        self.at += size
        return self.data[self.at - size : self.at]

    def long(self) -> int:
        number = 0
        for nth in range(10):
            (byte,) = self.take(1)
            number |= (byte & 0x7F) << (7 * nth)
            if byte < 0x80:
                break
        else:
            raise BadEventError
        if number >= 1 << 64:
            raise BadEventError
        return (number >> 1) ^ -(number & 1)

    def text(self) -> str:
        try:
            return self.take(self.long()).decode()
        except UnicodeDecodeError:
            raise BadEventError from None

    def block(self) -> int:
        count = self.long()
        if count < 0:
            count = -count
            if self.long() < 0:
                raise BadEventError
        self.items -= count
        if self.items < 0:
            raise BadEventError
        return count


class _Resolution:
    """Reads what a writer wrote as a reader wants it; where the reader is None, nothing is kept."""

    def __init__(self, source: _Bytes, ours: dict[str, Any], theirs: dict[str, Any]) -> None:
        self._in, self._ours, self._theirs = source, ours, theirs
        self._depth = 0

    def value(self, writer: Any, reader: Any) -> str:
        writer, reader = _defined(writer, self._ours), _defined(reader, self._theirs)
        if isinstance(writer, list):
            index = self._in.long()
            if not 0 <= index < len(writer):
                raise BadEventError
            return self.value(writer[index], reader)
        if isinstance(reader, list):
            reader = self._branch(writer, reader)
        kind = _kind(writer)
        if reader is not None and _kind(reader) not in {kind, *_PROMOTIONS.get(kind, ())}:
            raise BadEventError
        if kind in ("record", "array", "map"):
            self._depth += 1
            if self._depth > _MOST_DEPTH + 1:
                raise BadEventError
            read = self._record if kind == "record" else self._loop
            text = read(writer, reader)
            self._depth -= 1
            return text
        if kind == "enum":
            return self._enum(writer, reader)
        return self._scalar(writer, kind, reader)

    def _branch(self, writer: Any, reader: list[Any]) -> Any:
        branches = [_defined(branch, self._theirs) for branch in reader]
        same = [branch for branch in branches if _kind(branch) == _kind(writer)]
        name = _last_name(writer)
        wider = [b for b in branches if _kind(b) in _PROMOTIONS.get(_kind(writer), ())]
        for branch in (*(b for b in same if _last_name(b) == name), *same, *wider):
            return branch
        raise BadEventError

    def _record(self, writer: Any, reader: Any) -> str:
        wanted = {} if reader is None else {part["name"]: part for part in reader["fields"]}
        theirs = {part["name"] for part in writer["fields"]}
        for part in list(wanted.values()):
            old = [name for name in part.get("aliases", ()) if name in theirs]
            if part["name"] not in theirs and old:
                wanted[old[0]] = part
        members = []
        for part in writer["fields"]:
            target = wanted.get(part["name"])
            text = self.value(part["type"], None if target is None else target["type"])
            if target is not None:
                members.append((target["name"], text))
        written = {name for name, _ in members}
        for name, part in wanted.items():
            if name == part["name"] and name not in written:
                members.append((name, _default(part, self._theirs)))
        return "{" + ",".join(f'"{name}":{text}' for name, text in members) + "}"

    def _loop(self, writer: Any, reader: Any) -> str:
        is_map = _kind(writer) == "map"
        items = "values" if is_map else "items"
        made = []
        while count := self._in.block():
            for _ in range(count):
                label = f"{_quoted(self._in.text())}:" if is_map and reader is not None else ""
                if is_map and reader is None:
                    self._in.take(self._in.long())
                inner = self.value(writer[items], None if reader is None else reader[items])
                made.append(label + inner)
        inside = ",".join(made)
        return f"{{{inside}}}" if is_map else f"[{inside}]"

    def _enum(self, writer: Any, reader: Any) -> str:
        index = self._in.long()
        if reader is None:
            return ""
        if not 0 <= index < len(writer["symbols"]):
            raise BadEventError
        symbol = writer["symbols"][index]
        known = symbol if symbol in reader["symbols"] else reader.get("default")
        if known is None:
            raise BadEventError
        return f'"{known}"'

    def _scalar(self, writer: Any, kind: str, reader: Any) -> str:  # noqa: PLR0911 - one case a type
        if reader is None:
            self._skip(writer, kind)
            return ""
        wanted = _kind(reader)
        logical = reader.get("logicalType", "") if isinstance(reader, dict) else ""
        if kind == wanted and (text := self._logical(logical, kind, reader)) is not None:
            return text
        if kind == "null":
            return "null"
        if kind == "boolean":
            (byte,) = self._in.take(1)
            if byte > 1:
                raise BadEventError
            return "true" if byte else "false"
        if kind in ("int", "long"):
            number = self._in.long()
            if kind == "int" and wanted in ("int", "long") and not -(2**31) <= number < 2**31:
                raise BadEventError
            return str(number) if wanted in ("int", "long") else _float(number, wanted)
        if kind in ("float", "double"):
            size, form = (4, "<f") if kind == "float" else (8, "<d")
            return _float(struct.unpack(form, self._in.take(size))[0], wanted)
        if wanted == "string":
            return _quoted(self._in.text())
        raw = self._in.take(writer["size"] if kind == "fixed" else self._in.long())
        return f'"{base64.b64encode(raw).decode()}"'

    def _logical(self, logical: str, kind: str, reader: Any) -> str | None:
        """Write a value of a logical type; None if it is none that counts for its kind."""
        if logical == "decimal" and kind in ("bytes", "fixed"):
            raw = self._in.take(reader["size"] if kind == "fixed" else self._in.long())
            return _decimal(int.from_bytes(raw, "big", signed=True), reader.get("scale", 0))
        if logical == "date" and kind == "int":
            return f'"{_day(self._in.long())}"'
        unit = _UNITS.get(logical.rpartition("-")[2], 0)
        if logical in ("time-millis", "time-micros") and kind == _TIME_KINDS[logical]:
            number = self._in.long()
            if not 0 <= number < 86_400 * unit:
                raise BadEventError
            return f'"{_moment(number, unit)[11:]}"'
        if logical.removeprefix("local-").startswith("timestamp-") and unit and kind == "long":
            zone = "" if logical.startswith("local-") else "Z"
            return f'"{_moment(self._in.long(), unit)}{zone}"'
        return None

    def _skip(self, writer: Any, kind: str) -> None:
        if kind in ("int", "long"):
            self._in.long()
        elif kind in ("bytes", "string"):
            self._in.take(self._in.long())
        else:
            sizes = {"null": 0, "boolean": 1, "float": 4, "double": 8}
            self._in.take(sizes[kind] if kind in sizes else writer["size"])


_TIME_KINDS = {"time-millis": "int", "time-micros": "long"}


def _defined(schema: Any, named: dict[str, Any]) -> Any:
    while isinstance(schema, str) and (schema in named or schema.rpartition(".")[2] in named):
        schema = named.get(schema, named.get(schema.rpartition(".")[2]))
    if isinstance(schema, dict) and isinstance(schema["type"], dict | list):
        return _defined(schema["type"], named)
    return schema


def _kind(schema: Any) -> str:
    kind = schema["type"] if isinstance(schema, dict) else schema
    return "record" if kind == "error" else str(kind)


def _last_name(schema: Any) -> str:
    return schema.get("name", "").rpartition(".")[2] if isinstance(schema, dict) else ""


def _default(part: Any, named: dict[str, Any]) -> str:
    if "default" not in part:
        raise BadEventError
    return _written_default(part["type"], part["default"], named)


def _written_default(schema: Any, value: Any, named: dict[str, Any]) -> str:
    schema = _defined(schema, named)
    if isinstance(schema, list):
        return _written_default(schema[0], value, named)
    kind = _kind(schema)
    if kind in ("bytes", "fixed"):
        return f'"{base64.b64encode(value.encode("latin-1")).decode()}"'
    if kind == "array":
        items = (_written_default(schema["items"], item, named) for item in value)
        return f"[{','.join(items)}]"
    if kind in ("map", "record"):
        members = (
            {name: (schema["values"], item) for name, item in value.items()}
            if kind == "map"
            else {
                part["name"]: (part["type"], value.get(part["name"], part.get("default")))
                for part in schema["fields"]
            }
        )
        texts = (f"{_quoted(n)}:{_written_default(s, v, named)}" for n, (s, v) in members.items())
        return f"{{{','.join(texts)}}}"
    return json.dumps(value, ensure_ascii=False)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _float(value: float, wanted: str) -> str:
    number = float(str(np.float32(value))) if wanted == "float" else float(value)
    if math.isnan(number):
        return '"NaN"'
    return f'"{"-" * (number < 0)}Infinity"' if math.isinf(number) else repr(number)


def _decimal(number: int, scale: int) -> str:
    if not -(2**127) <= number < 2**127:
        raise BadEventError
    digits = str(abs(number)).rjust(scale + 1, "0")
    point = len(digits) - scale
    fraction = f".{digits[point:]}" if scale else ""
    return f"{'-' * (number < 0)}{digits[:point]}{fraction}"


def _day(days: int) -> str:
    try:
        return (date(1970, 1, 1) + timedelta(days)).isoformat()
    except OverflowError:
        raise BadEventError from None


def _moment(value: int, unit: int) -> str:
    seconds, rest = divmod(value, unit)
    nanos = rest * (10**9 // unit)
    try:
        text = (datetime(1970, 1, 1) + timedelta(seconds=seconds)).isoformat()  # noqa: DTZ001 - none is meant
    except OverflowError:
        raise BadEventError from None
    for digits in (0, 3, 6):
        if nanos % 10 ** (9 - digits) == 0:
            return f"{text}.{nanos:09}"[: len(text) + digits + bool(digits)]
    return f"{text}.{nanos:09}"
