"""Which events a run counts: those of the source topic since the last one, and of an archive.

The topic is the users' own, read as ingest reads it, so that no stage has to keep what it has
passed on. From the committed end of each partition, taken once, the next run goes on.

An archive is a folder of Parquet files with the source's records: `value`, and `timestamp` where
no field of the event tells its time. A file is counted once, by its name. Where its records have
their `partition` and `offset` too, those that were counted from the topic are left out; without
them an archive must not hold what the topic still has.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException
from pyspark.sql import functions as sf

from dovetail.errors import ConfigError
from dovetail.stream.topics import admin_of, beginnings, ends
from services.spark.enrich_decode import SOURCE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from dovetail.pipeline.spec import Pipeline
    from dovetail.settings import Settings
    from dovetail.topology import Topic
    from services.spark.frequency_state import Counts


@dataclass(frozen=True, slots=True)
class Span:
    """The offsets of one partition to be counted now."""

    start: int
    end: int
    lost: int = 0
    """Records before the start that the broker has deleted uncounted."""


@dataclass(frozen=True, slots=True)
class NewEvents:
    spans: dict[int, Span]
    archived: list[str] = field(default_factory=list)
    """Files of the archive that were not counted yet."""

    @property
    def records(self) -> int:
        """In the topic, transaction markers included."""
        return sum(span.end - span.start for span in self.spans.values())

    @property
    def lost(self) -> int:
        return sum(span.lost for span in self.spans.values())

    def __bool__(self) -> bool:
        return bool(self.records or self.archived)


def new_events(settings: Settings, topic: Topic, counts: Counts) -> NewEvents:
    """What the topic holds beyond what is counted."""
    admin = admin_of(settings)
    reached = counts.reached if counts.topic == topic.name else {}
    spans = {}
    for number, (begin, end) in enumerate(
        zip(beginnings(admin, topic), ends(admin, topic), strict=True)
    ):
        known = reached.get(str(number))
        if known is None or known > end:  # a new partition, or a topic that was made anew
            spans[number] = Span(begin, end)
        else:
            start = max(known, begin)
            spans[number] = Span(start, end, start - known)
    return NewEvents(spans)


def records(
    spark: SparkSession,
    kafka: dict[str, str],
    topic: Topic,
    new: NewEvents,
) -> DataFrame | None:
    """The topic's new records, in the columns of SOURCE; None if there are none."""
    if not new.records:
        return None
    spans = new.spans.items()
    frame = (
        spark.read.format("kafka")
        .options(**kafka)
        .option("kafka.isolation.level", "read_committed")
        .option("assign", json.dumps({topic.name: list(new.spans)}))
        .option("startingOffsets", json.dumps({topic.name: {n: span.start for n, span in spans}}))
        .option("endingOffsets", json.dumps({topic.name: {n: span.end for n, span in spans}}))
        .load()
    )
    return frame.selectExpr(*SOURCE)


def archive(spark: SparkSession, path: str, counts: Counts) -> tuple[DataFrame, list[str]]:
    """The archive's records, in the columns of SOURCE, and its files; neither counted before."""
    try:
        frame = spark.read.parquet(path)
    except AnalysisException as error:
        raise ConfigError(
            f"the archive {path} cannot be read: name a folder of Parquet files with the source's "
            f"records ({str(error).splitlines()[0]})"
        ) from error
    known = set(counts.archived)
    files = [file for file in frame.inputFiles() if file not in known]
    if not files:
        return frame.limit(0), []
    return spark.read.parquet(*files), files


def shaped(frame: DataFrame, pipeline: Pipeline, first: dict[str, int]) -> DataFrame:
    """An archive's records in the columns of SOURCE, without those counted from the topic."""
    columns = set(frame.columns)
    if "value" not in columns:
        raise ConfigError(
            "the archive has no column `value` with the events' bytes: write the source's records"
        )
    if "timestamp" not in columns and pipeline.source.event_time is None:
        raise ConfigError(
            "the archive has no column `timestamp`, and no field of the events tells their time: "
            "write the records' timestamps, or name the field, source.event_time"
        )
    if {"partition", "offset"} <= columns:
        counted = sf.lit(False)
        for number, offset in first.items():
            counted |= (sf.col("partition") == int(number)) & (sf.col("offset") >= offset)
        frame = frame.where(~counted)
    else:
        frame = frame.withColumns({"partition": sf.lit(0), "offset": sf.lit(0)})
    if "timestamp" not in columns:
        frame = frame.withColumn("timestamp", sf.timestamp_millis(sf.lit(0)))
    kinds = {"value": "binary", "partition": "int", "offset": "bigint", "timestamp": "timestamp"}
    cast = [sf.col(name).cast(kind).alias(name) for name, kind in kinds.items()]
    return frame.select(*cast).selectExpr(*SOURCE)
