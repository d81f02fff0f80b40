"""The page index: which key each page starts with, and where in the files it stands.

    page            0          1          2          3
    keys     3 3 5 8 │ 9 9 9 9 │ 9 9 9 12│ 14 17
    first    3         9         9         14
    continues no       no        yes       no         the page's first key has rows before it

R is sorted by key, so it is its own clustered index and this is all that is mapped into memory:
25 bytes a page, that is 0.3 % of R at pages of 8 KiB. A text key stands here by its hash: texts
that share one are kept together as if they were one key.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dovetail.master.snapshot.place import Shape

if TYPE_CHECKING:
    from pathlib import Path

    from dovetail.join.columns import Flags, Ints
    from dovetail.master.snapshot.manifest import Manifest

NAME = "pages"


@dataclass(frozen=True, slots=True)
class PageIndex:
    rows: int
    rows_a_page: int
    first_keys: Ints
    continues: Flags
    row_starts: Ints
    """Where in `rows` each page starts; one more than there are pages."""
    text_starts: Ints
    """Likewise in `texts`."""

    @property
    def pages(self) -> int:
        return len(self.first_keys)

    @property
    def nbytes(self) -> int:
        arrays = self.first_keys, self.continues, self.row_starts, self.text_starts
        return sum(array.nbytes for array in arrays)

    def shape(self, *, has_bounds: bool, is_text: bool) -> Shape:
        return Shape(
            self.first_keys,
            self.continues,
            self.row_starts,
            self.text_starts,
            self.rows,
            self.rows_a_page,
            has_bounds,
            is_text,
        )

    def write(self, path: Path) -> bytes:
        content = b"".join(
            array.tobytes()
            for array in (self.first_keys, self.row_starts, self.text_starts, self.continues)
        )
        path.write_bytes(content)
        return content

    @classmethod
    def read(cls, path: Path, manifest: Manifest) -> PageIndex:
        pages = manifest.pages
        # Mapped, not read: the system may drop what is not used. Copy-on-write, as Numba would
        # compile its kernels once more for arrays that must not be written.
        content = np.asarray(np.memmap(path, np.uint8, "c"))
        numbers = content[: (3 * pages + 2) * 8].view(np.int64)
        first_keys, row_starts, text_starts = np.split(numbers, [pages, 2 * pages + 1])
        continues = content[(3 * pages + 2) * 8 :].view(np.bool_)
        return cls(
            manifest.rows, manifest.rows_a_page, first_keys, continues, row_starts, text_starts
        )

    @classmethod
    def over(cls, keys: Ints, bounds: Ints, text_bounds: Ints, rows_a_page: int) -> PageIndex:
        """Index rows by their sorted keys and by the bounds of rows and texts."""
        starts = np.arange(0, len(keys), rows_a_page)
        ends = np.append(starts, len(keys))
        first_keys = np.array(keys[starts])
        continues = np.concatenate([[False], keys[starts[1:] - 1] == first_keys[1:]])
        row_starts, text_starts = np.array(bounds[ends]), np.array(text_bounds[ends])
        return cls(len(keys), rows_a_page, first_keys, continues, row_starts, text_starts)

    @classmethod
    def of_nothing(cls) -> PageIndex:
        """The index of an R without rows: one page, for a scan has to read something."""
        nothing = np.zeros(2, np.int64)
        return cls(0, 1, np.zeros(1, np.int64), np.zeros(1, np.bool_), nothing, nothing)
