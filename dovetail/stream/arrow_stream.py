"""Where the numbers stand in an Arrow stream, and whether its columns can be trusted.

Kernels trust a column's bounds, so they are looked at here, once, before anything else is.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from dovetail.kernels import kernel

if TYPE_CHECKING:
    from dovetail.join.columns import Bytes, Ints

_VTABLE_HEAD = 4
_HEADER_FIELD, _BODY_FIELD = 2, 3
_ROWS_FIELD, _NODES_FIELD, _BUFFERS_FIELD, _COMPRESSION_FIELD = 0, 1, 2, 3
"""Places in the tables Message and RecordBatch of Arrow's Message.fbs."""
_PAIR = 16
"""Bytes of a node (values, nulls) and of a buffer (place, size)."""

PREFIX = 8
"""Of a message: a mark that it follows, and the size of its metadata."""
END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"
"""A mark that a message follows, and a message of no bytes."""


def schema_in(stream: Bytes) -> bytes:
    """The bytes of the message that it begins with, a schema where it is a batch's."""
    size = int.from_bytes(stream[4:8].tobytes(), "little")
    return stream[: PREFIX + size].tobytes()


def is_compressed(metadata: memoryview) -> bool:
    """Whether a batch's body is; pyarrow has no word for it."""
    (message,) = struct.unpack_from("<I", metadata)
    header = _field(metadata, message, _HEADER_FIELD)
    return bool(header) and _field(metadata, _target(metadata, header), _COMPRESSION_FIELD) != 0


def numbers_of(metadata: memoryview) -> list[int]:
    """Where a batch's numbers stand: its rows, each node's and buffer's two, its body's size."""
    (message,) = struct.unpack_from("<I", metadata)
    batch = _target(metadata, _field(metadata, message, _HEADER_FIELD))
    places = [_field(metadata, batch, _ROWS_FIELD)]
    for number in (_NODES_FIELD, _BUFFERS_FIELD):
        listed = _target(metadata, _field(metadata, batch, number))
        (count,) = struct.unpack_from("<I", metadata, listed)
        places += range(listed + 4, listed + 4 + _PAIR * count, _PAIR // 2)
    return [*places, _field(metadata, message, _BODY_FIELD)]


def _target(metadata: memoryview, place: int) -> int:
    """What the offset at this place points to."""
    offset: int = struct.unpack_from("<I", metadata, place)[0]
    return place + offset


def _field(metadata: memoryview, table: int, number: int) -> int:
    """Where a table's field stands; 0 if it has none."""
    vtable = table - struct.unpack_from("<i", metadata, table)[0]
    (size,) = struct.unpack_from("<H", metadata, vtable)
    place = _VTABLE_HEAD + 2 * number
    if place + 2 > size:
        return 0
    (offset,) = struct.unpack_from("<H", metadata, vtable + place)
    return table + offset if offset else 0


@kernel
def ascending(bounds: Ints, size: int) -> bool:
    """Whether these cut so many bytes into values."""
    good = bool(bounds[0] >= 0 and bounds[-1] <= size)
    for i in range(len(bounds) - 1):
        good &= bounds[i] <= bounds[i + 1]
    return good


@kernel
def objects(data: Bytes, bounds: Ints) -> bool:
    """Whether each value is at least `{}`, from its first byte to its last."""
    for i in range(len(bounds) - 1):
        first, last = bounds[i], bounds[i + 1] - 1
        if last <= first or data[first] != 123 or data[last] != 125:
            return False
    return True
