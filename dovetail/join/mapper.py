"""The mapper: hash slots, the same for master rows and events (PCSRJ §2, generalised).

PCSRJ sends odd keys to one node and even ones to the other. Here a key belongs to a slot,
and a node owns slots: adding a node moves some of them, not everything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dovetail.join.keys import hash_int_many, slots_of
from dovetail.kernels import kernel

if TYPE_CHECKING:
    from dovetail.join.columns import Ints, JoinKeys, SmallInts


class Mapper:
    def __init__(self, slots: int, *, int_key: bool) -> None:
        self.count = slots
        self._int_key = int_key

    def slots(self, keys: JoinKeys) -> SmallInts:
        # A text or composite key is represented by its hash already.
        hashes = hash_int_many(keys.values) if self._int_key else keys.values
        return slots_of(hashes, self.count)


def groups(numbers: SmallInts) -> list[tuple[int, Ints]]:
    """For each number that occurs, from 0 up, the positions at which it does, in their order."""
    order, ends = _counting_sort(numbers, int(numbers.max(initial=-1)) + 1)
    parts = np.split(order, ends[:-1])
    return [(number, part) for number, part in enumerate(parts) if len(part)]


@kernel
def _counting_sort(numbers: SmallInts, limit: int) -> tuple[Ints, Ints]:
    """Return the stable order of the numbers, and where in it each one below the limit ends."""
    ends = np.zeros(limit + 1, np.int64)
    for number in numbers:
        ends[number + 1] += 1
    for number in range(limit):
        ends[number + 1] += ends[number]
    order = np.empty(len(numbers), np.int64)
    for i in range(len(numbers)):
        order[ends[numbers[i]]] = i
        ends[numbers[i]] += 1
    return order, ends[:limit]
