"""What `frequency` and its plan do in Spark's Python workers, an Arrow batch at a time.

Each function takes what it needs to know, then the batches of a task (`mapInArrow`). Kernels are
those of ingest and of dovetail/plan; no event is a Python object.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from dovetail.join.columns import Column, JoinKeys
from dovetail.join.keys import hash_text_many
from dovetail.join.mapper import Mapper
from dovetail.node.intake import schema_of
from dovetail.pipeline.spec import KeyType
from dovetail.plan.counting import count
from dovetail.plan.ranking import Cut, Verdict, rank
from dovetail.plan.recency import HOUR_MS
from dovetail.stream.events.formats import decoder_of
from dovetail.stream.events.schema import NO_TIME
from services.spark.enrich_decode import records_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dovetail.join.columns import Ints
    from dovetail.pipeline.spec import Pipeline
    from dovetail.plan.ranking import Terms

    Batches = Iterator[pa.RecordBatch]

COUNTS = "hour int, events bigint, weight double, bytes bigint, began bigint"
"""Beside the key, of a row of counts: how often it came in an hour of the week, and what that
counts by now. The last two add up to the bytes of all events and the time of the first one; which
rows have them says nothing."""
JUDGED = (
    "slot int, rate double, rows bigint, row_bytes bigint, blocks bigint, events double,"
    " worth double, fits boolean, pays boolean"
)
"""Beside the key, of a row that is ranked: its rate, m, the bytes of its rows; then n and worth."""
PLANNED = (
    "slot int, rate double, rows bigint, blocks bigint, events double, worth double, verdict string"
)

_VERDICTS = pa.array([str(verdict) for verdict in Verdict], pa.string())
_CHOSEN, _INEQUALITY, _TOO_LARGE, _BUDGET = range(len(Verdict))


def key_type(pipeline: Pipeline) -> str:
    """The join key's type in Spark: an int, or the canonical bytes of any other."""
    return "bigint" if pipeline.key_type is KeyType.INT else "binary"


def counted(
    pipeline: Pipeline, as_of_ms: int, half_life_s: float, batches: Batches
) -> Iterator[pa.RecordBatch]:
    """Count source records by key and hour, into rows of COUNTS."""
    schema = _schema(
        pipeline,
        hour=pa.int32(),
        events=pa.int64(),
        weight=pa.float64(),
        bytes=pa.int64(),
        began=pa.int64(),
    )
    for keys, times, size in _decoded(pipeline, batches):
        found = count(keys, times, as_of_ms, half_life_s)
        in_first = np.arange(len(found)) == 0
        yield _batch(
            schema,
            _key_column(found.keys, pipeline),
            found.hours.astype(np.int32),
            found.events,
            found.weights,
            np.where(in_first, size, 0),
            np.where(in_first, times.min(), times.max()),
        )


def hourly(pipeline: Pipeline, batches: Batches) -> Iterator[pa.RecordBatch]:
    """Each good event's key, and the hour since 1970 in which it came."""
    schema = _schema(pipeline, hour=pa.int64())
    for keys, times, _ in _decoded(pipeline, batches):
        yield _batch(schema, _key_column(keys, pipeline), times // HOUR_MS)


def judged(
    pipeline: Pipeline, terms: Terms, watched_s: float, batches: Batches
) -> Iterator[pa.RecordBatch]:
    """Rank keys by their weight, rows and bytes of rows."""
    schema = _schema(
        pipeline,
        slot=pa.int32(),
        rate=pa.float64(),
        rows=pa.int64(),
        row_bytes=pa.int64(),
        blocks=pa.int64(),
        events=pa.float64(),
        worth=pa.float64(),
        fits=pa.bool_(),
        pays=pa.bool_(),
    )
    mapper = Mapper(pipeline.slots, int_key=pipeline.key_type is KeyType.INT)
    for batch in batches:
        keys = keys_in(batch.column("key"))
        rates = _numbers(batch, "weight", np.float64) / watched_s
        rows, row_bytes = (_numbers(batch, name, np.int64) for name in ("rows", "row_bytes"))
        found = rank(rates, rows, row_bytes, np.diff(keys.texts.bounds), terms)
        yield _batch(
            schema,
            batch.column("key"),
            mapper.slots(keys),
            rates,
            rows,
            row_bytes,
            found.blocks,
            found.events,
            found.worth,
            found.fits,
            found.pays,
        )


def cut(slots: int, slot_blocks: int, batches: Batches) -> Iterator[pa.RecordBatch]:
    """Decide on ranked keys, which come candidates first and the most worthwhile first."""
    knife = Cut(slots, slot_blocks)
    for batch in batches:
        fits, pays, slot, blocks = (
            _numbers(batch, name, kind)
            for name, kind in (
                ("fits", np.bool_),
                ("pays", np.bool_),
                ("slot", np.int32),
                ("blocks", np.int64),
            )
        )
        verdicts = np.where(fits, _INEQUALITY, _TOO_LARGE)
        places = np.flatnonzero(fits & pays)
        chosen = knife.take(slot[places], blocks[places])
        verdicts[places] = np.where(chosen, _CHOSEN, _BUDGET)
        kept = batch.select(["key", "slot", "rate", "rows", "blocks", "events", "worth"])
        yield kept.append_column("verdict", _VERDICTS.take(pa.array(verdicts)))


def keys_in(column: pa.Array) -> JoinKeys:
    """The join keys in a column of Spark's: ints, or canonical bytes."""
    if pa.types.is_integer(column.type):
        return JoinKeys.of_ints(np.array(column, np.int64))
    values = column.cast(pa.large_binary())
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    # Copies: Arrow's memory is read-only, and kernels want it writable (columns.py).
    _, bounds, data = values.buffers()
    numbers = np.frombuffer(bounds, np.int64)[values.offset : values.offset + len(values) + 1]
    first, end = (int(numbers[0]), int(numbers[-1])) if len(numbers) else (0, 0)
    texts = Column(
        np.frombuffer(data or b"", np.uint8)[first:end].copy(),
        numbers - first if len(numbers) else np.zeros(1, np.int64),
    )
    return JoinKeys(hash_text_many(texts.data, texts.bounds), texts)


def _decoded(pipeline: Pipeline, batches: Batches) -> Iterator[tuple[JoinKeys, Ints, int]]:
    """The good events of each batch: their keys, their times in ms, and their bytes in all."""
    decoder = decoder_of(pipeline.source, schema_of(pipeline))
    for batch in batches:
        records = records_of(batch)
        if not len(records):
            continue
        decoded = decoder.decode(records.data, records.bounds, records.tombstones)
        good = np.flatnonzero(decoded.valid)
        if not len(good):
            continue
        times = records.timestamps[good]
        if decoded.times is not None:
            own = decoded.times[good]
            times = np.where(own == NO_TIME, times, own)
        size = int((decoded.end[good] - decoded.start[good]).sum())
        yield decoded.join_keys(good), times, size


def _key_column(keys: JoinKeys, pipeline: Pipeline) -> pa.Array:
    if pipeline.key_type is KeyType.INT:
        return pa.array(keys.values)
    texts = keys.texts
    return pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(texts), [None, pa.py_buffer(texts.bounds), pa.py_buffer(texts.data)]
    ).cast(pa.binary())


def _schema(pipeline: Pipeline, **columns: pa.DataType) -> pa.Schema:
    key = pa.int64() if pipeline.key_type is KeyType.INT else pa.binary()
    return pa.schema([("key", key), *columns.items()])


def _batch(schema: pa.Schema, *columns: Any) -> pa.RecordBatch:
    arrays = [
        column if isinstance(column, pa.Array) else pa.array(column, kind)
        for column, kind in zip(columns, schema.types, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _numbers(batch: pa.RecordBatch, name: str, kind: Any) -> Any:
    """A column without nulls, writable."""
    return np.array(batch.column(name).to_numpy(zero_copy_only=False), kind)
