"""The disk half of a policy by itself: keys emigrate to the cache of another process.

    engine ──feed──► answered keys ──worth it?──► collected ──► migrations ──► cache phase

An engine with this policy caches nothing itself: all its memory is for pending events.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dovetail.join.algorithms import policy_named
from dovetail.join.entry import Entries
from dovetail.join.policies import CacheFigures

if TYPE_CHECKING:
    from dovetail.join.algorithms import Parameters
    from dovetail.join.cached import CachedEntries
    from dovetail.join.columns import Ints, JoinKeys
    from dovetail.join.pending import Left

MEMORY = 64 << 10
"""Bytes to remember in which keys were looked up lately, unless others are given."""


@dataclass(frozen=True, slots=True)
class Emigrants:
    """Keys on their way to another process's cache, each with all its master rows."""

    keys: JoinKeys
    entries: Entries
    events: Ints
    """How many events had waited for each."""
    cycle: int
    """The engine's cycle in which the last of them left."""

    def __len__(self) -> int:
        return len(self.keys)


class Emigration:
    """The `CachePolicy` of an engine whose cache is elsewhere, by the rule of an algorithm.

    `collected` has to be called now and then: what waits for it is not part of the engine's
    budget.
    """

    by_recency = False

    def __init__(
        self, algorithm: str, parameters: Parameters | None = None, memory: int = MEMORY
    ) -> None:
        self.figures = CacheFigures()
        self._worth = policy_named(algorithm, parameters).abroad(memory)
        self._entries: list[Entries] = []
        self._events: list[Ints] = []
        self._cycle = 0

    @property
    def allocated(self) -> int:
        """Bytes taken, beside what is collected."""
        return self._worth.allocated

    def begin(self, cached: CachedEntries) -> None:
        cached.shrink(0)

    def learn(self, _cached: CachedEntries, left: Left, entries: Entries, cycle: int) -> None:
        self._cycle = cycle
        chosen = self._worth.choose(left, entries)
        if len(chosen):
            self.figures.kept += len(chosen)
            self._entries.append(entries.take(chosen))
            self._events.append(left.counts[chosen])

    def warm(self, cached: CachedEntries, entries: Entries) -> None:
        """Leave warming to whoever has the cache."""

    def collected(self) -> Emigrants:
        """Take out who has left since the last call; a key may be there more than once.

        Its last entry is the newest.
        """
        entries = Entries.concatenate(self._entries)
        events = np.concatenate([np.empty(0, np.int64), *self._events])
        self._entries, self._events = [], []
        return Emigrants(entries.keys(), entries, events, self._cycle)
