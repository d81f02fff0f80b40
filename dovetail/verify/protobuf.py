"""Protobuf events as JSON text, read by Protobuf's own library.

The names and values are written as the contract (docs/pipeline.md) says; nothing is shared with
`dovetail.stream.events` but the search for the message in the descriptor set.
"""

from __future__ import annotations

import base64
import json
import math
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from dovetail.verify.avro import BadEventError

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor
    from google.protobuf.message import Message


def protobuf_text(event: bytes, message: Descriptor) -> str:
    made = GetMessageClass(message)()
    try:
        made.ParseFromString(event)
    except DecodeError:
        raise BadEventError from None
    return _message(made)


def _message(message: Message) -> str:
    members = []
    fields: Any = message.DESCRIPTOR.fields  # the stubs know two kinds of descriptors
    for field in fields:
        value = getattr(message, field.name)
        if _is_map(field):
            inner = field.message_type.fields_by_name["value"]
            entries = (f"{_label(key)}:{_value(inner, value[key])}" for key in value)
            text = f"{{{','.join(entries)}}}"
        elif field.is_repeated:
            text = f"[{','.join(_value(field, item) for item in value)}]"
        elif not field.has_presence or message.HasField(field.name):
            text = _value(field, value)
        else:
            continue
        members.append(f'"{field.name}":{text}')
    return f"{{{','.join(members)}}}"


def _is_map(field: Any) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def _label(key: object) -> str:
    text = str(key).lower() if isinstance(key, bool) else str(key)
    return json.dumps(text, ensure_ascii=False)


def _value(field: Any, value: Any) -> str:  # noqa: PLR0911 - one case a type
    if field.message_type is not None:
        name = field.message_type.full_name
        if name == "google.protobuf.Timestamp":
            return _moment(value)
        if name.startswith("google.protobuf."):
            return _value(field.message_type.fields_by_name["value"], value.value)
        return _message(value)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return f'"{known.name}"' if known else str(value)
    if isinstance(value, bytes):
        return f'"{base64.b64encode(value).decode()}"'
    if isinstance(value, float):
        return _float(value, single=field.type == FieldDescriptor.TYPE_FLOAT)
    return json.dumps(value, ensure_ascii=False)


def _float(value: float, *, single: bool) -> str:
    if math.isnan(value):
        return '"NaN"'
    if math.isinf(value):
        return '"Infinity"' if value > 0 else '"-Infinity"'
    return repr(float(str(np.float32(value)))) if single else repr(value)


def _moment(value: Any) -> str:
    nanos = value.nanos
    try:
        text = (datetime(1970, 1, 1) + timedelta(seconds=value.seconds)).isoformat()  # noqa: DTZ001 - UTC is said below
    except OverflowError:
        raise BadEventError from None
    if not 0 <= nanos < 10**9:
        raise BadEventError
    for digits in (0, 3, 6):
        if nanos % 10 ** (9 - digits) == 0:
            return f'"{f"{text}.{nanos:09}"[: len(text) + digits + bool(digits)]}Z"'
    return f'"{text}.{nanos:09}Z"'
