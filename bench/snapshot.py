"""A pipeline's snapshot of R, written without Spark: for a table that fits into memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import psycopg
from psycopg import sql

from dovetail.join.columns import Column, JoinKeys
from dovetail.join.entry import MasterRows
from dovetail.master.snapshot.split import fill_slots, slot_folder
from dovetail.master.snapshot.versions import Content, SlotFacts, Version, seal, versions_of
from dovetail.master.table.json_rows import JSON_SETTINGS, json_row

if TYPE_CHECKING:
    from dovetail.pipeline.spec import Pipeline

_AT_ONCE = 50_000


def write_snapshot_of(database_url: str, pipeline: Pipeline) -> None:
    """Publish R as it is now, by slot, where `pipeline` reads its snapshot."""
    content = Content.of(pipeline)
    assert content.key_type == "int"
    rows = _rows(database_url, pipeline)
    versions = versions_of(pipeline.master.snapshot or "", pipeline.name, 1)
    with versions.next() as (number, folder):
        held = fill_slots(folder, rows, content.slots, key=content.key_type)
        version = Version(
            pipeline=pipeline.name,
            version=number,
            written_at="",
            database_snapshot="",
            content=content,
            rows=len(rows),
            slots=[SlotFacts.of(slot_folder(folder, slot), one) for slot, one in enumerate(held)],
        )
        seal(folder, version)


def _rows(database_url: str, pipeline: Pipeline) -> MasterRows:
    """All of R, encoded by the database as every read of the services is."""
    master = pipeline.master
    question = sql.SQL("SELECT r.{}, convert_to({}, 'UTF8') FROM {} r").format(
        sql.Identifier(*master.key),
        json_row(master.columns),
        sql.Identifier(*master.table.split(".")),
    )
    parts = []
    with psycopg.connect(database_url) as connection:
        for setting in JSON_SETTINGS:
            connection.execute(setting)
        with connection.cursor("all_of_r", binary=True) as cursor:
            cursor.execute(question)
            while found := cursor.fetchmany(_AT_ONCE):
                keys = JoinKeys.of_ints(np.array([key for key, _ in found], np.int64))
                parts.append(MasterRows(keys, Column.of([row for _, row in found])))
    return MasterRows.concatenate(parts)
