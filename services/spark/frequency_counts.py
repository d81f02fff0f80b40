"""Counts merged: what was counted before, faded to now, and the new events.

    counts/   key, hour of the week, events, weight      exact, up to a limit of pairs
    sketches/ hour since 1970, a sketch of its keys      what came after the limit was reached

As long as the pairs of a key and an hour of the week are no more than the limit, every event is
counted exactly. A run that would exceed it leaves the counts as they are, and from then on new
events go to sketches (Spark's approx_top_k), one for each hour. In each a key's count is off by at
most `Counts.error` of that hour's events, so in all by at most that of all sketched ones; a weight
also by the half hour in which its event may have come. A sketch that has faded for ten half-lives
is dropped.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from dovetail.pipeline.spec import KeyType
from dovetail.plan.recency import HOUR_MS, HOURS, fading
from services.spark.frequency_state import delete
from services.spark.frequency_worker import COUNTS, counted, hourly, key_type

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from dovetail.pipeline.spec import Pipeline
    from services.spark.frequency_state import Counts, Version

_FORGOTTEN = 10
"""Half-lives after which a sketch is dropped: a thousandth is left of it."""
_MONDAY = 72


@dataclass(frozen=True, slots=True)
class Limits:
    pairs: int
    """Pairs of a key and an hour of the week that are counted exactly."""
    tracked: int
    """Keys that the sketch of an hour tracks beyond that."""


class Merge:
    """Makes the next version's files out of the last one and records of new events."""

    def __init__(
        self, spark: SparkSession, pipeline: Pipeline, half_life_s: float, limits: Limits
    ) -> None:
        self._spark = spark
        self._pipeline = pipeline
        self._half_life_s = half_life_s
        self._limits = limits

    def write(
        self, before: Version, records: Sequence[DataFrame], as_of_ms: int, folder: str
    ) -> Counts:
        """Write everything that the new version needs; give what it covers of events."""
        if not before.counts.tracked:
            made = self._write_exact(before, records, as_of_ms, folder)
            if made.pairs <= self._limits.pairs:
                return made
            delete(self._spark, folder)
        return self._write_sketched(before, records, as_of_ms, folder)

    def _write_exact(
        self, before: Version, records: Sequence[DataFrame], as_of_ms: int, folder: str
    ) -> Counts:
        counts = self._counted(records, as_of_ms)
        if before.counts.pairs:
            counts = exact(self._spark, before, as_of_ms, self._half_life_s).unionByName(counts)
        counts.groupBy("key", "hour").agg(
            *(sf.sum(name).alias(name) for name in ("events", "weight", "bytes")),
            sf.min("began").alias("began"),
        ).write.parquet(f"{folder}/counts")
        pairs, events, size, began = _totals(self._spark.read.parquet(f"{folder}/counts"))
        return replace(
            before.counts,
            as_of_ms=as_of_ms,
            began_ms=began or as_of_ms,
            events=events,
            bytes=size,
            pairs=pairs,
        )

    def _write_sketched(
        self, before: Version, records: Sequence[DataFrame], as_of_ms: int, folder: str
    ) -> Counts:
        old, tracked = before.counts, before.counts.tracked or self._limits.tracked
        if old.pairs:
            kept = exact(self._spark, before, as_of_ms, self._half_life_s)
            kept.write.parquet(f"{folder}/counts")
        _, events, size, began = _totals(self._counted(records, as_of_ms))
        schema = f"key {key_type(self._pipeline)}, hour bigint"
        keyed = _union(
            [frame.mapInArrow(partial(hourly, self._pipeline), schema) for frame in records]
        )
        item = "key" if self._pipeline.key_type is KeyType.INT else "cast(key AS string)"
        sketches = keyed.groupBy("hour").agg(
            sf.expr(f"approx_top_k_accumulate({item}, {tracked})").alias("sketch")
        )
        if old.tracked:
            forgotten = as_of_ms - int(_FORGOTTEN * 1000 * self._half_life_s)
            remembered = self._spark.read.parquet(f"{before.folder}/sketches").where(
                sf.col("hour") >= forgotten // HOUR_MS
            )
            sketches = (
                remembered.unionByName(sketches)
                .groupBy("hour")
                .agg(sf.expr(f"approx_top_k_combine(sketch, {tracked})").alias("sketch"))
            )
        sketches.write.parquet(f"{folder}/sketches")
        return replace(
            old,
            as_of_ms=as_of_ms,
            began_ms=min(old.began_ms if old.events else as_of_ms, began or as_of_ms),
            events=old.events + events,
            bytes=old.bytes + size,
            sketched=old.sketched + events,
            tracked=tracked,
        )

    def _counted(self, records: Sequence[DataFrame], as_of_ms: int) -> DataFrame:
        schema = f"key {key_type(self._pipeline)}, {COUNTS}"
        work = partial(counted, self._pipeline, as_of_ms, self._half_life_s)
        return _union([frame.mapInArrow(work, schema) for frame in records])


def pairs(
    spark: SparkSession, pipeline: Pipeline, version: Version, half_life_s: float
) -> DataFrame:
    """`key`, `hour`, `events` and `weight` of a version, exact or estimated."""
    counts = version.counts
    parts = []
    if counts.pairs:
        found = exact(spark, version, counts.as_of_ms, half_life_s)
        parts.append(found.select("key", "hour", "events", "weight"))
    if counts.tracked:
        parts.append(_estimated(spark, pipeline, version, half_life_s))
    return _union(parts)


def exact(spark: SparkSession, version: Version, as_of_ms: int, half_life_s: float) -> DataFrame:
    """A version's exact counts, with weights as of a later moment."""
    faded = fading(version.counts.as_of_ms, as_of_ms, half_life_s)
    frame = spark.read.parquet(f"{version.folder}/counts")
    return frame.withColumn("weight", sf.col("weight") * faded)


def _estimated(
    spark: SparkSession, pipeline: Pipeline, version: Version, half_life_s: float
) -> DataFrame:
    counts = version.counts
    frame = spark.read.parquet(f"{version.folder}/sketches")
    each = frame.select("hour", sf.expr(f"inline(approx_top_k_estimate(sketch, {counts.tracked}))"))
    age_s = (sf.lit(counts.as_of_ms) - (sf.col("hour") + 0.5) * HOUR_MS) / 1000
    weight = sf.col("count") * sf.pow(sf.lit(0.5), sf.greatest(age_s, sf.lit(0.0)) / half_life_s)
    return each.select(
        sf.col("item").cast(key_type(pipeline)).alias("key"),
        ((sf.col("hour") + _MONDAY) % HOURS).cast("int").alias("hour"),
        sf.col("count").alias("events"),
        weight.alias("weight"),
    )


def _totals(counts: DataFrame) -> tuple[int, int, int, int | None]:
    """Rows of COUNTS, their events, the bytes of these, and when the first one came."""
    found = counts.agg(sf.count("*"), sf.sum("events"), sf.sum("bytes"), sf.min("began")).first()
    assert found is not None, "a total is one row"
    return found[0], found[1] or 0, found[2] or 0, found[3]


def _union(frames: Sequence[DataFrame]) -> DataFrame:
    return reduce(DataFrame.unionByName, frames)
