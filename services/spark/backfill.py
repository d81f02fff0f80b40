"""Completes in batch what was shed, unmatched or parked: `dovetail spark backfill`.

    shed, unmatched, parked, still-unmatched ─► by slot to its node ─► join ─┬─► enriched (late)
                                                                             ├─► unmatched
                                                                             └─► still-unmatched

A run looks once at everything that its inputs have when it begins, in portions. A node's part of
a portion is one transaction with the positions and counts of its slots (backfill_commit.py): a run
that is killed at any moment has done some portions, or some nodes' parts, and the next goes on.
"""

from __future__ import annotations

import logging
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException, TopicPartition

from dovetail.errors import ConfigError, Unavailable
from dovetail.master.snapshot.current import CurrentSnapshot
from dovetail.pipeline.check import require_master
from dovetail.stream import late as inputs
from dovetail.stream import ledger
from dovetail.stream.acls import settle_topics
from dovetail.stream.topics import admin_of
from dovetail.topology import BACKFILL, Topology
from services.spark import backfill_node
from services.spark.backfill_commit import take_over
from services.spark.backfill_join import STILL
from services.spark.backfill_node import STRANGE, Job, Report
from services.spark.backfill_portions import work_of
from services.spark.backfill_source import batches
from services.spark.progress import progress
from services.spark.relation import relation_of

if TYPE_CHECKING:
    import argparse

    from confluent_kafka.admin import AdminClient
    from pyspark.sql import SparkSession

    from dovetail.pipeline.spec import Pipeline
    from dovetail.settings import Settings
    from services.spark.runs import Run
    from services.spark.settings import SparkSettings

log = logging.getLogger(__name__)

_PORTION = 200_000
FIGURES = {
    ledger.LATE: "completed",
    ledger.OUTPUTS: "outputs",
    ledger.of(ledger.SHED): "of_shed",
    ledger.of(ledger.UNMATCHED): "of_unmatched",
    ledger.of(ledger.PARKED): "of_parked",
    ledger.UNMATCHED: "newly_unmatched",
    STILL: "still_unmatched",
    STRANGE: "strange_messages",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--portion",
        type=int,
        default=_PORTION,
        help="messages of each topic that are completed in one transaction a node (%(default)s)",
    )


def run(
    settings: SparkSettings,
    pipeline: Pipeline,
    spark: SparkSession,
    run: Run,
    args: argparse.Namespace,
) -> None:
    require_completable(settings, pipeline)
    if args.portion < 1:
        raise ConfigError(f"--portion {args.portion} is nothing: write 1 or more")
    backfill(settings, pipeline, spark, run, args.portion)


def require_completable(settings: Settings, pipeline: Pipeline) -> None:
    """Raise unless the pipeline is one whose events can be completed, and its R can be read."""
    if pipeline.links > 1:
        raise ConfigError(
            f"{pipeline.name} is a chain of {pipeline.links} tables (then), and backfill completes "
            f"events of one table. Correct the master data and send the events of "
            f"{pipeline.name}.unmatched and {pipeline.name}.parked to the source once more, or "
            f"make each table a pipeline of its own"
        )
    relation = relation_of(settings, pipeline)
    try:
        if not isinstance(relation, CurrentSnapshot):
            require_master(pipeline, settings.database_url)
        elif missing := relation.waiting_for():
            raise ConfigError(missing)
    finally:
        relation.close()


def backfill(
    settings: Settings,
    pipeline: Pipeline,
    spark: SparkSession,
    run: Run,
    most: int = _PORTION,
) -> Counter[str]:
    """Complete what there is by now, in portions of so many messages of each input."""
    topology = Topology(pipeline)
    admin = admin_of(settings)
    settle_topics(settings, topology, BACKFILL)
    late = take_over(settings, topology)
    work = work_of(admin, topology, late)
    if work.lost:
        log.error(
            "up to %s messages were deleted before they were looked at: keep the topics longer "
            "(retention.ms), or run backfill more often",
            f"{work.lost:,}",
        )
    counts: Counter[str] = Counter()
    looked = 0
    _tell(run, counts, looked, work.lost)
    what = f"looking at {len(work):,} messages that were shed, unmatched or parked"
    with progress(spark.sparkContext, run, what):
        for portion in work.portions(most):
            run.require()
            job = Job(settings, pipeline, late.run, portion)
            counts += backfill_node.finish(job, partial(_once, spark))
            looked += len(portion)
            _tell(run, counts, looked, work.lost)
    _purge(admin, topology, work.ends[inputs.STILL_UNMATCHED])
    return counts


def _once(spark: SparkSession, job: Job) -> list[Report]:
    """Run a portion; a node that has done its part has nothing to do."""
    nodes = job.pipeline.nodes
    rows = (
        batches(spark, job.settings, Topology(job.pipeline), job.portion)
        .repartitionById(nodes, "node")
        .mapInArrow(partial(backfill_node.complete, job), backfill_node.SCHEMA)
        .collect()
    )
    return [backfill_node.report_of(row.report) for row in rows]


def _tell(run: Run, counts: Counter[str], looked: int, lost: int) -> None:
    run.figure("messages", looked)
    run.figure("lost_messages", lost)
    for name, figure in FIGURES.items():
        run.figure(figure, counts[name])


def _purge(admin: AdminClient, topology: Topology, end: int) -> None:
    """Delete what was written anew, or is completed."""
    if not end:
        return
    at = TopicPartition(topology.still_unmatched.name, 0, end)
    for deletion in admin.delete_records([at]).values():
        try:
            deletion.result()
        except KafkaException as error:
            raise Unavailable(f"{at.topic} cannot be purged: {error}") from error
