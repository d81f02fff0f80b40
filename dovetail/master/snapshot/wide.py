"""Pages that do not fit into the bytes that a read may take: only some of their rows are read.

    page 7   keys ▓▓▓▓▓▓   bounds ▓▓▓▓▓▓     rows  ░░░▓▓▓▓▓▓▓░░░░░
             1. of all its rows                    2. those that are wanted

One row of some megabytes makes its page too large for everybody whose rows lie beside it. Keys and
bounds of a page are small whatever its rows are, and say which bytes of the file are whose.

Memory: beside the rows that are read, up to 24 bytes for each row of their pages.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dovetail.join.columns import Column, JoinKeys
from dovetail.join.entry import MasterRows
from dovetail.master.snapshot.files import Buffer
from dovetail.master.snapshot.fill import Fill
from dovetail.master.snapshot.place import (
    A_ROW,
    BLOCK,
    BOUNDS,
    KEYS,
    ROWS,
    TEXT_BOUNDS,
    TEXTS,
)

if TYPE_CHECKING:
    from dovetail.join.columns import Bytes, Ints
    from dovetail.master.snapshot.files import Reader
    from dovetail.master.snapshot.fill import Layout

_OF_ONE_RUN = np.empty((0, 1), np.int64)
_BEFORE_FIRST = 24
"""Bytes of a `Read` whatever its rows: two first bounds, and the end of a page."""


@dataclass(frozen=True, slots=True)
class Heads:
    """Everything of consecutive rows but what they say: keys, and where rows and texts lie."""

    keys: Ints
    bounds: Ints
    """In the file of rows."""
    text_bounds: Ints
    """In the file of texts."""

    def __len__(self) -> int:
        return len(self.keys)

    def read_bytes(self, start: int) -> Ints:
        """What rows from this one on take as a `Read`: the first, the first two, and so on."""
        counts = np.arange(1, len(self) - start + 1)
        texts = self.text_bounds[start + 1 :] - self.text_bounds[start]
        rows = self.bounds[start + 1 :] - self.bounds[start]
        sizes: Ints = rows + texts + counts * A_ROW + _BEFORE_FIRST
        return sizes


class Wide:
    def __init__(self, layout: Layout, reader: Reader) -> None:
        self._layout = layout
        self._reader = reader

    def heads(self, first: int, end: int) -> Heads:
        """Read those of pages first … end - 1."""
        shape = self._layout.shape
        low, high = (min(page * shape.rows_a_page, shape.rows) for page in (first, end))
        ends = 8 * low, 8 * (high + 1)
        asked = [(KEYS, 8 * low, 8 * high)]
        asked += [(BOUNDS, *ends)] if shape.has_bounds else []
        asked += [(TEXT_BOUNDS, *ends)] if shape.is_text else []
        read = {file: part.view(np.int64) for file, part in self._read(asked).items()}
        bounds = read.get(BOUNDS)
        if bounds is None:
            bounds = np.arange(low, high + 1) * (self._layout.width or 0)
        return Heads(read[KEYS], bounds, read.get(TEXT_BOUNDS, np.zeros(high - low + 1, np.int64)))

    def rows(self, heads: Heads, start: int, stop: int) -> MasterRows:
        """Read rows `start` up to `stop` of those."""
        bounds = heads.bounds[start : stop + 1]
        texts = heads.text_bounds[start : stop + 1]
        asked = [(ROWS, int(bounds[0]), int(bounds[-1]))]
        asked += [(TEXTS, int(texts[0]), int(texts[-1]))] if self._layout.is_text else []
        read = self._read(asked)
        text = read.get(TEXTS, np.empty(0, np.uint8))
        keys = JoinKeys(heads.keys[start:stop], Column(text, texts - texts[0]))
        return MasterRows(keys, Column(read[ROWS], bounds - bounds[0]))

    def _read(self, asked: list[tuple[int, int, int]]) -> dict[int, Bytes]:
        """Bytes low … high - 1 of each file, by its number."""
        pieces, places, at = [], {}, 0
        for file, low, high in asked:
            start = low // BLOCK * BLOCK
            size = -(-high // BLOCK) * BLOCK - start if high > low else 0
            places[file] = at + low - start, high - low
            if size:
                pieces.append([file, start, at, size])
            at += size
        buffer = Buffer()
        self._reader.read(Fill(_OF_ONE_RUN, pieces, at), buffer)
        return {file: buffer.bytes[at : at + size] for file, (at, size) in places.items()}
