"""Batches of events, as the services hold them and as internal topics carry them.

The Arrow record batch inside the envelope (proto/…/batch.proto) has these columns:

    key        int64         the join key, or the 64-bit hash of `text`; left out of a batch of
                             events that have none, as a link of a chain may get them
    text       large_binary  the canonical key; left out where all are empty, as of int keys
    event      large_binary  the event's own bytes, `{…}`, trimmed
    partition  int32         } with the source topic: the event's identity
    offset     int64         }
    timestamp  int64         the source record's, in ms
    event_time int64         when it happened, in ms; left out where the pipeline names no field
    entry      large_binary  what the cache has for the key (join/entry.py), empty where it has
                             nothing; only on `missed`, of a pipeline that keeps an order
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa

from dovetail.contracts.batch_pb2 import Batch
from dovetail.join.columns import Column, Ints, JoinKeys, SmallInts, Spans
from dovetail.join.entry import Entries
from dovetail.stream.arrow_stream import ascending, objects, read_batch
from dovetail.stream.arrow_template import Template
from dovetail.stream.envelope import ForeignError, opened

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dovetail.join.columns import Bytes

UNMAPPED = -1

PIECE_BYTES = 1 << 20
"""Batches are cut to about this size: large enough that a message costs next to nothing
an event, small enough for every buffer on its way."""
PIECE_EVENTS = 8_192
"""And no batch has more events than this, however small they are."""

_TYPES = {
    "key": pa.int64(),
    "text": pa.large_binary(),
    "event": pa.large_binary(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.int64(),
    "event_time": pa.int64(),
    "entry": pa.large_binary(),
}
_NEEDED = {"event", "partition", "offset", "timestamp"}


@dataclass(frozen=True, slots=True)
class EventBatch:
    keys: JoinKeys
    events: Column
    partitions: SmallInts
    offsets: Ints
    timestamps: Ints
    event_times: Ints | None = None
    """When the events happened, by their own account; None where no field says so."""
    entries: Column | None = None
    """For each event what the cache answers it with, empty where it cannot; None where it can
    answer none, or has answered by itself."""
    keyless: bool = False
    """Whether no event has a key, which then equals nothing: what stands in `keys` is not one."""

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def nbytes(self) -> int:
        fixed = self.keys.values.nbytes + self.offsets.nbytes + self.timestamps.nbytes
        if self.event_times is not None:
            fixed += self.event_times.nbytes
        if self.entries is not None:
            fixed += self.entries.nbytes
        return fixed + self.partitions.nbytes + self.keys.texts.nbytes + self.events.nbytes

    def take(self, indices: Ints) -> EventBatch:
        return EventBatch(
            self.keys.take(indices),
            self.events.take(indices),
            self.partitions[indices],
            self.offsets[indices],
            self.timestamps[indices],
            None if self.event_times is None else self.event_times[indices],
            None if self.entries is None else self.entries.take(indices),
            self.keyless,
        )

    def slice(self, first: int, end: int) -> EventBatch:
        return EventBatch(
            self.keys.slice(first, end),
            self.events.slice(first, end),
            self.partitions[first:end],
            self.offsets[first:end],
            self.timestamps[first:end],
            None if self.event_times is None else self.event_times[first:end],
            None if self.entries is None else self.entries.slice(first, end),
            self.keyless,
        )

    def pieces(self, most_bytes: int) -> Iterator[EventBatch]:
        """Cut into batches that take about so many bytes each, at least one event.

        Of an event its own bytes count, and its entry's.
        """
        bounds = self.events.bounds
        if self.entries is not None:
            bounds = bounds + self.entries.bounds
        for first, end in cuts(bounds, most_bytes):
            yield self if (first, end) == (0, len(self)) else self.slice(first, end)

    @classmethod
    def concatenate(cls, batches: Sequence[EventBatch]) -> EventBatch:
        """Put batches after one another; at least one, which is returned as it is if alone.

        All of them have keys, or none has.
        """
        if len(batches) == 1:
            return batches[0]
        return cls(
            JoinKeys.concatenate([batch.keys for batch in batches]),
            Column.concatenate([batch.events for batch in batches]),
            np.concatenate([batch.partitions for batch in batches]),
            np.concatenate([batch.offsets for batch in batches]),
            np.concatenate([batch.timestamps for batch in batches]),
            _event_times(batches),
            _entries(batches),
            batches[0].keyless,
        )

    def to_message(self, pipeline: str, slot: int = UNMAPPED) -> bytes:
        """Write it as internal topics carry it."""
        return self.written(self.events, pipeline, slot).tobytes()

    def written(self, events: Column | Spans, pipeline: str, slot: int = UNMAPPED) -> Bytes:
        """Write it with these events, its own or the same elsewhere, without a copy on the way."""
        columns: dict[str, Column | Spans | Ints | SmallInts] = {
            **({} if self.keyless else {"key": self.keys.values}),
            "event": events,
            "partition": self.partitions,
            "offset": self.offsets,
            "timestamp": self.timestamps,
        }
        if self.keys.texts.size:
            columns["text"] = self.keys.texts
        if self.event_times is not None:
            columns["event_time"] = self.event_times
        if self.entries is not None:
            columns["entry"] = self.entries
        head = Batch(pipeline=pipeline, slot=slot, events=len(self))
        return _template(tuple(columns)).message(head, list(columns.values()))

    @classmethod
    def from_message(cls, message: bytes | Bytes) -> Self:
        """Of an array, which has to be writable, the batch keeps what it needs: no event is copied.

        So its memory is held as long as the batch is. Raises `ForeignError` if it is no batch.
        """
        return cls.opened(message)[1]

    @classmethod
    def opened(cls, message: bytes | Bytes) -> tuple[Batch, Self]:
        """Return the envelope's small fields as well, for who has to know where it belongs."""
        data = (
            np.frombuffer(bytearray(message), np.uint8) if isinstance(message, bytes) else message
        )
        head, stream = opened(data.data)
        columns = read_batch(stream, _TYPES)
        if missing := _NEEDED - set(columns.schema.names):
            raise ForeignError(f"a message is no batch: it lacks {', '.join(sorted(missing))}")
        if not len(columns) == head.events <= PIECE_EVENTS:
            raise ForeignError(
                f"a message is no batch: it says {head.events} events and holds {len(columns)}, "
                f"of {PIECE_EVENTS} at most"
            )
        found = cls._of_columns(columns, data)
        if not objects(found.events.data, found.events.bounds):
            raise ForeignError("a message is no batch: an event in it is no JSON object")
        return head, found

    @classmethod
    def _of_columns(cls, columns: pa.RecordBatch, data: Bytes) -> Self:
        names = columns.schema.names
        keyless = "key" not in names
        values = (
            np.zeros(len(columns), np.int64) if keyless else columns.column("key").to_numpy().copy()
        )
        texts = (
            _from_arrow(columns.column("text"), data)
            if "text" in names
            else Column.empty_values(len(columns))
        )
        return cls(
            JoinKeys(values, texts),
            _from_arrow(columns.column("event"), data),
            columns.column("partition").to_numpy().copy(),
            columns.column("offset").to_numpy().copy(),
            columns.column("timestamp").to_numpy().copy(),
            columns.column("event_time").to_numpy().copy() if "event_time" in names else None,
            _entries_in(columns.column("entry"), data) if "entry" in names else None,
            keyless,
        )

    @classmethod
    def empty(cls) -> Self:
        none = np.empty(0, np.int64)
        return cls(
            JoinKeys.of_ints(none), Column.empty_values(0), np.empty(0, np.int32), none, none
        )


def cuts(bounds: Ints, most_bytes: int) -> Iterator[tuple[int, int]]:
    """Cut values with these bounds into runs of about so many bytes, of `PIECE_EVENTS` at most."""
    first, count = 0, len(bounds) - 1
    while first < count:
        limit = bounds[first] + most_bytes
        end = int(np.searchsorted(bounds, limit, side="right")) - 1
        end = min(max(end, first + 1), first + PIECE_EVENTS, count)
        yield first, end
        first = end


def _event_times(batches: Sequence[EventBatch]) -> Ints | None:
    """Put them after one another; a batch from before the pipeline named a field has none yet."""
    if all(batch.event_times is None for batch in batches):
        return None
    return np.concatenate(
        [batch.timestamps if batch.event_times is None else batch.event_times for batch in batches]
    )


def _entries(batches: Sequence[EventBatch]) -> Column | None:
    if all(batch.entries is None for batch in batches):
        return None
    return Column.concatenate(
        [
            Column.empty_values(len(batch)) if batch.entries is None else batch.entries
            for batch in batches
        ]
    )


@cache
def _template(names: tuple[str, ...]) -> Template:
    return Template([(name, _TYPES[name]) for name in names])


def _from_arrow(array: Any, message: Bytes) -> Column:
    """Take a column out of the message's own bytes.

    Arrow's view of them is read-only, and kernels want it writable (columns.py). Bounds are copied:
    they need not be aligned where they stand.
    """
    _, bounds, data = array.buffers()
    if len(array) == 0:  # Arrow may leave out even the first bound
        return Column.empty_values(0)
    copied = np.frombuffer(bounds, np.int64, len(array) + 1).copy()
    size = 0 if data is None else data.size
    if not ascending(copied, size):
        raise ForeignError("a message is no batch: its values do not lie within it")
    if data is None:
        return Column(np.empty(0, np.uint8), copied)
    at = data.address - message.ctypes.data
    return Column(message[at : at + data.size], copied)


def _entries_in(array: Any, message: Bytes) -> Column:
    """Take out the entries, whole or empty."""
    entries = _from_arrow(array, message)
    filled = np.flatnonzero(np.diff(entries.bounds))
    try:
        Entries.received(entries.take(filled))
    except ValueError as error:
        raise ForeignError(f"a message is no batch: {error}") from None
    return entries
