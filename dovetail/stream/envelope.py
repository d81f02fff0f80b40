"""The envelope of a batch (proto/…/batch.proto) around its Arrow stream, without copying that.

Protobuf's own library copies the stream on its way in and out of a message, more than once, and
the stream is nearly all there is of it. So the small fields are its to read and write; the stream
is put behind them as the wire format has it, and found there again by walking over the fields.
"""

from __future__ import annotations

from google.protobuf.message import DecodeError

from dovetail.contracts.batch_pb2 import Batch

_ARROW = Batch.ARROW_FIELD_NUMBER
_VARINT, _EIGHT_BYTES, _LENGTH, _FOUR_BYTES = 0, 1, 2, 5
"""Wire types."""
_FIXED = {_EIGHT_BYTES: 8, _FOUR_BYTES: 4}
_LONGEST_VARINT = 10


class ForeignError(ValueError):
    """A message is not what its topic carries."""


def before_stream(head: Batch, size: int) -> bytes:
    """Serialise a batch up to its stream, of so many bytes, which is not in `head`."""
    tag = _ARROW << 3 | _LENGTH
    return head.SerializeToString() + _varint(tag) + _varint(size)


def opened(message: memoryview) -> tuple[Batch, int, int]:
    """Return a batch's small fields, and where its Arrow stream begins and ends."""
    first, start, end = _place_of_stream(message)
    try:
        head = Batch.FromString(bytes(message[:first]) + bytes(message[end:]))
    except DecodeError as error:
        raise ForeignError(f"a message is no batch: {error}") from None
    return head, start, end


def _place_of_stream(message: memoryview) -> tuple[int, int, int]:
    """Return where the stream's field begins, where the stream does, and where both end."""
    found = None
    at = 0
    while at < len(message):
        first = at
        tag, at = _number(message, at)
        kind = tag & 7
        if kind == _VARINT:
            _, at = _number(message, at)
        elif kind == _LENGTH:
            size, at = _number(message, at)
            if tag >> 3 == _ARROW:
                found = first, at, at + size
            at += size
        elif kind in _FIXED:
            at += _FIXED[kind]
        else:
            raise ForeignError(f"a message is no batch: it has a field of wire type {kind}")
    if found is None or at > len(message):
        raise ForeignError("a message is no batch, or is cut off: was it sent by another release?")
    return found


def _varint(number: int) -> bytes:
    written = bytearray()
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)


def _number(message: memoryview, at: int) -> tuple[int, int]:
    """Read a varint; return it and where it ends."""
    number = shift = 0
    for place in range(at, min(at + _LONGEST_VARINT, len(message))):
        byte = message[place]
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, place + 1
        shift += 7
    raise ForeignError("a message is no batch: it ends within a number")
