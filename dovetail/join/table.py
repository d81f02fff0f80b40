"""Open addressing over 64-bit join keys: the table under a lookup.

Two arrays side by side: the keys, and for each the position that it stands for (-1 =
empty). Keys spread by a hash of the process's own (stir.py), so no key is reserved, sequential ids
do not cluster, and nobody can send keys that do; linear probing; at most half full, so that a miss
ends after a step or two. Different texts may share a 64-bit hash: they are told apart by their
bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dovetail.join.stir import identity, stirred
from dovetail.kernels import kernel

if TYPE_CHECKING:
    from dovetail.join.columns import Bytes, Ints
    from dovetail.join.seeds import Seeds

EMPTY = -1


@kernel
def new_table(keys: int) -> tuple[Ints, Ints]:
    """Return an empty table that stays at most half full with so many keys."""
    capacity = 16
    while capacity < 2 * keys:
        capacity *= 2
    return np.empty(capacity, np.int64), np.full(capacity, EMPTY, np.int64)


@kernel
def home(seeds: Seeds, capacity: int, key: int) -> int:
    """Return the slot, out of a power of two, at which the search for a key starts."""
    return (stirred(seeds, key) >> 32) & (capacity - 1)


@kernel
def put(
    seeds: Seeds,
    slots: Ints,
    positions: Ints,
    key: int,
    texts: Bytes,
    bounds: Ints,
    position: int,
) -> None:
    """Add the key at this position of a batch; it is known not to be in the table."""
    start, end = bounds[position], bounds[position + 1]
    at = home(seeds, len(slots), identity(seeds, key, texts, start, end))
    while positions[at] != EMPTY:
        at = (at + 1) & (len(slots) - 1)
    slots[at] = key
    positions[at] = position


@kernel
def same(a: Bytes, start: int, end: int, b: Bytes, other: int, other_end: int) -> bool:
    if end - start != other_end - other:
        return False
    for i in range(end - start):  # noqa: SIM110 - a kernel
        if a[start + i] != b[other + i]:
            return False
    return True


@kernel
def find(
    seeds: Seeds,
    slots: Ints,
    positions: Ints,
    key: int,
    texts: Bytes,
    bounds: Ints,
    data: Bytes,
    start: int,
    end: int,
) -> int:
    """Return the position of the key whose text equals `data[start:end]`, or -1."""
    at = home(seeds, len(slots), identity(seeds, key, data, start, end))
    while positions[at] != EMPTY:
        position = positions[at]
        if slots[at] == key and same(
            texts, bounds[position], bounds[position + 1], data, start, end
        ):
            return position  # type: ignore[no-any-return]
        at = (at + 1) & (len(slots) - 1)
    return EMPTY
