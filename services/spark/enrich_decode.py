"""The map side of `enrich`: source records in; batches for slots, bad events and positions out.

What ingest and mapper do, in one pass over whole Arrow batches. A row of the result is a batch of
events for one slot, as `mapped` carries them in the services, so that the shuffle moves some
hundred rows instead of one an event.

| kind    | a row is                                                    | payload                 |
| ------- | ----------------------------------------------------------- | ----------------------- |
| EVENTS  | good events of a slot                                       | EventBatch.to_message   |
| SHELVED | the same, on one machine                                    | where it lies: Shelf    |
| BAD     | bad events, by turns the slots': who buries them is any one | BadEvents.to_message    |
| REACHED | how far a source partition was read, told to every node     | none                    |
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa

from dovetail.join.columns import Column
from dovetail.join.mapper import Mapper, groups
from dovetail.node.intake import batch_of, schema_of
from dovetail.pipeline.spec import KeyType
from dovetail.stream.batch import PIECE_BYTES
from dovetail.stream.events.formats import decoder_of
from dovetail.stream.events.reasons import Reason
from dovetail.stream.rdkafka import Parcel, Records
from services.spark.enrich_shelf import Shelf

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from dovetail.join.columns import Ints, SmallInts
    from dovetail.pipeline.spec import Pipeline
    from dovetail.stream.events.decode import Decoded

SOURCE = ("value", "partition", "offset", "unix_millis(timestamp) AS timestamp")
"""What is read of a source record, in SQL."""
EVENTS, SHELVED, BAD, REACHED = range(4)
SCHEMA = pa.schema(
    [
        ("node", pa.int32()),
        ("slot", pa.int32()),
        ("kind", pa.int32()),
        ("partition", pa.int32()),
        ("reached", pa.int64()),
        ("payload", pa.binary()),
    ]
)
SPARK_SCHEMA = "node int, slot int, kind int, partition int, reached long, payload binary"


@dataclass(frozen=True, slots=True)
class BadEvents:
    """Events for the dead letters, with their original bytes."""

    partitions: SmallInts
    offsets: Ints
    reasons: list[str]
    details: list[str]
    values: list[bytes | None]

    def __len__(self) -> int:
        return len(self.values)

    def to_message(self) -> bytes:
        batch = pa.record_batch(
            {
                "partition": pa.array(self.partitions, pa.int32()),
                "offset": pa.array(self.offsets, pa.int64()),
                "reason": pa.array(self.reasons, pa.string()),
                "detail": pa.array(self.details, pa.string()),
                "value": pa.array(self.values, pa.large_binary()),
            }
        )
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        message: bytes = sink.getvalue().to_pybytes()
        return message

    @classmethod
    def from_message(cls, message: bytes) -> Self:
        batch = pa.ipc.open_stream(message).read_next_batch()
        return cls(
            batch.column("partition").to_numpy(),
            batch.column("offset").to_numpy(),
            *(batch.column(name).to_pylist() for name in ("reason", "detail", "value")),
        )


def decode(
    pipeline: Pipeline, shelf: Path | None, parts: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Decode the records of one task; `parts` have the columns of SOURCE.

    `shelf` is a folder that the nodes see too, if there is one.
    """
    decoding = _decoding(pipeline)
    reached: dict[int, int] = {}
    with nullcontext() if shelf is None else Shelf(shelf) as mine:
        for part in parts:
            records = records_of(part)
            if len(records):
                yield decoding.rows(records, mine)
                for partition, rows in groups(records.partitions):
                    last = int(records.offsets[rows].max())
                    reached[partition] = max(last + 1, reached.get(partition, 0))
    yield _rows(
        [
            (node, -1, REACHED, partition, at, None)
            for partition, at in reached.items()
            for node in range(pipeline.nodes)
        ]
    )


def _decoding(pipeline: Pipeline) -> _Decoding:
    """The worker process's own, as long as it works for the same pipeline."""
    if not (_kept and _kept[0].pipeline == pipeline):
        _kept[:] = [_Decoding(pipeline)]
    return _kept[0]


class _Decoding:
    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self._decoder = decoder_of(pipeline.source, schema_of(pipeline))
        self._mapper = Mapper(pipeline.slots, int_key=pipeline.key_type is KeyType.INT)

    def rows(self, records: Records, shelf: Shelf | None) -> pa.RecordBatch:
        decoded = self._decoder.decode(records.data, records.bounds, records.tombstones)
        rows = [*self._good(records, decoded, shelf), *self._bad(records, decoded)]
        return _rows(rows)

    def _good(
        self, records: Records, decoded: Decoded, shelf: Shelf | None
    ) -> Iterator[tuple[Any, ...]]:
        batch = batch_of(records, decoded, np.flatnonzero(decoded.valid))
        for slot, positions in groups(self._mapper.slots(batch.keys)):
            for piece in batch.take(positions).pieces(PIECE_BYTES):
                parcel = piece.written(self.pipeline.name, slot)
                if shelf is None:
                    yield self._node(slot), slot, EVENTS, -1, 0, parcel
                else:
                    yield self._node(slot), slot, SHELVED, -1, 0, shelf.put(parcel)

    def _bad(self, records: Records, decoded: Decoded) -> Iterator[tuple[Any, ...]]:
        """Give bad events to slots by their partition, which is the same whenever they are read."""
        bad = np.flatnonzero(~decoded.valid)
        for slot, places in groups(records.partitions[bad] % self.pipeline.slots):
            rows = bad[places]
            events = BadEvents(
                records.partitions[rows],
                records.offsets[rows],
                [Reason(decoded.reasons[row]).label for row in rows.tolist()],
                [decoded.details[row] for row in rows.tolist()],
                [records.value(row) for row in rows.tolist()],
            )
            yield self._node(slot), slot, BAD, -1, 0, events.to_message()

    def _node(self, slot: int) -> int:
        return slot % self.pipeline.nodes


_kept: list[_Decoding] = []


def records_of(part: pa.RecordBatch) -> Records:
    """The columns of SOURCE as a consumer of ours would give them."""
    values = part.column("value").cast(pa.large_binary())
    tombstones = np.array(values.is_null().to_numpy(zero_copy_only=False), np.bool_)
    column = _column(values)
    return Records(
        part.column("partition").to_numpy().astype(np.int32),
        part.column("offset").to_numpy().copy(),
        part.column("timestamp").to_numpy().copy(),
        column.data,
        column.bounds,
        tombstones,
    )


def _column(values: Any) -> Column:
    # Copies, because Arrow's memory is read-only and kernels want it writable (columns.py).
    if not len(values):
        return Column.empty_values(0)
    _, bounds, data = values.buffers()
    first = values.offset
    numbers = np.frombuffer(bounds, np.int64)[first : first + len(values) + 1]
    start, end = int(numbers[0]), int(numbers[-1])
    return Column(np.frombuffer(data or b"", np.uint8)[start:end].copy(), numbers - start)


def _rows(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True)) or [()] * len(SCHEMA)
    # Arrow copies a parcel from where it was written.
    columns[-1] = tuple(
        payload.data.data if isinstance(payload, Parcel) else payload for payload in columns[-1]
    )
    arrays = [pa.array(column, kind) for column, kind in zip(columns, SCHEMA.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
