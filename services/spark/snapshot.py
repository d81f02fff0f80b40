"""snapshot: the master table as sorted files, split by slot, which every node reads instead.

    PostgreSQL ──JDBC, by blocks──► shuffle by slot ──► sort ──► a folder a slot ──► published

Slot, hash and the row's JSON are PostgreSQL's, as in every read of the services; the writer checks
slots, hashes and order with the kernels that the join uses. Nothing is seen before all of it is
there (dovetail/master/snapshot/versions.py): the job may be killed and started again at any time.
"""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from dovetail.errors import ConfigError
from dovetail.master.snapshot.split import slot_folder
from dovetail.master.snapshot.versions import Content, SlotFacts, Version, seal, versions_of
from dovetail.master.snapshot.writer import write_snapshot
from dovetail.pipeline.check import require_master
from services.spark.master import master_state
from services.spark.progress import progress
from services.spark.slot_writer import WRITTEN, SlotWriter

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from dovetail.master.snapshot.versions import Versions
    from dovetail.pipeline.spec import Pipeline
    from services.spark.master import MasterState
    from services.spark.runs import Run
    from services.spark.settings import SparkSettings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--to", type=Path, help="another folder than the pipeline's own")


def run(
    settings: SparkSettings,
    pipeline: Pipeline,
    spark: SparkSession,
    run: Run,
    args: argparse.Namespace,
) -> None:
    tables = [(number, pipeline.link(number)) for number in range(1, pipeline.links + 1)]
    wanted = [(number, link) for number, link in tables if args.to or link.master.snapshot]
    if not wanted:
        raise ConfigError(
            f"{pipeline.name} reads no snapshot: set master.snapshot to the folder of all "
            f"snapshots, or name one with --to"
        )
    for number, link in wanted:
        require_master(link, settings.database_url)
        versions = versions_of(args.to or link.master.snapshot or "", link.name, number)
        with master_state(settings.database_url, link) as state:
            _write(spark, link, state, versions, run)


def _write(
    spark: SparkSession, pipeline: Pipeline, state: MasterState, versions: Versions, run: Run
) -> None:
    content = Content.of(pipeline)
    with versions.next() as (number, folder):
        what = f"reading {content.table} into {content.slots} slots of {versions.folder}"
        with progress(spark.sparkContext, run, what):
            written = _write_slots(spark, state, content, folder)
        slots = _gather(folder, content, written)
        version = Version(
            pipeline=pipeline.name,
            version=number,
            written_at=datetime.now(UTC).isoformat(timespec="seconds"),
            database_snapshot=state.seen,
            content=content,
            rows=sum(slot.rows for slot in slots),
            slots=slots,
        )
        seal(folder, version)
        run.require()
    run.figure("version", version.version)
    run.figure("rows", version.rows)
    run.figure("bytes", sum(slot.size for slot in slots))


def _write_slots(
    spark: SparkSession, state: MasterState, content: Content, folder: Path
) -> dict[int, tuple[str, SlotFacts]]:
    rows = state.rows(spark)
    if content.columns is None:
        rows = rows.distinct()  # a key is there or not: once says it
    writer = SlotWriter(str(folder), content.key_type, content.slots, _schema(content))
    written = (
        rows.repartitionById(content.slots, rows["slot"])
        .sortWithinPartitions("slot", "value", "text")
        .mapInArrow(writer, WRITTEN)
        .collect()
    )
    return {row.slot: (row.name, msgspec.json.decode(row.facts, type=SlotFacts)) for row in written}


def _gather(
    folder: Path, content: Content, written: Mapping[int, tuple[str, SlotFacts]]
) -> list[SlotFacts]:
    """Give the slots' folders their names; a slot without rows gets an empty snapshot."""
    facts = []
    for slot in range(content.slots):
        named = slot_folder(folder, slot)
        if slot in written:
            (folder / written[slot][0]).rename(named)
            facts.append(written[slot][1])
        else:
            held = write_snapshot(
                named,
                [],
                key=content.key_type,
                slots=content.slots,
                slot=slot,
                schema=_schema(content),
            )
            facts.append(SlotFacts.of(named, held))
    for left in folder.glob("slot-*.*"):  # by a task that was run twice
        shutil.rmtree(left)
    return facts


def _schema(content: Content) -> str:
    names = content.columns or {}
    columns = ", ".join(f"{column} as {name}" for column, name in names.items())
    return f"{content.table} by {', '.join(content.key)}: {columns or 'keys alone'}"
