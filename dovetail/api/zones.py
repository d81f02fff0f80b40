"""Which pieces of a relation may hold a join key, if rows lie in the order of one of its columns.

    piece   0          1          2
    span    1 … 40     40 … 75    80 … 99       40 lies in two pieces, 77 in none

Within a piece rows may lie as they like: only the spans must not overlap but at their ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dovetail.api.keys import sort_of
from dovetail.join.keys import SEPARATOR

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dovetail.api.pieces import Pieces, Span
    from dovetail.join.columns import Ints, JoinKeys

Values = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Zones:
    column: str
    """The column whose order rows lie in."""
    parts: int
    """How many columns the key has."""
    place: int
    """Which of them this one is."""
    pieces: list[int]
    """Those that have a value."""
    least: Values
    largest: Values
    is_int: bool

    def holding(self, keys: JoinKeys) -> tuple[Ints, Ints]:
        """For each key the first place in `pieces` that may hold it, and the one behind."""
        sought = self._sought(keys)
        first = np.searchsorted(self.largest, sought, side="left")
        end = np.searchsorted(self.least, sought, side="right")
        return first, np.maximum(first, end)

    def shared(self, place: int) -> list[Any]:
        """The values of a piece that another one may have as well."""
        found = []
        if place and self.largest[place - 1] == self.least[place]:
            found.append(self.least[place])
        if place + 1 < len(self.pieces) and self.largest[place] == self.least[place + 1]:
            found.append(self.largest[place])
        return [value if self.is_int else value.decode() for value in found]

    def _sought(self, keys: JoinKeys) -> Values:
        if self.is_int and self.parts == 1:
            return keys.values
        separator = bytes([SEPARATOR])
        texts = [text.split(separator, self.parts - 1)[self.place] for text in keys.texts]
        return _values([int(text) for text in texts] if self.is_int else texts, self.is_int)


def zones(pieces: Pieces, on: Sequence[str]) -> Zones | None:
    """Find a column of the key in whose order the pieces lie; None if there is none.

    Of several the one by which fewest neighbours share a value: where all rows have one shop, the
    order of shops says nothing, and that of products where to look.
    """
    best, shares = None, 0
    for place, name in enumerate(on):
        kind = sort_of(pieces.schema.field(name).type)
        spans = pieces.spans(name) if kind in ("int", "text") else None
        if spans is not None and (kept := _in_order(spans)) is not None:
            is_int = kind == "int"
            ends = np.array([spans[piece] for piece in kept], object).reshape(-1, 2)
            least, largest = (_values(column.tolist(), is_int) for column in ends.T)
            shared = int((largest[:-1] == least[1:]).sum())
            if best is None or shared < shares:
                best = Zones(name, len(on), place, kept, least, largest, is_int)
                shares = shared
    return best


def _in_order(spans: list[Span]) -> list[int] | None:
    kept = [piece for piece, span in enumerate(spans) if span is not None]
    known = [span for span in spans if span is not None]
    return kept if all(a[1] <= b[0] for a, b in pairwise(known)) else None


def _values(values: Sequence[Any], is_int: bool) -> Values:
    if is_int:
        fits = all(-(1 << 63) <= value < 1 << 63 for value in values)
        return np.array(values, np.int64 if fits else object)
    return np.array([v if isinstance(v, bytes) else v.encode() for v in values], object)
