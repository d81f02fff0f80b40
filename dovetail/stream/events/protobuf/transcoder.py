"""Transcodes batches of Protobuf messages, plain or in the framing of a schema registry.

    0x00 | id: 4 bytes | which message of its file: n, then n numbers, all in zigzag | the message

The id is not looked up: the wire format itself lets any version of a message be read by the
pipeline's. The numbers must lead to the pipeline's message; a lone 0 is short for the first one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dovetail.kernels import kernel
from dovetail.stream.events.faults import Fault
from dovetail.stream.events.protobuf.compile import compile_protobuf
from dovetail.stream.events.protobuf.kernel import transcode_protobuf
from dovetail.stream.events.reasons import Reason
from dovetail.stream.events.registry import HEADER_BYTES
from dovetail.stream.events.transcode import Binary, Output, Transcoded

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor
    from numpy.typing import NDArray

_NO_HEADER, _OTHER_MESSAGE, _UNWANTED = -1, -2, -3


class ProtobufTranscoder:
    def __init__(self, message: Descriptor, max_bytes: int, *, framed: bool = False) -> None:
        self._name = message.full_name
        self._max_bytes = max_bytes
        self._program, self._most_slots = compile_protobuf(message)
        self._path = np.frombuffer(message_path(message), np.uint8).copy() if framed else None

    def transcode(self, events: Binary) -> Transcoded:
        headers = self._headers(events)
        faults, offsets = np.zeros(len(events), np.uint8), np.zeros(len(events), np.int64)
        base, program = events.data.ctypes.data, self._program
        out = Output(events, self._max_bytes)

        def write(first: int, address: int, capacity: int) -> int:
            return transcode_protobuf(
                first,
                base,
                base + events.data.size,
                events.bounds,
                headers,
                self._max_bytes,
                self._most_slots,
                program.ops,
                program.table,
                program.text,
                address,
                capacity,
                out.bounds,
                faults,
                offsets,
            )

        out.fill(write)
        made = Transcoded(out.data, out.bounds, np.zeros(len(events), np.uint8))
        for row in np.flatnonzero(events.wanted & ((headers < 0) | (faults > 0))).tolist():
            made.reasons[row], made.details[row] = self._why(
                int(headers[row]), Fault(faults[row]), int(offsets[row])
            )
        return made

    def _headers(self, events: Binary) -> NDArray[np.int64]:
        if self._path is None:
            return np.where(events.wanted, 0, _UNWANTED)
        return _framed(events.data, events.bounds, events.wanted, self._path)

    def _why(self, header: int, fault: Fault, offset: int) -> tuple[Reason, str]:
        if header == _NO_HEADER:
            why = "it has no header of a schema registry: 0x00, 4 bytes and the message's place"
            return Reason.INVALID_PROTOBUF, why
        if header == _OTHER_MESSAGE:
            return Reason.UNKNOWN_SCHEMA, f"its header names another message than {self._name}"
        if fault is Fault.TOO_LONG:
            why = f"the event's JSON text has more than the {self._max_bytes} bytes allowed"
            return Reason.OVERSIZED, why
        place = f" at byte {offset}" if offset >= 0 else ""
        return Reason.INVALID_PROTOBUF, f"not a message {self._name}: {fault.words}{place}"


def message_path(message: Descriptor) -> bytes:
    """Write a message's place in its file as a header has it."""
    indexes: list[int] = []
    inner: Descriptor | None = message
    while inner is not None:
        outer = inner.containing_type
        around = list(outer.nested_types if outer else inner.file.message_types_by_name.values())
        indexes.insert(0, [found.full_name for found in around].index(inner.full_name))
        inner = outer
    return b"".join(_zigzag(number) for number in (len(indexes), *indexes))


def _zigzag(number: int) -> bytes:
    number *= 2
    written = bytearray()
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*written, number])


@kernel
def _framed(
    data: NDArray[np.uint8],
    bounds: NDArray[np.int64],
    wanted: NDArray[np.bool_],
    path: NDArray[np.uint8],
) -> NDArray[np.int64]:
    """Give the bytes of each wanted event's header, or why it has none."""
    headers = np.full(wanted.size, _UNWANTED, np.int64)
    is_first = path.size == 2 and path[1] == 0
    for row in range(wanted.size):
        if not wanted[row]:
            continue
        at, end = bounds[row], bounds[row + 1]
        if end - at <= HEADER_BYTES or data[at] != 0:
            headers[row] = _NO_HEADER
            continue
        at += HEADER_BYTES
        if is_first and data[at] == 0:
            headers[row] = HEADER_BYTES + 1
            continue
        same = end - at >= path.size
        for nth in range(path.size):
            same = same and data[at + nth] == path[nth]
        headers[row] = HEADER_BYTES + path.size if same else _OTHER_MESSAGE
    return headers
