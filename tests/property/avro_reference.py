"""Avro once more, slowly and straight from the specification: the oracle for the kernel.

Schemas are JSON trees as they stand in a file; values are what JSON's reader gives with
parse_float=Decimal. Nothing here is shared with dovetail.
"""

from __future__ import annotations

import base64
import math
import struct
from datetime import date, datetime, timedelta
from decimal import Decimal

import numpy as np
from hypothesis import strategies as st

MOST_DEPTH = 64
UNITS = {"millis": 10**3, "micros": 10**6, "nanos": 10**9}


class BadError(Exception):
    pass


# --- writing


def varint(number):
    number = (number << 1) ^ (number >> 63)
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def encode(schema, value, named):
    """Write a raw value: an (index, value) pair for a union, ints for logical types."""
    if isinstance(schema, str) and schema in named:
        schema = named[schema]
    if isinstance(schema, list):
        index, inner = value
        return varint(index) + encode(schema[index], inner, named)
    kind = schema["type"] if isinstance(schema, dict) else schema
    if kind == "record":
        named[schema["name"]] = schema
        return b"".join(encode(f["type"], value[f["name"]], named) for f in schema["fields"])
    if kind == "enum":
        return varint(schema["symbols"].index(value))
    if kind == "array":
        return blocks([encode(schema["items"], item, named) for item in value])
    if kind == "map":
        return blocks(
            [encode("string", k, named) + encode(schema["values"], v, named) for k, v in value]
        )
    return {
        "null": lambda _: b"",
        "boolean": lambda v: bytes([v]),
        "int": varint,
        "long": varint,
        "float": lambda v: struct.pack("<f", v),
        "double": lambda v: struct.pack("<d", v),
        "string": lambda v: varint(len(v.encode())) + v.encode(),
        "bytes": lambda v: varint(len(v)) + v,
        "fixed": lambda v: v,
    }[kind](value)


def blocks(items):
    """Write items in two blocks, the second with its bytes' number, as a writer may."""
    half = len(items) // 2
    out = b""
    if half:
        out += varint(half) + b"".join(items[:half])
    if len(items) > half:
        rest = b"".join(items[half:])
        out += varint(half - len(items)) + varint(len(rest)) + rest
    return out + b"\0"


# --- reading


class Reader:
    def __init__(self, data, most_items):
        self.data, self.at, self.items, self.depth = data, 0, most_items, 0
        self.named = {}

    def take(self, size):
        if size < 0 or self.at + size > len(self.data):
            raise BadError
        self.at += size
        return self.data[self.at - size : self.at]

    def long(self):
        number = 0
        for nth in range(10):
            (byte,) = self.take(1)
            number |= (byte & 0x7F) << (7 * nth)
            if byte < 0x80:
                if number >= 1 << 64:
                    raise BadError
                return (number >> 1) ^ -(number & 1)
        raise BadError

    def enter(self):
        self.depth += 1
        if self.depth > MOST_DEPTH + 1:
            raise BadError

    def value(self, schema):
        if isinstance(schema, str) and schema in self.named:
            schema = self.named[schema]
        if isinstance(schema, list):
            index = self.long()
            if not 0 <= index < len(schema):
                raise BadError
            return self.value(schema[index])
        kind = schema["type"] if isinstance(schema, dict) else schema
        if kind == "record":
            self.named[schema["name"]] = schema
            self.enter()
            made = {f["name"]: self.value(f["type"]) for f in schema["fields"]}
            self.depth -= 1
            return made
        if kind in ("array", "map"):
            return self.loop(schema, kind)
        if kind == "enum":
            index = self.long()
            if not 0 <= index < len(schema["symbols"]):
                raise BadError
            return schema["symbols"][index]
        logical = schema.get("logicalType") if isinstance(schema, dict) else None
        return rendered(self.scalar(kind, schema), kind, logical, schema)

    def loop(self, schema, kind):
        self.enter()
        made = []
        while count := self.long():
            if count < 0:
                count = -count
                if self.long() < 0:
                    raise BadError
            self.items -= count
            if self.items < 0:
                raise BadError
            for _ in range(count):
                if kind == "array":
                    made.append(self.value(schema["items"]))
                else:
                    made.append((self.text(), self.value(schema["values"])))
        self.depth -= 1
        return made if kind == "array" else dict(made)

    def text(self):
        try:
            return self.take(self.long()).decode()
        except UnicodeDecodeError:
            raise BadError from None

    def scalar(self, kind, schema):
        if kind == "null":
            return None
        if kind == "boolean":
            (byte,) = self.take(1)
            if byte > 1:
                raise BadError
            return byte == 1
        if kind in ("int", "long"):
            number = self.long()
            if kind == "int" and not -(2**31) <= number < 2**31 and "logicalType" not in schema:
                raise BadError
            return number
        if kind in ("float", "double"):
            size = 4 if kind == "float" else 8
            return struct.unpack("<f" if size == 4 else "<d", self.take(size))[0]
        if kind == "string":
            return self.text()
        return self.take(schema["size"] if kind == "fixed" else self.long())


def rendered(value, kind, logical, schema):  # noqa: PLR0911 - one case a type
    """Say what JSON's reader should find."""
    if logical == "decimal":
        number = int.from_bytes(value, "big", signed=True)
        if not -(2**127) <= number < 2**127:
            raise BadError
        return Decimal(f"{number}e-{schema.get('scale', 0)}")
    if logical == "date":
        return day(value).isoformat()
    if logical and logical.startswith("time-"):
        unit = UNITS[logical.rpartition("-")[2]]
        if not 0 <= value < 86_400 * unit:
            raise BadError
        return moment(value, unit)[11:]
    if logical and "timestamp-" in logical:
        unit = UNITS[logical.rpartition("-")[2]]
        return moment(value, unit) + ("" if logical.startswith("local") else "Z")
    if kind == "float":
        return special(value) or Decimal(str(np.float32(value)))
    if kind == "double":
        return special(value) or Decimal(repr(value))
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def special(value):
    if math.isnan(value):
        return "NaN"
    return {float("inf"): "Infinity", float("-inf"): "-Infinity"}.get(value)


def day(days):
    try:
        return date(1970, 1, 1) + timedelta(days)
    except OverflowError:
        raise BadError from None


def moment(value, unit):
    seconds, rest = divmod(value, unit)
    nanos = rest * (10**9 // unit)
    try:
        text = (datetime(1970, 1, 1) + timedelta(seconds=seconds)).isoformat()  # noqa: DTZ001
    except OverflowError:
        raise BadError from None
    if not nanos:
        return text
    digits = 3 if nanos % 10**6 == 0 else 6 if nanos % 1000 == 0 else 9
    return f"{text}.{nanos:09}"[: len(text) + 1 + digits]


def decode(schema, data, most_items=1 << 30):
    """Give what JSON's reader should find in the event; BadError if it is no datum."""
    reader = Reader(data, most_items)
    value = reader.value(schema)
    if reader.at != len(data):
        raise BadError
    return value


# --- schemas with values of theirs

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
INTS, LONGS = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)


def logical(kind, name, values, **more):
    return st.tuples(st.just({"type": kind, "logicalType": name, **more}), st.just(values))


SCALARS = st.one_of(
    *(
        st.tuples(st.just(kind), st.just(values))
        for kind, values in {
            "null": st.none(),
            "boolean": st.booleans(),
            "int": INTS,
            "long": LONGS,
            "float": st.floats(width=32),
            "double": st.floats(),
            "string": TEXTS,
            "bytes": st.binary(max_size=9),
        }.items()
    ),
    logical("int", "date", st.integers(-719_162, 2_932_896)),
    logical("int", "time-millis", st.integers(0, 86_399_999)),
    logical("long", "time-micros", st.integers(0, 86_399_999_999)),
    logical("long", "timestamp-millis", st.integers(-62_135_596_800_000, 253_402_300_799_999)),
    logical("long", "timestamp-micros", st.integers(-(10**15), 10**15)),
    logical("long", "timestamp-nanos", LONGS),
    logical("long", "local-timestamp-millis", st.integers(-(10**12), 10**12)),
    logical("bytes", "decimal", st.binary(max_size=16), precision=38, scale=4),
    logical("bytes", "duration", st.binary(max_size=3)),
)


@st.composite
def schemas(draw, names=None, depth=3):  # noqa: PLR0911 - one case a type
    """A schema, and the strategy for its raw values."""
    names = [] if names is None else names
    kind = draw(
        st.sampled_from(["scalar"] * 6 + ["record", "array", "map", "union", "enum", "fixed"])
    )
    if depth == 0 or kind == "scalar":
        return draw(SCALARS)
    if kind in ("array", "map"):
        inner, values = draw(schemas(names, depth - 1))
        if kind == "array":
            return {"type": "array", "items": inner}, st.lists(values, max_size=4)
        keys = st.tuples(TEXTS, values)
        return {"type": "map", "values": inner}, st.lists(
            keys, max_size=3, unique_by=lambda p: p[0]
        )
    if kind == "union":
        inner, values = draw(schemas(names, depth - 1).filter(lambda made: _can_join_null(made[0])))
        pair = st.one_of(st.just((0, None)), st.tuples(st.just(1), values))
        return ["null", inner], pair
    names.append(name := f"n{len(names)}")
    if kind == "enum":
        symbols = ["RED", "green_2", "_"]
        return {"type": "enum", "name": name, "symbols": symbols}, st.sampled_from(symbols)
    if kind == "fixed":
        size = draw(st.integers(0, 9))
        made = {"type": "fixed", "name": name, "size": size}
        if size and draw(st.booleans()):
            made |= {"logicalType": "decimal", "precision": 20, "scale": 2}
        return made, st.binary(min_size=size, max_size=size)
    return draw(records(names, depth - 1, name))


def _can_join_null(schema):
    return schema != "null" and not isinstance(schema, list)


@st.composite
def records(draw, names=None, depth=3, name="event"):
    fields, values = [], {}
    names = [] if names is None else names
    for number in range(draw(st.integers(0 if depth < 3 else 1, 5))):
        inner, strategy = draw(schemas(names, depth))
        fields.append({"name": f"f{number}", "type": inner})
        values[f"f{number}"] = strategy
    return {"type": "record", "name": name, "fields": fields}, st.fixed_dictionaries(values)


@st.composite
def data(draw):
    """A record's schema and a few of its data."""
    schema, values = draw(records())
    return schema, [encode(schema, draw(values), {}) for _ in range(draw(st.integers(1, 4)))]


def evolved(dice, schema):
    """Reorder, drop and add fields and promote numbers, as a reader's schema may."""
    fields = [dict(field) for field in schema["fields"]]
    for field in fields:
        wider = {"int": ["int", "long", "float", "double"], "long": ["long", "float", "double"]}
        if isinstance(field["type"], str):
            field["type"] = dice.choice(wider.get(field["type"], [field["type"]]))
    dice.shuffle(fields)
    kept = fields[: dice.randint(0, len(fields))]
    kept.append({"name": "added", "type": ["string", "null"], "default": 'a "quoted" ä'})
    return {**schema, "fields": kept}


def resolved(value, writer, reader):
    """Say what a reader finds in what a writer wrote, its fields evolved as above."""
    written = {field["name"]: field["type"] for field in writer["fields"]}
    made = {}
    for field in reader["fields"]:
        name = field["name"]
        if name not in written:
            made[name] = field["default"]
        elif written[name] in ("int", "long") and field["type"] == "double":
            made[name] = Decimal(repr(float(value[name])))
        elif written[name] in ("int", "long") and field["type"] == "float":
            made[name] = Decimal(str(np.float32(value[name])))
        else:
            made[name] = value[name]
    return made
