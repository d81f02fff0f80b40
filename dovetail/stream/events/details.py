"""What a dead letter says to a human, beside its reason."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from dovetail.stream.events.reasons import Reason
from dovetail.stream.events.schema import Need

if TYPE_CHECKING:
    from dovetail.stream.events.schema import EventSchema, Node

_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*"?|[^\s,}\]]*', re.DOTALL)
_SHOWN_BYTES = 40


def detail(reason: Reason, event: bytes, field: int, offset: int, schema: EventSchema) -> str:
    """Say which field is wrong, how, and at which byte of the event, as far as that is known.

    field is one of the schema's nodes and offset one in the event; -1 where there is none.
    """
    if reason is Reason.TOMBSTONE:
        return "the event has no value"
    if reason is Reason.EMPTY:
        return "the event is empty"
    if reason is Reason.OVERSIZED:
        return f"the event has {len(event)} bytes, more than the {schema.max_bytes} allowed"
    if reason is Reason.INVALID_JSON:
        return broken(event, offset)
    if reason is Reason.UNKNOWN_FIELD:
        return f"unknown field {_token(event, offset)} at byte {offset}"
    return _about_field(reason, event, schema.nodes[field], offset)


def _about_field(reason: Reason, event: bytes, node: Node, offset: int) -> str:
    subject = f'{"key field" if node.need is Need.KEY else "field"} "{node}"'
    if reason in {Reason.MISSING_KEY, Reason.MISSING_FIELD}:
        return f"{subject} is missing"
    if reason in {Reason.NULL_KEY, Reason.NULL_FIELD}:
        return f"{subject} is null at byte {offset}"
    if reason is Reason.INVALID_KEY:
        return f"{subject} contains U+0000 or the key separator U+001F at byte {offset}"
    expected = "an object" if node.field is None else node.field.type
    return f"{subject} at byte {offset}: expected {expected}, found {_token(event, offset)}"


def broken(event: bytes, offset: int) -> str:
    """Say where an event stops being JSON."""
    if offset == len(event):
        return f"not a JSON object: it breaks off after {offset} bytes"
    byte = event[offset]
    found = repr(chr(byte)) if 0x20 <= byte < 0x7F else f"byte 0x{byte:02x}"
    return f"not a JSON object: {found} is wrong at byte {offset}"


def _token(event: bytes, offset: int) -> str:
    match = _TOKEN.match(event, offset)
    token = match[0] if match else b""
    shown = token[:_SHOWN_BYTES].decode(errors="replace")
    return shown if len(token) <= _SHOWN_BYTES else f"{shown}…"
