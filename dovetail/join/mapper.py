"""The mapper: hash slots, the same for master rows and events (PCSRJ §2, generalised).

PCSRJ sends odd keys to one node and even ones to the other. Here a key belongs to a slot,
and a node owns slots: adding a node moves some of them, not everything.
"""

from __future__ import annotations

import numpy as np

from dovetail.join.columns import Ints, JoinKeys, SmallInts
from dovetail.join.keys import hash_int_many, slots_of


class Mapper:
    def __init__(self, slots: int, *, int_key: bool) -> None:
        self._slots = slots
        self._int_key = int_key

    def slots(self, keys: JoinKeys) -> SmallInts:
        # A text or composite key is represented by its hash already.
        hashes = hash_int_many(keys.values) if self._int_key else keys.values
        return slots_of(hashes, self._slots)  # type: ignore[no-any-return]


def groups(numbers: SmallInts) -> list[tuple[int, Ints]]:
    """For each number that occurs, the positions at which it does, in their order."""
    order = np.argsort(numbers, kind="stable")
    sorted_numbers = numbers[order]
    ends = np.flatnonzero(np.diff(sorted_numbers, append=-1)) + 1
    firsts = np.concatenate(([0], ends[:-1]))
    return [
        (int(sorted_numbers[first]), order[first:end])
        for first, end in zip(firsts.tolist(), ends.tolist(), strict=False)
    ]
