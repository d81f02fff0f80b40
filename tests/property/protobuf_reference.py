"""What Protobuf's own library finds in a message, as the JSON that should become of it."""

from __future__ import annotations

import base64
import math
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from google.protobuf import message_factory
from google.protobuf.descriptor import FieldDescriptor
from grpc_tools import protoc

from dovetail.stream.events.protobuf.schema import message_of

EVENT = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";

message Other { int32 x = 1; }

message Event {
  int64 i64 = 1;
  int32 i32 = 2;
  uint64 u64 = 3;
  uint32 u32 = 4;
  sint64 s64 = 5;
  sint32 s32 = 6;
  fixed64 f64 = 7;
  fixed32 f32 = 8;
  sfixed64 sf64 = 9;
  sfixed32 sf32 = 10;
  double d = 11;
  float f = 12;
  bool b = 13;
  string s = 14;
  bytes raw = 15;
  Color color = 16;
  optional int64 maybe = 17;
  Line line = 18;
  repeated Line lines = 19;
  repeated int32 packed = 20;
  repeated sint64 unpacked = 21 [packed = false];
  repeated string words = 22;
  repeated double doubles = 23;
  map<string, int64> counts = 24;
  map<int32, Line> by_number = 25;
  map<bool, string> flags = 26;
  oneof choice { int32 a = 27; Line deep = 28; string text = 29; }
  google.protobuf.Timestamp at = 30;
  google.protobuf.Int64Value wrapped = 31;
  repeated google.protobuf.Timestamp moments = 32;
  repeated Color colors = 3000;
  Event child = 20000;

  message Line { string sku = 1; int32 n = 2; repeated Line more = 3; Line under = 4; }
  enum Color { NONE = 0; RED = 1; BLUE = -5; }
}
"""
LINES = {"shop.Event.Line"}


def descriptor(text=EVENT, name="shop.Event"):
    """Compile a .proto file as its user would."""
    with TemporaryDirectory() as folder:
        (Path(folder) / "event.proto").write_text(text)
        out = Path(folder) / "event.desc"
        includes = Path(protoc.__file__).parent / "_proto"
        assert not protoc.main(
            ["", f"-I{folder}", f"-I{includes}", f"--descriptor_set_out={out}", "event.proto"]
        )
        return message_of(out.read_bytes(), name)


def new(message):
    return message_factory.GetMessageClass(message)()


def found(message):
    """Give what JSON's reader should find; ValueError where no date is meant."""
    made = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.message_type and field.message_type.GetOptions().map_entry:
            inner = field.message_type.fields_by_name["value"]
            made[field.name] = {_key(key): _value(inner, value[key]) for key in value}
        elif field.is_repeated:
            made[field.name] = [_value(field, item) for item in value]
        elif not field.has_presence or message.HasField(field.name):
            made[field.name] = _value(field, value)
    return made


def _key(key):
    return str(key).lower() if isinstance(key, bool) else str(key)


def _value(field, value):  # noqa: PLR0911 - one case a type
    if field.message_type:
        name = field.message_type.full_name
        if name == "google.protobuf.Timestamp":
            return _moment(value)
        return value.value if name.startswith("google.protobuf") else found(value)
    if field.enum_type:
        known = field.enum_type.values_by_number.get(value)
        return known.name if known else value
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float):
        if math.isnan(value):
            return "NaN"
        if abs(value) == float("inf"):
            return "Infinity" if value > 0 else "-Infinity"
        single = field.type == FieldDescriptor.TYPE_FLOAT
        return Decimal(str(np.float32(value)) if single else repr(value))
    return value


def _moment(value):
    if not 0 <= value.nanos < 10**9:
        raise ValueError
    try:
        text = (datetime(1970, 1, 1) + timedelta(seconds=value.seconds)).isoformat()  # noqa: DTZ001
    except OverflowError:
        raise ValueError from None
    digits = next((n for n in (0, 3, 6) if value.nanos % 10 ** (9 - n) == 0), 9)
    return f"{text}.{value.nanos:09}"[: len(text) + (digits and digits + 1)] + "Z"


def fill(message, dice, depth=0):
    """Set some of the fields to values of every size."""
    for field in message.DESCRIPTOR.fields:
        if dice.random() < 0.6:
            continue
        if field.message_type and field.message_type.GetOptions().map_entry:
            _fill_map(getattr(message, field.name), field.message_type, dice, depth)
        elif field.is_repeated:
            items = getattr(message, field.name)
            for _ in range(dice.randint(0, 3)):
                if field.message_type:
                    fill(items.add(), dice, depth + 1)
                else:
                    items.append(_random(field, dice))
        elif field.message_type:
            if depth < 4:
                inner = getattr(message, field.name)
                inner.SetInParent()
                fill(inner, dice, depth + 1)
        else:
            setattr(message, field.name, _random(field, dice))
    if message.DESCRIPTOR.full_name == "google.protobuf.Timestamp":
        message.seconds = dice.choice([0, -1, 1_700_000_000, -62_135_596_800, 253_402_300_799])
        message.nanos = dice.choice([0, 5, 1_000, 999_000_000, 999_999_999])
    return message


def _fill_map(entries, entry, dice, depth):
    key, value = entry.fields_by_name["key"], entry.fields_by_name["value"]
    for _ in range(dice.randint(0, 3)):
        if value.message_type:
            fill(entries[_random(key, dice)], dice, depth + 1)
        else:
            entries[_random(key, dice)] = _random(value, dice)


def _random(field, dice):
    if field.enum_type:
        return dice.choice([0, 1, -5, 77])
    if field.type == FieldDescriptor.TYPE_STRING:
        return dice.choice(["", "plain", 'quo"te\\', "ä日😀", "\0\n\x1f\x7f", "x" * 20])
    if field.type == FieldDescriptor.TYPE_BYTES:
        return dice.randbytes(dice.randint(0, 5))
    if field.type == FieldDescriptor.TYPE_BOOL:
        return dice.random() < 0.5
    if field.type in (FieldDescriptor.TYPE_DOUBLE, FieldDescriptor.TYPE_FLOAT):
        return dice.choice([0.0, -0.0, 0.1, 1e30, -1.5, float("nan"), float("-inf"), 3.4e38])
    unsigned = "UINT" in _NAMES[field.type] or _NAMES[field.type].startswith("TYPE_FIXED")
    bits = 64 if "64" in _NAMES[field.type] else 32
    low, high = (0, 2**bits - 1) if unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return dice.choice([0, 1, 127, 128, low, high, dice.randint(low, high)])


_NAMES = {value: name for name, value in vars(FieldDescriptor).items() if name.startswith("TYPE_")}
