"""Which product is the most popular, the second, the third: a keyed shuffle of the catalogue.

Product ids follow the order in which the rows lie on disk. If the popular products had the low
ids they would share a few pages, and every index join would look better than it is; so the
popularity rank goes through a permutation before it becomes an id.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from dovetail.demo.randomness import random_below, random_bits, random_key
from dovetail.kernels import kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Both the catalogue and the stream are told the same seed, or have this one by default.
CATALOGUE_SEED = 2011
_ROUNDS = 3


def product_ids(
    ranks: NDArray[np.int64], rows: int, seed: int = CATALOGUE_SEED
) -> NDArray[np.int64]:
    """Map popularity ranks 1..rows one to one onto product ids 1..rows."""
    return _permute(ranks, rows, random_key(seed, "popularity"))


@kernel(inline="always")
def _shuffle(cell: int, height: int, width: int, key: np.uint64) -> int:
    """One Feistel pass: each half is shifted by a hash of the other, which is reversible."""
    y = cell // width
    x = cell - y * width
    for turn in range(_ROUNDS):
        y += random_below(random_bits(key + np.uint64(2 * turn), np.uint64(x)), height)
        y -= height if y >= height else 0
        x += random_below(random_bits(key + np.uint64(2 * turn + 1), np.uint64(y)), width)
        x -= width if x >= width else 0
    return y * width + x


@kernel
def _permute(ranks: NDArray[np.int64], rows: int, key: np.uint64) -> NDArray[np.int64]:
    """Shuffle the cells of a nearly square grid that has at least `rows` of them."""
    height = math.ceil(math.sqrt(rows))
    width = (rows + height - 1) // height
    out = np.empty(ranks.size, np.int64)
    for i in range(ranks.size):
        cell = _shuffle(ranks[i] - 1, height, width, key)
        # The cells beyond `rows` are no products: they walk on along their cycle.
        while cell >= rows:
            cell = _shuffle(cell, height, width, key)
        out[i] = cell + 1
    return out
