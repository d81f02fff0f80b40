"""The order of a snapshot's rows: by the key's value, then by the bytes of its text.

For int keys that is the order of the keys. For texts it is the order of their hashes, which
says nothing to a reader but puts all rows of a key together, and those of two texts that
share a hash beside each other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dovetail.join.entry import MasterRows
from dovetail.kernels import kernel

if TYPE_CHECKING:
    from dovetail.join.columns import Bytes, Ints, JoinKeys


def disorder(keys: JoinKeys) -> tuple[int, bool]:
    """The first row that belongs before the one ahead of it, or 0; and whether a key repeats."""
    return _disorder(keys.values, keys.texts.data, keys.texts.bounds)


def sorted_rows(rows: MasterRows) -> MasterRows:
    """Rows in a snapshot's order; rows of the same key stay as they came."""
    order = np.argsort(rows.keys.values, kind="stable")
    _sort_ties(order, rows.keys.values, rows.keys.texts.data, rows.keys.texts.bounds)
    return MasterRows(rows.keys.take(order), rows.rows.take(order))


@kernel
def _compare(data: Bytes, bounds: Ints, a: int, b: int) -> int:
    """Less than, equal to or greater than 0, as text a is to text b."""
    size_a, size_b = bounds[a + 1] - bounds[a], bounds[b + 1] - bounds[b]
    for i in range(min(size_a, size_b)):
        ours, theirs = data[bounds[a] + i], data[bounds[b] + i]
        if ours != theirs:
            return -1 if ours < theirs else 1
    return int(size_a - size_b)


@kernel
def _disorder(values: Ints, data: Bytes, bounds: Ints) -> tuple[int, bool]:
    repeats = False
    for row in range(1, len(values)):
        if values[row] > values[row - 1]:
            continue
        compared = _compare(data, bounds, row - 1, row)
        if values[row] < values[row - 1] or compared > 0:
            return row, repeats
        repeats |= compared == 0
    return 0, repeats


@kernel
def _sort_ties(order: Ints, values: Ints, data: Bytes, bounds: Ints) -> None:
    # By insertion: different texts of one hash are a handful, equal ones are in place already.
    for i in range(1, len(order)):
        row = order[i]
        at = i
        while (
            at > 0
            and values[order[at - 1]] == values[row]
            and _compare(data, bounds, order[at - 1], row) > 0
        ):
            order[at] = order[at - 1]
            at -= 1
        order[at] = row
