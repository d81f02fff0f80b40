"""How often a key was looked up lately: one small counter a bucket of keys.

Keys that share a bucket share its count, so a rare key may look frequent but never the
other way round. All counters are halved when as many keys have been counted as there are
buckets times eight, so that what was hot yesterday does not stay so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numba import njit

from dovetail.join.table import home

if TYPE_CHECKING:
    from dovetail.join.columns import Bytes, Flags, Ints


class FrequencySketch:
    def __init__(self, budget: int) -> None:
        buckets = 16
        while 2 * buckets <= budget:
            buckets *= 2
        self._counts: Bytes = np.zeros(buckets, np.uint8)
        self._counted = 0

    @property
    def allocated(self) -> int:
        return self._counts.nbytes

    def reached(self, keys: Ints, times: Ints, threshold: int) -> Flags:
        """Count each key so many times more; tell which have come to the threshold."""
        self._counted += len(keys)
        if self._counted > 8 * len(self._counts):
            self._counts >>= 1
            self._counted = 0
        return _count(self._counts, keys, times, threshold)


@njit(cache=True, nogil=True)
def _count(counts: Bytes, keys: Ints, times: Ints, threshold: int) -> Flags:
    reached = np.empty(len(keys), np.bool_)
    for i in range(len(keys)):
        bucket = home(len(counts), keys[i])
        count = min(np.int64(counts[bucket]) + times[i], 255)
        counts[bucket] = count
        reached[i] = count >= threshold
    return reached
