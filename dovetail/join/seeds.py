"""The numbers that this process alone mixes its tables' keys with (stir.py).

They are data: a compiled kernel is kept on disk, and would keep a constant's value with it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Seeds = NDArray[np.uint64]

TEXT_WORDS = 16
"""Words of four bytes that a text is hashed by at a time."""
SHIFT, FACTOR, LENGTH, LOW_HALF, HIGH_HALF, FIRST_WORD = range(6)
"""What each seed is for: of a key, of a text's length and last sum, and of its words."""


def new_seeds() -> Seeds:
    count = FIRST_WORD + TEXT_WORDS
    seeds = np.frombuffer(bytearray(os.urandom(8 * count)), np.uint64)
    seeds[FACTOR] |= np.uint64(1)
    return seeds


SEEDS = new_seeds()
