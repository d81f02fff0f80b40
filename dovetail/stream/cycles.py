"""The cycle of a cache that is filled by the disk phases of several slots.

Every disk phase counts its own cycles, from 0 when it starts. A slot's migrations come from the
one that has the slot at the time. So what counts is how far each slot has come since its last
migration; a cache's cycle is the average over its slots.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from dovetail.join.columns import Ints, SmallInts


NO_CYCLE = (1 << 63) - 1
"""Of a migration that no disk phase sent, but a plan."""


class SharedCycle:
    def __init__(self) -> None:
        self._passed = 0.0
        self._latest: dict[int, int | None] = {}

    @property
    def cycle(self) -> int:
        return int(self._passed)

    def follow(self, slots: Iterable[int]) -> None:
        self._latest.update(dict.fromkeys(slots))

    def forget(self, slots: Iterable[int]) -> None:
        for slot in slots:
            self._latest.pop(slot, None)

    def see(self, slots: SmallInts, cycles: Ints, standing: Collection[int]) -> None:
        """Learn the cycles of migrations, in the order in which they came.

        For slots in `standing` no time passes: their migrations are old. Nor does it for one
        whose cycle falls, for another disk phase has it now.
        """
        counted = cycles != NO_CYCLE
        slots, cycles = slots[counted], cycles[counted]
        found, from_end = np.unique(slots[::-1], return_index=True)
        for slot, cycle in zip(found.tolist(), cycles[::-1][from_end].tolist(), strict=True):
            before = self._latest.get(slot)
            self._latest[slot] = cycle
            if before is not None and slot not in standing:
                self._passed += max(0, cycle - before) / len(self._latest)
