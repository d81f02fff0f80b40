"""Which keys were seen lately: two Bloom filters, the newer of which is being filled.

    older ░░░░░░░░   newer ░░░░        a key was seen lately if either has it

When the newer one has a key for every eight of its bits, it becomes the older and starts anew
from empty: so a key is remembered for as many others as one to two filters hold, and what was hot
yesterday does not stay so. A key that was not seen is taken for one that was in at most some
percent of cases, a seen one never for one that was not.

A key's three bits lie in one cache line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dovetail.join.memory import prefetch
from dovetail.join.seeds import SEEDS
from dovetail.join.stir import stirred
from dovetail.kernels import kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dovetail.join.columns import Flags, Ints
    from dovetail.join.seeds import Seeds

    Words = NDArray[np.uint64]

_LINE_BITS, _LINE_WORDS = 512, 8
_BITS_A_KEY = 8
_AHEAD = 16


class SeenLately:
    """Takes at most `memory` bytes, and at least two cache lines."""

    def __init__(self, memory: int) -> None:
        lines = max(1, memory // 2 // (_LINE_WORDS * 8))
        self._newer: Words = np.zeros(lines * _LINE_WORDS, np.uint64)
        self._older: Words = np.zeros(lines * _LINE_WORDS, np.uint64)
        self._most = lines * _LINE_BITS // _BITS_A_KEY
        self._added = 0

    @property
    def allocated(self) -> int:
        return self._newer.nbytes + self._older.nbytes

    def see(self, keys: Ints) -> Flags:
        """Tell which of these keys were seen lately; they are from now on."""
        seen = np.empty(len(keys), np.bool_)
        done = 0
        while done < len(keys):
            end = done + self._most - self._added
            part = keys[done:end]
            self._added += _see(SEEDS, self._newer, self._older, part, seen[done:end])
            done += len(part)
            if self._added >= self._most:
                self._newer, self._older = self._older, self._newer
                self._newer[:] = 0
                self._added = 0
        return seen


@kernel
def _line(words: Words, mixed: np.uint64) -> int:
    lines = np.uint64(len(words) // _LINE_WORDS)
    return np.int64(((mixed >> np.uint64(32)) * lines) >> np.uint64(32)) * _LINE_WORDS  # type: ignore[return-value]


@kernel
def _see(seeds: Seeds, newer: Words, older: Words, keys: Ints, seen: Flags) -> int:
    """Return how many were not in the newer filter."""
    added = 0
    for i in range(len(keys)):
        if i + _AHEAD < len(keys):
            ahead = _line(newer, np.uint64(stirred(seeds, keys[i + _AHEAD])))
            prefetch(newer, ahead)
            prefetch(older, ahead)
        mixed = np.uint64(stirred(seeds, keys[i]))
        line = _line(newer, mixed)
        in_newer = True
        in_older = True
        for nth in range(3):
            bit = (mixed >> np.uint64(9 * nth)) & np.uint64(_LINE_BITS - 1)
            at = line + np.int64(bit >> np.uint64(6))
            mask = np.uint64(1) << (bit & np.uint64(63))
            in_newer &= newer[at] & mask != 0
            in_older &= older[at] & mask != 0
            newer[at] |= mask
        seen[i] = in_newer or in_older
        added += not in_newer
    return added
