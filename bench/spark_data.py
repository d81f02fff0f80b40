"""The data of `python -m bench.spark`, made once: R as Parquet and as a snapshot, and the pipeline.

Both hold the same rows, of about 120 bytes as JSON. Keys are 1 … rows, as in the demo's events.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dovetail.join.columns import Column, JoinKeys
from dovetail.join.entry import MasterRows
from dovetail.join.mapper import Mapper, groups
from dovetail.master.snapshot.order import sorted_rows
from dovetail.master.snapshot.split import slot_folder
from dovetail.master.snapshot.versions import Content, SlotFacts, Version, seal, versions_of
from dovetail.master.snapshot.writer import write_snapshot
from dovetail.pipeline.spec import Pipeline

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

COLUMNS = ("name", "category", "vendor", "price")
PARTITIONS = 4
_CHUNK = 500_000


def pipeline_spec(name: str, snapshots: Path, memory: str, nodes: int) -> dict[str, Any]:
    return {
        "name": name,
        "engine": "spark",
        "source": {
            "partitions": PARTITIONS,
            "fields": {
                "sale_id": "int",
                "product_id": "int",
                "customer_id": "int?",
                "quantity": "int",
                "amount": "decimal",
                "channel": "text",
                "sold_at": "timestamp",
            },
        },
        "key": "product_id",
        "master": {"table": "products", "columns": list(COLUMNS), "snapshot": str(snapshots)},
        "memory": memory,
        "nodes": nodes,
        "slots": 4,
    }


def prepare(folder: Path, rows: int, spec: dict[str, Any]) -> tuple[Path, Path]:
    """Make what is missing; return the Parquet file's folder and that of the snapshots."""
    parquet, snapshots = folder / f"parquet-{rows}", folder / f"snapshots-{rows}"
    if not (parquet / "_done").exists():
        shutil.rmtree(parquet, ignore_errors=True)
        parquet.mkdir(parents=True)
        for number, chunk in enumerate(_chunks(rows)):
            pq.write_table(chunk, parquet / f"part-{number:03}.parquet")
        (parquet / "_done").touch()
    pipeline = Pipeline.model_validate(spec)
    versions = versions_of(snapshots, pipeline.name)
    if versions.current() is None:
        with versions.next() as (number, unseen):
            facts = list(_write(unseen, rows, pipeline.slots))
            version = Version(
                pipeline=pipeline.name,
                version=number,
                written_at="",
                database_snapshot="",
                content=Content.of(pipeline),
                rows=rows,
                slots=facts,
            )
            seal(unseen, version)
    return parquet, snapshots


def _write(folder: Path, rows: int, slots: int) -> Iterator[SlotFacts]:
    table = pa.concat_tables(_chunks(rows))
    keys = JoinKeys.of_ints(table.column("product_id").to_numpy().copy())
    encoded = _column(_json(table))
    by_slot = dict(groups(Mapper(slots, int_key=True).slots(keys)))
    for slot in range(slots):
        part = MasterRows(keys.take(by_slot[slot]), encoded.take(by_slot[slot]))
        into = slot_folder(folder, slot)
        held = write_snapshot(into, [sorted_rows(part)], key="int", slots=slots, slot=slot)
        yield SlotFacts.of(into, held)


def _chunks(rows: int) -> Iterator[pa.Table]:
    for first in range(1, rows + 1, _CHUNK):
        keys = np.arange(first, min(first + _CHUNK, rows + 1))
        numbers = pa.array(keys.astype(str))
        yield pa.table(
            {
                "product_id": pa.array(keys),
                "name": pc.binary_join_element_wise("Product no.", numbers, " "),
                "category": pc.binary_join_element_wise(
                    "category", pa.array((keys % 97).astype(str)), " "
                ),
                "vendor": pc.binary_join_element_wise(
                    "Vendor of goods", pa.array((keys * 7919 % 9973).astype(str)), " "
                ),
                "price": pa.array((keys % 9_000 + 99) / 100),
            }
        )


def _json(table: pa.Table) -> pa.Array:
    """The rows as PostgreSQL would encode them, continued as a splice wants it."""
    members = [
        pc.binary_join_element_wise(
            f',"{name}":"' if name != "price" else f',"{name}":',
            table.column(name).cast(pa.string()),
            '"' if name != "price" else "",
            "",
        )
        for name in COLUMNS
    ]
    return pc.binary_join_element_wise(*members, "}", "").cast(pa.large_binary()).combine_chunks()


def _column(array: Any) -> Column:
    _, bounds, data = array.buffers()
    return Column(
        np.frombuffer(data, np.uint8).copy(), np.frombuffer(bounds, np.int64, len(array) + 1).copy()
    )
