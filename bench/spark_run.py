"""One contender of `python -m bench.spark`, in its own process: its batches as JSON, a line each.

enrich    the pipeline as it is run by `dovetail spark enrich`
default   Spark's own stream-static join of the same events and rows, as one writes it down
tuned     the same by hand: each batch is broadcast and R, read by its needed columns, probes it
cached    that with R in Spark's own columnar cache, for who has the memory
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from datetime import datetime
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
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

EVENT = (
    "sale_id bigint, product_id bigint, customer_id bigint, quantity bigint, amount double,"
    " channel string, sold_at string"
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("contender", choices=["enrich", "default", "tuned", "cached"])
    parser.add_argument("pipeline", type=Path)
    parser.add_argument("parquet", type=Path)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--batches", type=int, required=True, help="whole ones that count")
    parser.add_argument("--warm", type=float, required=True, help="seconds behind the first batch")
    parser.add_argument("--events", type=int, required=True, help="of the source")
    args = parser.parse_args()
    settings = SparkSettings.from_environment()
    pipeline = load_pipeline(args.pipeline, {})
    warmed = pipeline if args.contender == "enrich" else None
    spark = spark_session(settings, f"bench {args.contender}", warmed)
    if args.contender == "default":
        spark.conf.set("spark.sql.shuffle.partitions", "200")
    topology = Topology(pipeline)
    ensure_topics(settings, topology.topics())
    if args.contender == "enrich":
        _enrich(settings, pipeline, spark, args)
        return 0
    stream = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", settings.bootstrap)
        .option("subscribe", topology.source.name)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", args.batch)
        .load()
    )
    master = spark.read.parquet(str(args.parquet)).select("product_id", *COLUMNS)
    if args.contender == "cached":
        master.cache().count()
    start = _default if args.contender == "default" else _tuned
    query = start(master, stream, settings.bootstrap, topology.enriched.name)
    _watch(query, args, [])
    query.stop()
    spark.stop()
    return 0


def _enrich(settings: SparkSettings, pipeline: Any, spark: SparkSession, args: Any) -> None:
    seen: list[dict[str, Any]] = []

    def note(reports: list[Any], seconds: float) -> None:
        counts = sum((report.counts for report in reports), start=type(reports[0].counts)())
        held = sum(report.held_bytes for report in reports)
        seen.append({"hits": counts["hits"], "outputs": counts["outputs"], "held": held})
        seen[-1]["nodes"] = [round(report.seconds, 3) for report in reports]
        seen[-1]["work"] = round(seconds, 3)
        seen[-1]["algorithms"] = [report.algorithm for report in reports]
        print(seen[-1], file=sys.stderr, flush=True)

    application = Enrichment(settings, pipeline, spark, note, args.batch)
    application.start()
    assert application._query is not None  # noqa: SLF001 - its progress is what is measured
    _watch(application._query, args, seen)  # noqa: SLF001
    application.stop()
    spark.stop()


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


def _watch(query: StreamingQuery, args: Any, seen: list[dict[str, Any]]) -> None:
    """Tell all whole batches, once as many as count were run warm or the source is at its end."""
    while True:
        told = [one for one in _progress(query) if one["rows"] > 0.9 * args.batch]
        warm = [one for one in told if one["at"] > told[0]["at"] + told[0]["seconds"] + args.warm]
        left = args.events - sum(one["rows"] for one in told)
        if len(warm) >= args.batches or left < args.batch:
            break
        if query.exception() is not None:
            raise query.exception()  # type: ignore[misc]
        time.sleep(0.1)
    for number, one in enumerate(told):
        more = seen[number] if number < len(seen) else {}
        print(json.dumps({**one, **more}), flush=True)


def _progress(query: StreamingQuery) -> list[dict[str, float]]:
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
