"""The map side of `backfill`: a portion's messages in, batches of events for slots out.

The events have been through ingest: they are good, JSON, and trimmed. So only their keys are read,
and their identities, which stand in the header `origin`. What names no event of the source is
somebody else's message: it is passed over and counted.
"""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from dovetail.errors import ConfigError
from dovetail.join.columns import Column
from dovetail.join.mapper import Mapper, groups
from dovetail.node.step import TOO_LARGE
from dovetail.pipeline.spec import KeyType
from dovetail.stream.batch import PIECE_BYTES, EventBatch
from dovetail.stream.events.decode import JsonDecoder
from dovetail.stream.events.reasons import Reason
from dovetail.stream.late import inputs_of
from dovetail.stream.onward import key_schema
from services.spark.enrich_decode import records_of
from services.spark.kafka import kafka_options

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

    from dovetail.join.columns import JoinKeys, SmallInts
    from dovetail.pipeline.spec import Pipeline
    from dovetail.settings import Settings
    from dovetail.topology import Topology
    from services.spark.backfill_portions import Portion

SCHEMA = pa.schema(
    [
        ("node", pa.int32()),
        ("slot", pa.int32()),
        ("input", pa.int32()),
        ("strange", pa.int64()),
        ("payload", pa.binary()),
    ]
)
_TYPES = SCHEMA.types
SPARK_SCHEMA = "node int, slot int, input int, strange long, payload binary"
NOTHING = -1
"""The slot of a row that has no events."""


def batches(
    spark: SparkSession, settings: Settings, topology: Topology, portion: Portion
) -> DataFrame:
    """A portion's events as batches by slot; and a row for each node, so that none is left out."""
    pipeline = topology.pipeline
    ticks = spark.range(pipeline.nodes).selectExpr(
        "CAST(id AS int) AS node",
        f"{NOTHING} AS slot",
        "0 AS input",
        "0L AS strange",
        "CAST(NULL AS binary) AS payload",
    )
    return (
        _messages(spark, settings, topology, portion)
        .mapInArrow(partial(decode, pipeline), SPARK_SCHEMA)
        .union(ticks)
    )


def _messages(
    spark: SparkSession, settings: Settings, topology: Topology, portion: Portion
) -> DataFrame:
    topics = inputs_of(topology)
    named = {topics[n].name: span for n, span in enumerate(portion.spans) if len(span)}
    names = ", ".join(f"'{topic.name}'" for topic in topics)
    return (
        spark.read.format("kafka")
        .options(**kafka_options(settings))
        .option("kafka.isolation.level", "read_committed")
        .option("includeHeaders", "true")
        .option("minPartitions", spark.sparkContext.defaultParallelism)
        .option("assign", json.dumps({name: [0] for name in named}))
        .option("startingOffsets", json.dumps({n: {"0": s.start} for n, s in named.items()}))
        .option("endingOffsets", json.dumps({n: {"0": s.end} for n, s in named.items()}))
        .load()
        # What the sink did not take it does not take from here: it stays parked.
        .where(
            "NOT (CAST(get(filter(headers, h -> h.key = 'reason'), 0).value AS string) <=> "
            f"'{TOO_LARGE.decode()}')"
        )
        .selectExpr(
            "value",
            f"CAST(array_position(array({names}), topic) - 1 AS int) AS input",
            "unix_millis(timestamp) AS timestamp",
            "split(CAST(get(filter(headers, h -> h.key = 'origin'), 0).value AS string), '/')"
            " AS origin",
        )
        .selectExpr(
            "value",
            "input",
            "timestamp",
            f"value IS NOT NULL AND get(origin, 0) <=> '{topology.source.name}'"
            " AND try_cast(get(origin, 1) AS int) >= 0"
            " AND try_cast(get(origin, 2) AS bigint) >= 0 AS ours",
            "coalesce(try_cast(get(origin, 1) AS int), 0) AS partition",
            "coalesce(try_cast(get(origin, 2) AS bigint), 0L) AS offset",
        )
    )


def decode(pipeline: Pipeline, parts: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Sort the messages of one task by input and slot."""
    reader = KeyReader(pipeline)
    for part in parts:
        ours = part.column("ours").fill_null(False)
        good = part.filter(ours)
        rows: list[tuple[Any, ...]] = [(0, NOTHING, 0, len(part) - len(good), None)]
        if len(good):
            records, inputs = records_of(good), good.column("input").to_numpy()
            events = Column(records.data, records.bounds)
            keys = reader.keys(events)
            slots = reader.slots(keys)
            for number, places in groups((inputs * pipeline.slots + slots).astype(np.int32)):
                of, slot = divmod(number, pipeline.slots)
                batch = EventBatch(
                    keys.take(places),
                    events.take(places),
                    records.partitions[places],
                    records.offsets[places],
                    records.timestamps[places],
                )
                for piece in batch.pieces(PIECE_BYTES):
                    message = piece.to_message(pipeline.name, slot)
                    rows.append((slot % pipeline.nodes, slot, of, 0, message))
        columns = zip(*rows, strict=True)
        arrays = (pa.array(column, kind) for column, kind in zip(columns, _TYPES, strict=True))
        yield pa.RecordBatch.from_arrays(list(arrays), schema=SCHEMA)


class KeyReader:
    """Reads the join keys of events that were found to be good before."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._decoder = JsonDecoder(key_schema(pipeline), with_details=False)
        self._mapper = Mapper(pipeline.slots, int_key=pipeline.key_type is KeyType.INT)

    def keys(self, events: Column) -> JoinKeys:
        decoded = self._decoder.decode(events.data, events.bounds, np.zeros(len(events), np.bool_))
        unfit = np.flatnonzero(~decoded.valid)
        if len(unfit):
            first = int(unfit[0])
            raise ConfigError(
                f"{len(unfit)} events were set aside with other fields or another key than the "
                f"pipeline has now ({Reason(decoded.reasons[first]).label}): complete them with "
                f"the file that {self._pipeline.name} had then. The first of them: "
                f"{events[first][:500].decode(errors='replace')}"
            )
        return decoded.join_keys(np.arange(len(events)))

    def slots(self, keys: JoinKeys) -> SmallInts:
        return self._mapper.slots(keys)
