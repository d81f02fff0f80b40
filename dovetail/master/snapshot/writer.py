"""Writing a snapshot: sorted rows stream by, and the folder appears when all of it is on disk.

1. Parts are appended to one file a column, beside the folder to be, under a name that no reader
   asks for; one part at a time is held.
2. Totals say how many rows make a page; the page index is taken from the files.
3. Files, manifest and folder are synced, and the folder gets its name: a reader finds all of a
   snapshot or nothing.
"""

from __future__ import annotations

import os
import shutil
import zlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self
from uuid import uuid4

import numpy as np

from dovetail.errors import ConfigError, MasterDataError
from dovetail.join.columns import JoinKeys
from dovetail.join.mapper import Mapper
from dovetail.master.snapshot import index
from dovetail.master.snapshot.index import PageIndex
from dovetail.master.snapshot.manifest import FileFacts, Manifest, save
from dovetail.master.snapshot.order import disorder
from dovetail.master.snapshot.place import largest_page

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from dovetail.join.columns import Column, Ints
    from dovetail.join.entry import MasterRows
    from dovetail.join.keys import KeyType

PAGE_BYTES = 8192


def write_snapshot(
    folder: Path,
    parts: Iterable[MasterRows],
    *,
    key: KeyType,
    page_bytes: int = PAGE_BYTES,
    slots: int = 1,
    slot: int = 0,
    schema: str = "",
) -> Manifest:
    """Write rows that come sorted by (key value, text bytes), within and across parts.

    A page gets as many rows as take about `page_bytes` on disk. `folder` must not exist yet.
    """
    if not 0 <= slot < slots:
        raise ConfigError(f"slot {slot} of {slots}: slots count from 0 to {slots - 1}")
    with appearing(folder) as unseen, _Columns(unseen, key) as columns:
        check = _Check(key, slots, slot)
        for part in parts:
            check.take(part)
            columns.append(part)
        pages = columns.finish(page_bytes)
        shape = pages.shape(has_bounds=columns.row_width is None, is_text=key == "text")
        manifest = Manifest(
            key=key,
            rows=columns.rows,
            rows_a_page=pages.rows_a_page,
            pages=pages.pages,
            page_bytes=page_bytes,
            largest_page=largest_page(shape)[0],
            unique=check.unique,
            row_width=columns.row_width,
            slots=slots,
            slot=slot,
            schema=schema,
            files=columns.files,
        )
        save(unseen, manifest)
    return manifest


@contextmanager
def appearing(folder: Path) -> Iterator[Path]:
    """A folder to fill, which takes its name once it is filled and synced; else it is removed."""
    if folder.exists():
        raise MasterDataError(
            f"{folder} exists already, and a snapshot is never changed: name a new folder for "
            f"the new version, or remove the old one"
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    unseen = folder.parent / f".{folder.name}.{uuid4().hex}.partial"
    unseen.mkdir()
    try:
        yield unseen
        for path in unseen.iterdir():
            _sync(path)
        _sync(unseen)
        unseen.rename(folder)
        _sync(folder.parent)
    except BaseException:
        shutil.rmtree(unseen, ignore_errors=True)
        raise


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class _Check:
    """Sees that rows come sorted and are of the slot, and whether a key comes twice."""

    def __init__(self, key: KeyType, slots: int, slot: int) -> None:
        self.unique = True
        self._mapper = Mapper(slots, int_key=key == "int")
        self._int_key = key == "int"
        self._slots = slots
        self._slot = slot
        self._last: JoinKeys | None = None
        self._rows = 0

    def take(self, part: MasterRows) -> None:
        if not len(part):
            return
        if self._int_key and len(part.keys.texts.data):
            raise MasterDataError("the keys are texts: write the snapshot with key='text'")
        if self._last is not None:
            border = JoinKeys.concatenate([self._last, part.keys.slice(0, 1)])
            self._require_order(border, self._rows - 1)
        self._require_order(part.keys, self._rows)
        self._require_slot(part.keys)
        self._last = part.keys.take(np.array([len(part) - 1]))
        self._rows += len(part)

    def _require_order(self, keys: JoinKeys, first: int) -> None:
        wrong, repeats = disorder(keys)
        if wrong:
            raise MasterDataError(
                f"row {first + wrong} belongs before row {first + wrong - 1}: a snapshot's rows "
                f"must come sorted by their keys' values and, for texts, by value and bytes; "
                f"sorted_rows() sorts them so"
            )
        self.unique &= not repeats

    def _require_slot(self, keys: JoinKeys) -> None:
        other = np.flatnonzero(self._mapper.slots(keys) != self._slot)
        if len(other):
            name = keys.texts[other[0]].decode() or keys.values[other[0]]
            raise MasterDataError(
                f"join key {name!r} is not of slot {self._slot} of {self._slots}: split the rows "
                f"by the slot hash of dovetail.join.keys"
            )


class _File:
    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")
        self._crc32 = 0
        self.size = 0

    def append(self, array: np.ndarray) -> None:
        content = np.ascontiguousarray(array).view(np.uint8).data
        self._file.write(content)
        self._crc32 = zlib.crc32(content, self._crc32)
        self.size += len(content)

    def close(self) -> FileFacts:
        self._file.close()
        return FileFacts(self.size, self._crc32)


class _Bounded:
    """A column of bytes as two files: the values end to end, and their bounds."""

    def __init__(self, values: _File, bounds: _File) -> None:
        self._values = values
        self._bounds = bounds
        bounds.append(np.zeros(1, np.int64))
        self._sizes: tuple[int, int] | None = None

    @property
    def widths(self) -> tuple[int, int]:
        """The least and the largest size of a value."""
        return self._sizes or (0, 0)

    def append(self, column: Column) -> None:
        if not len(column):
            return
        first = int(column.bounds[0])
        self._bounds.append(column.bounds[1:] + (self._values.size - first))
        self._values.append(column.data[first : int(column.bounds[-1])])
        sizes = np.diff(column.bounds)
        least, largest = int(sizes.min()), int(sizes.max())
        if self._sizes is not None:
            least, largest = min(least, self._sizes[0]), max(largest, self._sizes[1])
        self._sizes = least, largest


class _Columns:
    """The files of a snapshot while they grow."""

    def __init__(self, folder: Path, key: KeyType) -> None:
        self.rows = 0
        self.files: dict[str, FileFacts] = {}
        self.row_width: int | None = None
        self._folder = folder
        self._is_text = key == "text"
        names = ["keys", "rows", "bounds"] + ["texts", "text_bounds"] * self._is_text
        self._open = {name: _File(folder / name) for name in names}
        self._rows = _Bounded(self._open["rows"], self._open["bounds"])
        self._texts = (
            _Bounded(self._open["texts"], self._open["text_bounds"]) if self._is_text else None
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def append(self, part: MasterRows) -> None:
        self._open["keys"].append(part.keys.values)
        self._rows.append(part.rows)
        if self._texts is not None:
            self._texts.append(part.keys.texts)
        self.rows += len(part)

    def finish(self, page_bytes: int) -> PageIndex:
        """Close the files, leave out what all rows have in common, and index the rest."""
        self._close()
        pages = self._index(page_bytes)
        least, largest = self._rows.widths
        if least == largest:
            self.row_width = least
            (self._folder / "bounds").unlink()
            del self.files["bounds"]
        written = pages.write(self._folder / index.NAME)
        self.files[index.NAME] = FileFacts(len(written), zlib.crc32(written))
        return pages

    def _index(self, page_bytes: int) -> PageIndex:
        if not self.rows:
            return PageIndex.of_nothing()
        contents = sum(
            self.files[name].size for name in ("keys", "rows", "texts") if name in self.files
        )
        rows_a_page = max(1, page_bytes * self.rows // contents)
        none = np.broadcast_to(np.int64(0), self.rows + 1)
        texts = none if self._texts is None else self._numbers("text_bounds")
        return PageIndex.over(self._numbers("keys"), self._numbers("bounds"), texts, rows_a_page)

    def _numbers(self, name: str) -> Ints:
        return np.memmap(self._folder / name, np.int64, "r")

    def _close(self) -> None:
        self.files |= {name: file.close() for name, file in self._open.items()}
        self._open = {}
