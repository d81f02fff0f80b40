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

from dovetail.contracts.batch_pb2 import Batch
from dovetail.join.columns import Column, Ints, JoinKeys, SmallInts, Spans
from dovetail.join.entry import Entries
from dovetail.stream.arrow_samples import samples_of
from dovetail.stream.arrow_stream import ascending, objects, schema_in
from dovetail.stream.arrow_template import BINARY, LONG, SHORT, Picked, Template
from dovetail.stream.envelope import ForeignError, opened

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dovetail.join.columns import Bytes
    from dovetail.stream.rdkafka.parcel import Parcel

UNMAPPED = -1

PIECE_BYTES = 1 << 20
"""Batches are cut to about this size: large enough that a message costs next to nothing
an event, small enough for every buffer on its way."""
PIECE_EVENTS = 8_192
"""And no batch has more events than this, however small they are."""

TYPES = {
    "key": LONG,
    "event": BINARY,
    "partition": SHORT,
    "offset": LONG,
    "timestamp": LONG,
    "text": BINARY,
    "event_time": LONG,
    "entry": BINARY,
}
OPTIONAL = ("key", "text", "event_time", "entry")
_NEEDED = TYPES.keys() - set(OPTIONAL)


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
    unfit: str = ""
    """Why no event can be joined, and all are to be parked; such a batch is keyless."""
    slots: SmallInts | None = None
    """Of each event its key's, where one process joins events of several; never written."""
    numbers: Ints | None = None
    """What a node's window knows the events by, once they are let in; never written."""

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

    @property
    def sizes(self) -> Ints:
        """The bytes of each event and of its key."""
        sizes = np.diff(self.events.bounds)
        return sizes + np.diff(self.keys.texts.bounds) if self.keys.texts.size else sizes

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
            self.unfit,
            None if self.slots is None else self.slots[indices],
            None if self.numbers is None else self.numbers[indices],
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
            self.unfit,
            None if self.slots is None else self.slots[first:end],
            None if self.numbers is None else self.numbers[first:end],
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

        All of them have keys, or none has, and for one reason.
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
            batches[0].unfit,
        )

    def to_message(self, pipeline: str, slot: int = UNMAPPED) -> bytes:
        """Write it as internal topics carry it."""
        return bytes(self.written(pipeline, slot))

    def written(self, pipeline: str, slot: int = UNMAPPED) -> Parcel:
        """Write it as internal topics carry it, for a producer to take over."""
        return self._written(self.events, None, pipeline, slot)

    def written_of(self, rows: Ints, events: Spans, pipeline: str, slot: int) -> Parcel:
        """Write these rows of it, with their events, which lie elsewhere."""
        return self._written(events, rows, pipeline, slot)

    def _written(
        self, events: Column | Spans, rows: Ints | None, pipeline: str, slot: int
    ) -> Parcel:
        def numbers(column: Ints | SmallInts) -> Ints | SmallInts | Picked:
            return column if rows is None else Picked(column, rows)

        def values(column: Column) -> Column:
            return column if rows is None else column.take(rows)

        columns: dict[str, Column | Spans | Picked | Ints | SmallInts] = {
            **({} if self.keyless else {"key": numbers(self.keys.values)}),
            "event": events,
            "partition": numbers(self.partitions),
            "offset": numbers(self.offsets),
            "timestamp": numbers(self.timestamps),
        }
        if self.keys.texts.size:
            columns["text"] = values(self.keys.texts)
        if self.event_times is not None:
            columns["event_time"] = numbers(self.event_times)
        if self.entries is not None:
            columns["entry"] = values(self.entries)
        head = Batch(pipeline=pipeline, slot=slot, events=len(events), unfit=self.unfit)
        return _templates()[tuple(columns)].message(head, list(columns.values()))

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
        head, place, end = opened(data.data)
        columns = _columns(data[place:end])
        if missing := _NEEDED - set(columns):
            raise ForeignError(f"a message is no batch: it lacks {', '.join(sorted(missing))}")
        rows = len(columns["offset"])
        if not rows == head.events <= PIECE_EVENTS:
            raise ForeignError(
                f"a message is no batch: it says {head.events} events and holds {rows}, "
                f"of {PIECE_EVENTS} at most"
            )
        found = cls._of_columns(columns, rows, head.unfit)
        if not objects(found.events.data, found.events.bounds):
            raise ForeignError("a message is no batch: an event in it is no JSON object")
        return head, found

    @classmethod
    def _of_columns(cls, columns: dict[str, Any], rows: int, unfit: str) -> Self:
        keyless = "key" not in columns
        values = np.zeros(rows, np.int64) if keyless else columns["key"]
        return cls(
            JoinKeys(values, columns.get("text", Column.empty_values(rows))),
            columns["event"],
            columns["partition"],
            columns["offset"],
            columns["timestamp"],
            columns.get("event_time"),
            _entries_in(columns["entry"]) if "entry" in columns else None,
            keyless,
            unfit,
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
def _templates() -> dict[tuple[str, ...], Template]:
    """All that `EventBatch` is written with, by the names of the columns."""
    return {
        names: Template([(name, TYPES[name]) for name in names], *sample)
        for names, sample in samples_of(list(TYPES), OPTIONAL).items()
    }


@cache
def _usual() -> dict[bytes, Template]:
    """The same by how their streams begin."""
    return {template.schema: template for template in _templates().values()}


def _columns(stream: Bytes) -> dict[str, Any]:
    """The stream's columns by name: numbers, and bytes that stay where they are."""
    template = _usual().get(schema_in(stream))
    columns = template.read(stream) if template else None
    if columns is None:  # of another release, or of somebody else
        # Only then is Arrow needed, which takes 27 MiB, and pandas, which it looks for, 60.
        from dovetail.stream.arrow_reader import read_batch  # noqa: PLC0415

        batch = read_batch(stream.data, TYPES)
        columns = {
            name: _from_arrow(column, stream) if TYPES[name] == BINARY else column.to_numpy().copy()
            for name, column in zip(batch.schema.names, batch.columns, strict=True)
            if name in TYPES
        }
    for column in columns.values():
        if isinstance(column, Column) and not ascending(column.bounds, len(column.data)):
            raise ForeignError("a message is no batch: its values do not lie within it")
    return columns


def _from_arrow(array: Any, stream: Bytes) -> Column:
    """Take a column out of the stream's own bytes.

    Arrow's view of them is read-only, and kernels want it writable (columns.py). Bounds are copied:
    they need not be aligned where they stand.
    """
    _, bounds, data = array.buffers()
    if len(array) == 0:  # Arrow may leave out even the first bound
        return Column.empty_values(0)
    copied = np.frombuffer(bounds, np.int64, len(array) + 1).copy()
    if data is None:
        return Column(np.empty(0, np.uint8), copied)
    at = data.address - stream.ctypes.data
    return Column(stream[at : at + data.size], copied)


def _entries_in(entries: Column) -> Column:
    """The entries, each whole or empty."""
    filled = np.flatnonzero(np.diff(entries.bounds))
    try:
        Entries.received(entries.take(filled))
    except ValueError as error:
        raise ForeignError(f"a message is no batch: {error}") from None
    return entries
