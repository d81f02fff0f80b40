"""Splitting R by slot: each node scans the rows of its own slots and nobody else's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dovetail.join.entry import MasterRows
from dovetail.join.mapper import Mapper, groups
from dovetail.master.snapshot.order import sorted_rows
from dovetail.master.snapshot.writer import PAGE_BYTES, appearing, write_snapshot

if TYPE_CHECKING:
    from pathlib import Path

    from dovetail.join.keys import KeyType
    from dovetail.master.snapshot.manifest import Manifest

_NOTHING = np.empty(0, np.int64)


def slot_folder(folder: Path, slot: int) -> Path:
    return folder / f"slot-{slot:05}"


def write_slots(
    folder: Path,
    rows: MasterRows,
    slots: int,
    *,
    key: KeyType,
    page_bytes: int = PAGE_BYTES,
    schema: str = "",
) -> list[Manifest]:
    """Sort rows that fit into memory and write a snapshot for every slot, empty ones too.

    `folder` appears with all of them in it, or not at all.
    """
    with appearing(folder) as unseen:
        return fill_slots(unseen, rows, slots, key=key, page_bytes=page_bytes, schema=schema)


def fill_slots(
    folder: Path,
    rows: MasterRows,
    slots: int,
    *,
    key: KeyType,
    page_bytes: int = PAGE_BYTES,
    schema: str = "",
) -> list[Manifest]:
    """Write every slot's snapshot into a folder that is there already."""
    numbers = Mapper(slots, int_key=key == "int").slots(rows.keys)
    rows_of = dict(groups(numbers))
    manifests = []
    for slot in range(slots):
        chosen = rows_of.get(slot, _NOTHING)
        part = MasterRows(rows.keys.take(chosen), rows.rows.take(chosen))
        manifests.append(
            write_snapshot(
                slot_folder(folder, slot),
                [sorted_rows(part)],
                key=key,
                page_bytes=page_bytes,
                slots=slots,
                slot=slot,
                schema=schema,
            )
        )
    return manifests
