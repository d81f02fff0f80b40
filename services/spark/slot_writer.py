"""Writes the rows of a slot as its snapshot, in a Python worker, as they stream by sorted."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import msgspec
import numpy as np
import pyarrow as pa

from dovetail.errors import MasterDataError
from dovetail.join.columns import Column, JoinKeys
from dovetail.join.entry import MasterRows
from dovetail.join.keys import hash_text_many
from dovetail.master.snapshot.split import slot_folder
from dovetail.master.snapshot.versions import SlotFacts
from dovetail.master.snapshot.writer import write_snapshot

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dovetail.join.keys import KeyType

WRITTEN = "slot int, name string, facts binary"
"""What `SlotWriter` gives of each slot: the folder's name and the slot's facts."""


@dataclass(frozen=True, slots=True)
class SlotWriter:
    """A function for `mapInArrow`, over rows sorted by slot, value and text.

    Every attempt of a task writes a folder of its own. Whoever publishes takes the one that is
    reported: what a task that was run twice has left beside it is never seen.
    """

    folder: str
    key: KeyType
    slots: int
    schema: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for slot, parts in _by_slot(batches):
            name = f"{slot_folder(Path(), slot).name}.{uuid4().hex}"
            folder = Path(self.folder) / name
            manifest = write_snapshot(
                folder,
                (self._rows(part) for part in parts),
                key=self.key,
                slots=self.slots,
                slot=slot,
                schema=self.schema,
            )
            facts = msgspec.json.encode(SlotFacts.of(folder, manifest))
            yield pa.RecordBatch.from_arrays(
                [pa.array([slot], pa.int32()), pa.array([name]), pa.array([facts])],
                ["slot", "name", "facts"],
            )

    def _rows(self, batch: pa.RecordBatch) -> MasterRows:
        values = batch["value"].to_numpy()
        rows = _column(batch["row"])
        if self.key == "int":
            return MasterRows(JoinKeys.of_ints(values), rows)
        texts = _column(batch["text"])
        if not np.array_equal(hash_text_many(texts.data, texts.bounds), values):
            raise MasterDataError(
                "this PostgreSQL hashes texts in another way than the pipeline does: is the "
                "database encoded in UTF8?"
            )
        return MasterRows(JoinKeys(values, texts), rows)


def _by_slot(
    batches: Iterable[pa.RecordBatch],
) -> Iterator[tuple[int, Iterator[pa.RecordBatch]]]:
    """The batches of each slot; one slot's are to be taken before the next one's."""
    pieces = _pieces(batches)
    ahead = next(pieces, None)

    def of_slot(slot: int) -> Iterator[pa.RecordBatch]:
        nonlocal ahead
        while ahead is not None and ahead[0] == slot:
            yield ahead[1]
            ahead = next(pieces, None)

    while ahead is not None:
        slot = ahead[0]
        yield slot, of_slot(slot)


def _pieces(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
    for batch in batches:
        slots = batch["slot"].to_numpy()
        starts = np.flatnonzero(np.diff(slots, prepend=-1)).tolist()
        for start, end in zip(starts, [*starts[1:], len(slots)], strict=True):
            yield int(slots[start]), batch.slice(start, end - start)


def _column(texts: pa.Array) -> Column:
    """Arrow's text as a column, whose bytes it shares."""
    wide = texts.cast(pa.large_binary())
    _, offsets, data = wide.buffers()
    bounds = np.frombuffer(offsets, np.int64)[wide.offset : wide.offset + len(wide) + 1]
    content = np.frombuffer(data, np.uint8) if data else np.empty(0, np.uint8)
    return Column(content, bounds)
