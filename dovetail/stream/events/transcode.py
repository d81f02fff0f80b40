"""Events of another format, as the JSON text that everything behind ingest works with.

    binary events ──► transcoder ──► JSON text ──► JsonDecoder ──► good, or why not, and keys
                          │
                          └─ what is no event of its format gets its reason here

Both steps are kernels over the whole batch. Python looks only at bad events, for their details.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

from dovetail.stream.events.decode import Decoded, JsonDecoder
from dovetail.stream.events.details import detail
from dovetail.stream.events.json_text import PADDING
from dovetail.stream.events.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from dovetail.stream.events.schema import EventSchema


@dataclass(frozen=True, slots=True)
class Binary:
    """A batch of events; a wanted one is data[bounds[i]:bounds[i+1]]."""

    data: NDArray[np.uint8]
    """At least eight bytes, for the kernels load eight at once."""
    bounds: NDArray[np.int64]
    wanted: NDArray[np.bool_]

    def __len__(self) -> int:
        return self.wanted.size


@dataclass(slots=True)
class Transcoded:
    """Row i is event i; one with a reason, or not wanted, has no text."""

    data: NDArray[np.uint8]
    bounds: NDArray[np.int64]
    reasons: NDArray[np.uint8]
    details: dict[int, str] = field(default_factory=dict)


class Transcoder(Protocol):
    def transcode(self, events: Binary) -> Transcoded: ...


class TranscodingDecoder:
    """Decodes batches of a format that is not JSON."""

    def __init__(self, schema: EventSchema, transcoder: Transcoder) -> None:
        self._schema = schema
        self._transcoder = transcoder
        self._json = JsonDecoder(schema)

    def decode(
        self, data: NDArray[np.uint8], bounds: NDArray[np.int64], tombstones: NDArray[np.bool_]
    ) -> Decoded:
        """Decode events data[bounds[i]:bounds[i+1]]; a tombstone's bytes are not looked at."""
        oversized = (np.diff(bounds) > self._schema.max_bytes) & ~tombstones
        made = self._transcoder.transcode(_binary(data, bounds, ~(oversized | tombstones)))
        for row in np.flatnonzero(oversized).tolist():
            made.reasons[row] = Reason.OVERSIZED
            event = data[bounds[row] : bounds[row + 1]].tobytes()
            made.details[row] = detail(Reason.OVERSIZED, event, -1, -1, self._schema)
        decoded = self._json.decode(made.data, made.bounds, tombstones)
        reasons = np.where(made.reasons > 0, made.reasons, decoded.reasons)
        return replace(decoded, reasons=reasons, details={**decoded.details, **made.details})


def _binary(
    data: NDArray[np.uint8], bounds: NDArray[np.int64], wanted: NDArray[np.bool_]
) -> Binary:
    if data.size < 8:
        data = np.pad(data, (0, 8 - data.size))
    # Copies: of a read-only array, as Arrow gives them, Numba would compile a second kernel.
    bounds = np.array(bounds, np.int64)
    if bounds.size != wanted.size + 1:
        raise ValueError(f"{bounds.size} bounds for {wanted.size} events: one more is needed")
    if bounds[0] < 0 or bounds[-1] > data.size or np.any(bounds[1:] < bounds[:-1]):
        raise ValueError(f"the bounds do not rise from 0 to at most {data.size}")
    return Binary(np.ascontiguousarray(data, np.uint8), bounds, wanted)


class Output:
    """A buffer that grows until a kernel has written all events into it."""

    def __init__(self, events: Binary, most_bytes: int) -> None:
        # An event gets room for the longest text before it is begun.
        self._room = most_bytes + PADDING
        self._capacity = 4 * int(events.bounds[-1] - events.bounds[0]) + self._room
        self.data = np.empty(self._capacity + PADDING, np.uint8)
        self.bounds = np.zeros(len(events) + 1, np.int64)

    def fill(self, write: Callable[[int, int, int], int]) -> None:
        """Call write(first row, address, capacity), which gives the row it came to, to the end."""
        row = write(0, self.data.ctypes.data, self._capacity)
        while row < self.bounds.size - 1:
            self._grow(int(self.bounds[row]))
            row = write(row, self.data.ctypes.data, self._capacity)

    def _grow(self, used: int) -> None:
        self._capacity = 2 * self._capacity + self._room
        data = np.empty(self._capacity + PADDING, np.uint8)
        data[:used] = self.data[:used]
        self.data = data
