"""One contender of `python -m bench.spark`, in its own process: its batches as JSON, a line each.

enrich    the pipeline as it is run by `dovetail spark enrich`
default   Spark's own stream-static join of the same events and rows, as one writes it down
tuned     the same by hand: each batch is broadcast and R, read by its needed columns, probes it
cached    that with R in Spark's own columnar cache, for who has the memory

One Spark runs a query for each size of batch, one after the other.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as sf

from bench.spark_data import COLUMNS
from dovetail.pipeline.load import load_pipeline
from dovetail.stream.topics import ensure_topics
from dovetail.topology import Topology
from services.spark.enrich import Enrichment
from services.spark.session import spark_session
from services.spark.settings import SparkSettings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from dovetail.pipeline.spec import Pipeline

EVENT = (
    "sale_id bigint, product_id bigint, customer_id bigint, quantity bigint, amount double,"
    " channel string, sold_at string"
)


@dataclass(frozen=True)
class Heat:
    """One query's part of the contest."""

    size: int
    """Events a batch."""
    counted: int
    """Whole batches behind the warming."""
    warm_s: float
    """Behind the first batch."""


Notes = list[dict[str, Any]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("contender", choices=["enrich", "default", "tuned", "cached"])
    parser.add_argument("pipeline", type=Path)
    parser.add_argument("parquet", type=Path)
    parser.add_argument("--heats", nargs="+", required=True, help="SIZE:BATCHES that count")
    parser.add_argument("--warm", type=float, required=True, help="seconds behind a first batch")
    parser.add_argument("--events", type=int, required=True, help="of the source")
    args = parser.parse_args()
    settings = SparkSettings.from_environment()
    pipeline = load_pipeline(args.pipeline, {})
    ours = args.contender == "enrich"
    spark = spark_session(settings, f"bench {args.contender}", pipeline if ours else None)
    ensure_topics(settings, Topology(pipeline).topics())
    if ours:
        begin = partial(_enrich, settings, pipeline, spark)
    else:
        begin = partial(_joined, settings, pipeline, spark, _join_of(args, spark))
    unread = args.events
    for text in args.heats:
        size, counted = map(int, text.split(":"))
        with begin(size) as (query, notes):
            told = _watched(query, Heat(size, counted, args.warm), unread)
        for number, one in enumerate(told):
            more = notes[number] if number < len(notes) else {}
            print(json.dumps({"batch": size, **one, **more}), flush=True)
        if ours:  # goes on where it was; the others begin anew
            unread -= sum(one["rows"] for one in told)
    spark.stop()
    return 0


@contextmanager
def _enrich(
    settings: SparkSettings, pipeline: Pipeline, spark: SparkSession, size: int
) -> Iterator[tuple[StreamingQuery, Notes]]:
    notes: Notes = []

    def note(reports: list[Any], seconds: float, _: Mapping[str, float]) -> None:
        counts = sum((report.counts for report in reports), start=type(reports[0].counts)())
        notes.append(
            {
                "hits": counts["hits"],
                "outputs": counts["outputs"],
                "held": sum(report.held_bytes for report in reports),
                "nodes": [round(report.seconds, 3) for report in reports],
                "work": round(seconds, 3),
                "algorithms": [report.algorithm for report in reports],
            }
        )
        print(notes[-1], file=sys.stderr, flush=True)

    application = Enrichment(settings, pipeline, spark, note, size)
    application.start()
    assert application._query is not None  # noqa: SLF001 - its progress is what is measured
    yield application._query, notes  # noqa: SLF001
    application.stop()


@contextmanager
def _joined(
    settings: SparkSettings, pipeline: Pipeline, spark: SparkSession, join: Any, size: int
) -> Iterator[tuple[StreamingQuery, Notes]]:
    topology = Topology(pipeline)
    stream = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", settings.bootstrap)
        .option("subscribe", topology.source.name)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", size)
        .load()
    )
    query = join(stream, settings.bootstrap, topology.enriched.name)
    yield query, []
    query.stop()


def _join_of(args: argparse.Namespace, spark: SparkSession) -> Any:
    master = spark.read.parquet(str(args.parquet)).select("product_id", *COLUMNS)
    if args.contender == "default":
        spark.conf.set("spark.sql.shuffle.partitions", "200")
        return partial(_default, master)
    if args.contender == "cached":
        master.cache().count()
    return partial(_tuned, master)


def _events(stream: DataFrame) -> DataFrame:
    return stream.select(sf.from_json(sf.col("value").cast("string"), EVENT).alias("e")).select(
        "e.*"
    )


def _output(joined: DataFrame) -> DataFrame:
    return joined.select(sf.to_json(sf.struct("*")).alias("value"))


def _default(master: DataFrame, stream: DataFrame, bootstrap: str, sink: str) -> StreamingQuery:
    joined = _events(stream).join(master, "product_id")
    return (
        _output(joined)
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", sink)
        .option("checkpointLocation", tempfile.mkdtemp(prefix="bench-spark-"))
        .start()
    )


def _tuned(master: DataFrame, stream: DataFrame, bootstrap: str, sink: str) -> StreamingQuery:
    def work(batch: DataFrame, _: int) -> None:
        events = _events(batch)
        (
            _output(master.join(sf.broadcast(events), "product_id"))
            .write.format("kafka")
            .option("kafka.bootstrap.servers", bootstrap)
            .option("topic", sink)
            .save()
        )

    return (
        stream.writeStream.foreachBatch(work)
        .option("checkpointLocation", tempfile.mkdtemp(prefix="bench-spark-"))
        .start()
    )


def _watched(query: StreamingQuery, heat: Heat, unread: int) -> list[dict[str, Any]]:
    """All whole batches, once as many as count were run warm or the source is at its end."""
    while True:
        told = [one for one in _progress(query) if one["rows"] > 0.9 * heat.size]
        warm = [one for one in told if one["at"] > told[0]["at"] + told[0]["seconds"] + heat.warm_s]
        left = unread - sum(one["rows"] for one in told)
        if len(warm) >= heat.counted or left < heat.size:
            return told
        if query.exception() is not None:
            raise query.exception()  # type: ignore[misc]
        time.sleep(0.1)


def _progress(query: StreamingQuery) -> list[dict[str, Any]]:
    """When each batch began, its rows and its seconds, as Spark itself tells them."""
    return [
        {
            "at": datetime.fromisoformat(one["timestamp"]).timestamp(),
            "rows": one["numInputRows"],
            "seconds": one["durationMs"]["triggerExecution"] / 1000,
        }
        for one in query.recentProgress
        if one["numInputRows"]
    ]


if __name__ == "__main__":
    sys.exit(main())
