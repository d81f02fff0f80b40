"""`frequency`: how often each key comes, and the cache plan that follows from it.

    1  count the events since the last run, and merge (frequency_counts.py, frequency_state.py)
    2  rank keys by what their entries would answer a byte, and cut at the caches' budget (plan.py)
    3  store the plan with its reasons (plan_tables.py)
    4  send what the caches lack as migrations (plan_sending.py)

Each step stands by itself: a run that ends after any of them has done that one, and the next run
goes on from there. A plan that was sent twice is the same plan.
"""

from __future__ import annotations

import argparse
import os
import time
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from deploy.local.home import Home
from dovetail.pipeline.duration import parse_duration
from dovetail.plan.recency import HOURS, hours_of_week
from dovetail.plan.room import slot_share
from dovetail.topology import Topology
from services.cache_phase.settings import budget
from services.spark.frequency_counts import Limits, Merge, pairs
from services.spark.frequency_source import archive, new_events, records, shaped
from services.spark.frequency_state import States, keep_only
from services.spark.kafka import kafka_options
from services.spark.plan import chosen, has_cache, listed, make_plan, purpose_of
from services.spark.plan_sending import Sending
from services.spark.plan_sizes import master_sizes
from services.spark.plan_tables import PlanTables
from services.spark.progress import progress
from services.spark.runs import control_engine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

    from dovetail.pipeline.spec import Pipeline
    from services.spark.frequency_source import NewEvents
    from services.spark.frequency_state import Version
    from services.spark.plan import Plan
    from services.spark.plan_sending import Sent
    from services.spark.runs import Run
    from services.spark.settings import SparkSettings

NEXT = "next"
PAIRS = 50_000_000
TRACKED = 49_152
"""Three quarters of a power of two, as a sketch's table is full then."""
_BATCH = 50_000
"""Events that are counted at a time: the more, the fewer rows travel."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--hour",
        type=_hour,
        help=f"plan for an hour of the week: 0 (Monday 00:00 UTC) to {HOURS - 1}, or {NEXT}",
    )
    parser.add_argument(
        "--half-life",
        type=_duration,
        default=7 * 86400.0,
        help="after so long an event counts half (7d)",
    )
    parser.add_argument(
        "--horizon", type=_duration, help="expected events are those of so long (by the algorithm)"
    )
    parser.add_argument("--archive", help="also count the Parquet files in this folder, once each")
    parser.add_argument(
        "--state", help="where counts are kept, reachable by every worker (DOVETAIL_FREQUENCIES)"
    )
    parser.add_argument(
        "--pairs",
        type=int,
        default=PAIRS,
        help=f"keys × hours of the week that are counted exactly ({PAIRS:,}); beyond: sketches",
    )
    parser.add_argument(
        "--tracked", type=int, default=TRACKED, help=f"keys that an hour's sketch has ({TRACKED:,})"
    )
    parser.add_argument("--no-plan", action="store_true", help="count only")
    parser.add_argument("--no-send", action="store_true", help="make the plan and do not send it")
    parser.add_argument(
        "--all", action="store_true", help="also send keys that the caches have already"
    )


def run(
    settings: SparkSettings,
    pipeline: Pipeline,
    spark: SparkSession,
    run: Run,
    args: argparse.Namespace,
) -> None:
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", _BATCH)
    engine = control_engine(settings.control_database)
    folder = _folder(args)
    states = States(engine, spark, pipeline.name, folder)
    states.clean()
    with _timed(run, "count_s"):
        version = count(settings, pipeline, spark, run, args, states)
    if args.no_plan:
        return
    if not version.counts.events:
        print("no good event so far: nothing is planned", flush=True)
        return
    if not has_cache(pipeline):
        print(f"{pipeline.algorithm} has no cache: nothing is planned", flush=True)
        return
    tables = PlanTables(engine, pipeline.name)
    tables.create()
    plans = f"{folder}/{pipeline.name}/plans"
    with _timed(run, "plan_s"):
        plan = _plan(settings, pipeline, spark, run, args, version, f"{plans}/{run.id}")
        run.require()
        number = tables.add(run.id, plan.facts, listed(spark, pipeline, plan))
    keep_only(spark, plans, {str(run.id)})
    run.figure("plan", number)
    if args.no_send:
        return
    with _timed(run, "send_s"):
        sent = _send(settings, pipeline, spark, run, plan, everything=args.all)
    tables.note_sent(number, sent.keys)
    run.figure("sent_keys", sent.keys)
    run.figure("evicted_keys", sent.evicted)


def count(
    settings: SparkSettings,
    pipeline: Pipeline,
    spark: SparkSession,
    run: Run,
    args: argparse.Namespace,
    states: States,
) -> Version:
    """Count what is new; give the version that has it, which is the last one if nothing is."""
    topic = Topology(pipeline).source
    before = states.latest()
    if before.counts.topic not in ("", topic.name):  # another topic's offsets mean nothing here
        before = replace(before, counts=replace(before.counts, first={}, reached={}))
    new = new_events(settings, topic, before.counts)
    first = {str(number): span.start for number, span in new.spans.items()} | before.counts.first
    frames: list[DataFrame] = []
    from_topic = records(spark, kafka_options(settings), topic, new)
    if from_topic is not None:
        frames.append(from_topic)
    if args.archive:
        archived, files = archive(spark, args.archive, before.counts)
        if files:
            frames.append(shaped(archived, pipeline, first))
            new = replace(new, archived=files)
    run.figure("new_records", new.records)
    run.figure("lost_records", new.lost)
    if not new:
        return before
    folder = states.new_folder()
    merge = Merge(spark, pipeline, args.half_life, Limits(args.pairs, args.tracked))
    with progress(spark.sparkContext, run, _told(new)):
        made = merge.write(before, frames, time.time_ns() // 1_000_000, folder)
    run.require()
    counts = replace(
        made,
        topic=topic.name,
        first=first,
        reached={str(number): span.end for number, span in new.spans.items()},
        archived=[*before.counts.archived, *new.archived],
    )
    version = states.add(before, folder, counts, run.id)
    run.figure("version", version.number)
    run.figure("events", counts.events)
    run.figure("pairs", counts.pairs)
    run.figure("error", counts.error)
    return version


def _plan(
    settings: SparkSettings,
    pipeline: Pipeline,
    spark: SparkSession,
    run: Run,
    args: argparse.Namespace,
    version: Version,
    folder: str,
) -> Plan:
    purpose = purpose_of(settings, pipeline, version, args.half_life, args.hour, args.horizon)
    counts = pairs(spark, pipeline, version, args.half_life)
    what = f"ranking the keys of {version.counts.events:,} events"
    with (
        progress(spark.sparkContext, run, what),
        master_sizes(spark, settings.database_url, pipeline) as sizes,
    ):
        plan = make_plan(pipeline, counts, sizes, purpose, folder)
    plan.facts["counts"] = version.number
    plan.facts["error"] = version.counts.error
    run.figure("planned_keys", plan.keys)
    run.figure("expected_hit_rate", plan.facts["expected_hit_rate"])
    return plan


def _send(
    settings: SparkSettings,
    pipeline: Pipeline,
    spark: SparkSession,
    run: Run,
    plan: Plan,
    *,
    everything: bool,
) -> Sent:
    room = slot_share(budget(pipeline), pipeline.slots, pipeline.nodes)
    sending = Sending(settings, pipeline, Topology(pipeline), room)
    run.require()
    print(f"sending what caches lack of {plan.keys:,} keys", flush=True)
    return sending.send(chosen(spark, pipeline, plan), everything=everything)


@contextmanager
def _timed(run: Run, name: str) -> Iterator[None]:
    began = time.monotonic()
    yield
    run.figure(name, round(time.monotonic() - began, 3))


def _told(new: NewEvents) -> str:
    files = f" and {len(new.archived):,} files of the archive" if new.archived else ""
    lost = f"; {new.lost:,} were deleted by the broker before they were counted" if new.lost else ""
    return f"counting {new.records:,} new records of the source{files}{lost}"


def _folder(args: argparse.Namespace) -> str:
    given = args.state or os.environ.get("DOVETAIL_FREQUENCIES")
    return str(given or Home.of_checkout().data / "frequencies")


def _hour(text: str) -> int:
    if text == NEXT:
        now_ms = time.time_ns() // 1_000_000
        return int(hours_of_week(np.array([now_ms + 3_600_000]))[0])
    if text.isdecimal() and int(text) < HOURS:
        return int(text)
    raise argparse.ArgumentTypeError(
        f"{text!r} is no hour of a week: write 0 (Monday 00:00 UTC) to {HOURS - 1}, or {NEXT}"
    )


def _duration(text: str) -> float:
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if seconds <= 0:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no time at all: write 1h or another duration"
        )
    return seconds
