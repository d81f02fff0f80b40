"""Migrations to and from their wire format, a batch at a time.

The contract is `proto/dovetail/contracts/migration.proto`. Python's Protobuf makes an object a
message and copies its entry twice; here fields are read where they stand. A field of a later
release is passed over, a missing one is 0, and what is not a message is told apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dovetail.join.columns import Column
from dovetail.join.memory import copy
from dovetail.kernels import kernel

if TYPE_CHECKING:
    from dovetail.join.columns import Bytes, Ints

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_ENTRY, _READ_AT, _EVENTS, _CYCLE = 1, 2, 3, 4
_ENTRY_TAG, _READ_AT_TAG, _EVENTS_TAG, _CYCLE_TAG = 0x0A, 0x10, 0x18, 0x20
_LONGEST_VARINT = 10
_MOST_BESIDE_ENTRY = 4 * (1 + _LONGEST_VARINT)
_BROKEN = -1
"""Stands where a place would, of what is not a message."""


@dataclass(frozen=True, slots=True)
class Migrations:
    """A batch of migrations, a column each."""

    entries: Column
    read_at_ms: Ints
    events: Ints
    cycles: Ints


def encode(entries: Column, read_at_ms: int, events: Ints, cycle: int) -> Column:
    """Return a message for each entry."""
    return Column(*_encode(entries.data, entries.bounds, read_at_ms, events, cycle))


def decode(messages: Column) -> Migrations:
    starts, ends, numbers = _decode(messages.data, messages.bounds)
    if starts.min(initial=0) == _BROKEN:
        raise ValueError("a message is not a migration: was it sent by another release?")
    return Migrations(
        Column.of_spans(messages.data, starts, ends), numbers[0], numbers[1], numbers[2]
    )


@kernel
def _put_varint(out: Bytes, at: int, tag: int, value: int) -> int:
    """Write a field that is no 0, as Protobuf does; return where it ends."""
    if value == 0:
        return at
    out[at] = tag
    at += 1
    rest = np.uint64(value)
    while rest > np.uint64(127):
        out[at] = (rest & np.uint64(127)) | np.uint64(128)
        rest >>= np.uint64(7)
        at += 1
    out[at] = rest
    return at + 1


@kernel
def _encode(
    data: Bytes, bounds: Ints, read_at: int, events: Ints, cycle: int
) -> tuple[Bytes, Ints]:
    count = len(bounds) - 1
    out = np.empty(bounds[-1] - bounds[0] + count * _MOST_BESIDE_ENTRY, np.uint8)
    out_bounds = np.zeros(count + 1, np.int64)
    at = 0
    for i in range(count):
        length = bounds[i + 1] - bounds[i]
        at = _put_varint(out, at, _ENTRY_TAG, length)
        copy(out, at, data, bounds[i], length)
        at = _put_varint(out, at + length, _READ_AT_TAG, read_at)
        at = _put_varint(out, at, _EVENTS_TAG, events[i])
        at = _put_varint(out, at, _CYCLE_TAG, cycle)
        out_bounds[i + 1] = at
    return out[:at].copy(), out_bounds


@kernel
def _varint(data: Bytes, at: int, end: int) -> tuple[np.uint64, int]:
    """Return a varint's value and where it ends, or BROKEN."""
    value = np.uint64(0)
    for nth in range(_LONGEST_VARINT):
        if at + nth >= end:
            break
        byte = np.uint64(data[at + nth])
        value |= (byte & np.uint64(127)) << np.uint64(7 * nth)
        if byte < np.uint64(128):
            return value, at + nth + 1
    return value, _BROKEN


@kernel
def _field(data: Bytes, at: int, end: int) -> tuple[int, int, int, int]:
    """Return a field's number and kind, its value, and where it ends, or BROKEN.

    What is not a varint has no value: it stands in the bytes from there to its end.
    """
    tag, at = _varint(data, at, end)
    number: int = np.int64(tag >> np.uint64(3))  # type: ignore[assignment]
    kind: int = np.int64(tag & np.uint64(7))  # type: ignore[assignment]
    if at == _BROKEN or number == 0:
        return number, kind, 0, _BROKEN
    if kind == _VARINT:
        value, at = _varint(data, at, end)
        return number, kind, np.int64(value), at  # type: ignore[return-value]
    size = np.uint64(0)
    if kind == _BYTES:
        size, at = _varint(data, at, end)
    elif kind == _FIXED64:
        size = np.uint64(8)
    elif kind == _FIXED32:
        size = np.uint64(4)
    else:
        return number, kind, 0, _BROKEN
    if at == _BROKEN or size > np.uint64(end - at):
        return number, kind, 0, _BROKEN
    return number, kind, at, at + np.int64(size)  # type: ignore[return-value]


@kernel
def _decode(data: Bytes, bounds: Ints) -> tuple[Ints, Ints, Ints]:
    starts = np.zeros(len(bounds) - 1, np.int64)
    ends = np.zeros(len(bounds) - 1, np.int64)
    numbers = np.zeros((3, len(bounds) - 1), np.int64)
    for i in range(len(starts)):
        at = bounds[i]
        while at != _BROKEN and at < bounds[i + 1]:
            number, kind, value, at = _field(data, at, bounds[i + 1])
            if kind == _BYTES and number == _ENTRY:
                starts[i] = value
                ends[i] = at
            elif kind == _VARINT and _READ_AT <= number <= _CYCLE:
                numbers[number - _READ_AT, i] = value
        if at == _BROKEN:
            starts[i] = _BROKEN
    return starts, ends, numbers
