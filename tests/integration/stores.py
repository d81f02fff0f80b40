"""One relation in every store that a join can read: rows `(key, n)` with a number for each row."""

from __future__ import annotations

from contextlib import closing, contextmanager

import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq

from dovetail.api import ParquetFile, Postgres
from dovetail.api.arrow import ArrowSource
from dovetail.api.pieces import ArrowTable
from dovetail.join.columns import Column
from dovetail.join.entry import MasterRows
from dovetail.join.exchange import Events
from dovetail.master.pipeline import PipelineRelation
from dovetail.master.snapshot.order import sorted_rows
from dovetail.master.snapshot.relation import SnapshotRelation
from dovetail.master.snapshot.writer import write_snapshot
from tests.integration.master_kit import ints, pipeline, texts

STORES = ("table", "file", "postgres", "pipeline", "snapshot")


def join_keys(keys):
    return texts(*keys) if isinstance(keys[0], str) else ints(*keys)


def events_of(keys):
    return Events(join_keys(keys), Column.of([b'{"e":1}'] * len(keys)), np.arange(len(keys)))


@contextmanager
def opened(store, keys, database, tmp_path, **options):
    """The relation of these keys, one row each, as the engine's drivers read it."""
    with closing(_open(store, sorted(keys), database, tmp_path, **options)) as relation:
        yield relation


def _open(store, keys, database, tmp_path, *, row_group=500, page_bytes=8192, table="r"):
    rows = pa.table({"k": keys, "n": range(len(keys))})
    if store == "table":
        return ArrowSource(ArrowTable(rows)).open(["k"], ["n"], unique=None)
    if store == "file":
        pq.write_table(rows, tmp_path / "r.parquet", row_group_size=row_group)
        return ArrowSource(ParquetFile(tmp_path / "r.parquet")).open(["k"], ["n"], unique=None)
    is_text = isinstance(keys[0], str)
    if store == "snapshot":
        held = MasterRows(join_keys(keys), Column.of([b'{"n":%d}' % n for n in range(len(keys))]))
        key = "text" if is_text else "int"
        write_snapshot(tmp_path / "r", [sorted_rows(held)], key=key, page_bytes=page_bytes)
        return SnapshotRelation(tmp_path / "r")
    with psycopg.connect(database, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE TABLE {table} (k {'text' if is_text else 'bigint'}, n int)")
        with cursor.copy(f"COPY {table} FROM STDIN") as copy:
            # In no order: that is what the index is there for.
            for n in np.random.default_rng(1).permutation(len(keys)).tolist():
                copy.write_row((keys[n], n))
        cursor.execute(f"CREATE INDEX ON {table} (k)")
        cursor.execute(f"VACUUM ANALYZE {table}")
    if store == "postgres":
        return Postgres(database, table).open(["k"], ["n"], None)
    fields = {"k": "text" if is_text else "int"}
    return PipelineRelation(database, pipeline(table, ["n"], fields, key="k"))
