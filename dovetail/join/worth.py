"""The disk half of a cache policy: which keys, as their events leave H_S, are worth a place.

| policy     | in the engine                          | where the cache is another process's  |
| ---------- | -------------------------------------- | ------------------------------------- |
| none       | nobody                                 | nobody                                |
| lru        | everybody                              | who was looked up again lately        |
| threshold  | everybody: the cache half has its say  | for whom two events or more waited    |
| inequality | whose entry takes less than its events | the same                              |
| auto       | as the algorithm that it runs          | who was looked up again lately        |

On the way to another process a key costs a message, so who was seen once stays at home.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from dovetail.join.cached import smaller
from dovetail.join.seen import SeenLately

if TYPE_CHECKING:
    from dovetail.join.columns import Ints
    from dovetail.join.entry import Entries
    from dovetail.join.pending import Left

AT_A_TIME = 0.5
"""How many of the events that leave together have waited at a time, on average."""
AGAIN = 2
"""Events of a key that make it worth a message: once may be never again."""


class Worth(Protocol):
    @property
    def allocated(self) -> int:
        """Bytes it takes."""
        ...

    def choose(self, left: Left, entries: Entries) -> Ints:
        """The positions of the keys worth a place among those that have just left."""
        ...


class Nobody:
    allocated = 0

    def choose(self, _left: Left, _entries: Entries) -> Ints:
        return np.empty(0, np.int64)


class Everybody:
    allocated = 0

    def choose(self, left: Left, _entries: Entries) -> Ints:
        return np.arange(len(left.counts))


class AwaitedByMany:
    """For whom so many events waited at the same time (CACHEJOIN's f ≥ threshold)."""

    allocated = 0

    def __init__(self, events: int = AGAIN) -> None:
        self._events = events

    def choose(self, left: Left, _entries: Entries) -> Ints:
        return np.flatnonzero(left.counts >= self._events)


class LookedUpAgain:
    """For whom two events or more waited lately, at the same time or not."""

    def __init__(self, memory: int) -> None:
        self._seen = SeenLately(memory)

    @property
    def allocated(self) -> int:
        return self._seen.allocated

    def choose(self, left: Left, entries: Entries) -> Ints:
        seen = self._seen.see(entries.keys().values)
        return np.flatnonzero(seen | (left.counts >= AGAIN))


class Smaller:
    """Whose entry takes less than its events: m · v_R < n · v_S (SSBJ's Theorem 2)."""

    allocated = 0

    def __init__(self, switching_factor: float = 1.0) -> None:
        self._factor = switching_factor

    def choose(self, left: Left, entries: Entries) -> Ints:
        return smaller(entries, AT_A_TIME, left.blocks, self._factor)
