"""Runs of pages in memory, and the master rows in them.

    pages 4 … 9     keys  ░▓▓▓▓▓░   bounds  ░▓▓▓▓▓░   rows  ░▓▓▓▓▓▓▓▓▓▓▓▓▓▓░       files
                          │                 │               │
    buffer          ░▓▓▓▓▓░░▓▓▓▓▓░░▓▓▓▓▓▓▓▓▓▓▓▓▓▓░                                  memory

Consecutive pages are one range of every file. So a run of them is read by one call a file, and
its master rows are views of the buffer: nothing is copied. Only bounds change, in place, from
offsets into the file to offsets into the buffer.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd, lcm
from typing import TYPE_CHECKING

import numpy as np

from dovetail.join.columns import Column, JoinKeys
from dovetail.join.entry import MasterRows
from dovetail.master.snapshot import place

if TYPE_CHECKING:
    from dovetail.join.columns import Bytes, Ints
    from dovetail.master.snapshot.files import Buffer
    from dovetail.master.snapshot.index import PageIndex
    from dovetail.master.snapshot.manifest import Manifest

_FEW = 4
"""Reads of fewer groups of aligned pages are left as they are: too much would be cut off."""


@dataclass(slots=True)
class Fill:
    """Runs of pages in a buffer, or on their way there."""

    runs: Ints
    """A column for each run: see place.py."""
    pieces: list[list[int]]
    """What is to be read: (file, offset, place in the buffer, size) each."""
    nbytes: int


class Layout:
    """Where pages are in the files and come to be in memory."""

    def __init__(self, manifest: Manifest, index: PageIndex) -> None:
        self.pages = index.pages
        self.width = manifest.row_width
        self.is_text = manifest.key == "text"
        self.shape = index.shape(has_bounds=self.width is None, is_text=self.is_text)
        self.aligned = _aligned(manifest)
        # Of rows that are all alike the bounds are always these, and no texts have no length.
        self._steps = np.zeros(1, np.int64)
        self._zeros = np.zeros(1, np.int64)

    def whole(self, pages: int) -> int:
        """So many pages, or a few less, that are whole blocks of every file.

        Reads that share a block are a fifth slower than those that end where the next one starts.
        """
        return pages - pages % self.aligned if pages >= _FEW * self.aligned else pages

    def fill(self, firsts: Ints, ends: Ints) -> Fill:
        """Lay out runs of pages, first … end - 1 each, and say what to read for them."""
        runs, pieces, nbytes = place.lay_out(self.shape, firsts, ends)
        return Fill(runs, pieces.tolist(), nbytes)

    def run(self, first: int, end: int) -> Fill:
        return self.fill(np.array([first]), np.array([end]))

    def master_rows(self, fill: Fill, buffer: Buffer) -> MasterRows:
        """The rows of a fill of one run; to be called once, for it shifts the bounds in place."""
        run = fill.runs[:, 0].tolist()
        data, count = buffer.bytes, run[place.COUNT]
        self._provide(count)
        keys = _numbers(data, run[place.KEYS], count)
        content = _part(data, run[place.ROWS], run[place.ROWS_SIZE])
        if self.width is None:
            bounds = _numbers(data, run[place.BOUNDS], count + 1)
            bounds -= run[place.ROW_START]
        else:
            bounds = self._steps[: count + 1]
        if self.is_text:
            text_bounds = _numbers(data, run[place.TEXT_BOUNDS], count + 1)
            text_bounds -= run[place.TEXT_START]
            texts = Column(_part(data, run[place.TEXTS], run[place.TEXTS_SIZE]), text_bounds)
        else:
            texts = Column(data[:0], self._zeros[: count + 1])
        return MasterRows(JoinKeys(keys, texts), Column(content, bounds))

    def _provide(self, count: int) -> None:
        if count >= len(self._steps):
            self._steps = np.arange(count + 1) * (self.width or 0)
            self._zeros = np.zeros(count + 1, np.int64)


def _aligned(manifest: Manifest) -> int:
    """Pages that are whole blocks of every file; 1 if rows differ in size, and none are."""
    if manifest.row_width is None or manifest.key == "text":
        return 1
    sizes = (8 * manifest.rows_a_page, manifest.row_width * manifest.rows_a_page)
    return lcm(*(place.BLOCK // gcd(place.BLOCK, size) for size in sizes))


def sliced(rows: MasterRows, first: int, end: int) -> MasterRows:
    return MasterRows(rows.keys.slice(first, end), rows.rows.slice(first, end))


def _part(data: Bytes, at: int, size: int) -> Bytes:
    return data[at : at + size]


def _numbers(data: Bytes, at: int, count: int) -> Ints:
    return _part(data, at, 8 * count).view(np.int64)
