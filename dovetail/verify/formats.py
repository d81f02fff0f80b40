"""The JSON text of an event, whatever its format; the Judge goes on from there."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.pipeline.schema_file import protobuf_message
from dovetail.pipeline.spec import Format, Framing
from dovetail.stream.events.registry import schemas_at
from dovetail.verify.avro import BadEventError, avro_text
from dovetail.verify.protobuf import protobuf_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from google.protobuf.descriptor import Descriptor

    from dovetail.pipeline.spec import Source

_HEADER = struct.Struct("!BI")


def text_reader(source: Source) -> Callable[[bytes], bytes | None]:
    """Make the function that gives an event's text, or None if it is no event of its format."""
    read = _reader(source)

    def text_of(event: bytes) -> bytes | None:
        if len(event) > source.max_event_bytes:
            return None
        try:
            return read(event)
        except BadEventError:
            return None

    return text_of


def _reader(source: Source) -> Callable[[bytes], bytes]:
    framed = source.framing is Framing.REGISTRY
    if source.format is Format.JSON:
        return lambda event: event
    if source.format is Format.PROTOBUF:
        message = protobuf_message(source)
        if framed:
            return lambda event: protobuf_text(_past_path(event, message), message).encode()
        return lambda event: protobuf_text(event, message).encode()
    reader = json.loads(Path(source.schema_file or "").read_bytes())
    most = source.max_event_bytes
    if not framed:
        return lambda event: avro_text(event, reader, reader, most).encode()
    writers = _Writers(source)
    return lambda event: avro_text(event[5:], writers.of(event), reader, most).encode()


class _Writers:
    """The writers' schemas by the ids that events name."""

    def __init__(self, source: Source) -> None:
        self._schemas = schemas_at(source.registry or "")
        self._known: dict[int, Any] = {}

    def of(self, event: bytes) -> Any:
        number = _id_of(event)
        if number not in self._known:
            text = self._schemas.schema(number)
            self._known[number] = None if text is None else json.loads(text)
        if self._known[number] is None:
            raise BadEventError
        return self._known[number]


def _id_of(event: bytes) -> int:
    if len(event) < _HEADER.size or event[0] != 0:
        raise BadEventError
    return int(_HEADER.unpack_from(event)[1])


def _past_path(event: bytes, message: Descriptor) -> bytes:
    """Follow the numbers behind the id from the file's messages inward."""
    _id_of(event)
    at = 5
    numbers: list[int] = []
    while not numbers or len(numbers) <= numbers[0]:
        number, shift = 0, 0
        while True:
            if at >= len(event):
                raise BadEventError
            byte = event[at]
            at += 1
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        numbers.append(number >> 1)
    found: Descriptor | None = None
    for index in numbers[1:] or [0]:
        choices = list(found.nested_types if found else message.file.message_types_by_name.values())
        if index >= len(choices):
            raise BadEventError
        found = choices[index]
    if found is None or found.full_name != message.full_name:
        raise BadEventError
    return event[at:]
