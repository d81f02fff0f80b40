"""The skew of a stream, from a sample of its join keys.

Two events drawn at random have the same key with the probability Σp². Under Zipf's law that is
H(n, 2s)/H(n, s)², which grows with the skew s; so the pairs of equal keys in a sample tell s, also
where hardly any key repeats. The sample forgets: new keys replace old ones.

Memory: 8 bytes a key of the sample.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dovetail.join.cost.zipf import harmonic

if TYPE_CHECKING:
    from dovetail.join.columns import Ints

_MOST_SKEW = 3.0
_HALVINGS = 40
_A_BATCH = 256
"""Keys taken of a batch at most: the sample spans many batches."""


class KeySample:
    def __init__(self, size: int) -> None:
        self._keys = np.zeros(size, np.int64)
        self._taken = 0

    @property
    def nbytes(self) -> int:
        return self._keys.nbytes

    def __len__(self) -> int:
        return min(self._taken, len(self._keys))

    def see(self, values: Ints) -> None:
        """Take some of a batch's keys, evenly."""
        some = values[:: max(1, len(values) // _A_BATCH)][: len(self._keys)]
        places = (self._taken + np.arange(len(some))) % len(self._keys)
        self._keys[places] = some
        self._taken += len(some)

    def skew(self, keys: float) -> float:
        """The Zipf exponent that explains the equal pairs, for a stream over so many keys."""
        counts = np.unique(self._keys[: len(self)], return_counts=True)[1].astype(np.float64)
        pairs = len(self) * (len(self) - 1.0)
        if pairs <= 0:
            return 0.0
        equal = float((counts * (counts - 1)).sum() / pairs)
        low, high = 0.0, _MOST_SKEW
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            if repeat_rate(keys, middle) < equal:
                low = middle
            else:
                high = middle
        return low


def repeat_rate(keys: float, skew: float) -> float:
    """The probability that two events have the same key."""
    return float(harmonic(keys, 2 * skew) / harmonic(keys, skew) ** 2)
