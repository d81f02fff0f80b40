"""The cache (H_R) of a node, by the policy of an algorithm, as whoever drives it sees it.

    events ──► probe ──► hits, each with its entry, and misses
    migrations ──► take ──► entries, some evicted for them
    time ──► expire ──► entries whose master rows were read too long ago leave

| `CachePhase`  | the phases are two processes: the pool is the cache's alone                     |
| `SharedCache` | the phases are one engine: cached entries and pending events share its pool     |

Which keys are worth a place is decided in two halves: the disk phase chooses (worth.py), the
policy's cache half takes them and makes room. What a disk phase of another process has chosen
comes as migrations (emigration.py); an engine's own learns by itself, and probes as it lets events
in: then migrations are a plan that somebody has made, and no more.

An age is kept a key, in the last free word of its record (records.py), in whole seconds.

Memory: a pool, and notes of who has left (departed.py); both are allocated once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, cast

import numpy as np

from dovetail.join import inspection
from dovetail.join.algorithms import policy_named
from dovetail.join.cached import NOTHING, CachedEntries
from dovetail.join.columns import JoinKeys
from dovetail.join.departed import new_departed
from dovetail.join.pending import FIRST_ROOM
from dovetail.join.pool import BYTES_A_BLOCK, ROOM, new_pool

if TYPE_CHECKING:
    from collections.abc import Callable

    from dovetail.join.algorithms import Parameters
    from dovetail.join.auto import Auto
    from dovetail.join.columns import Bytes, Flags, Ints
    from dovetail.join.departed import Departed
    from dovetail.join.engine import Engine
    from dovetail.join.entry import Entries
    from dovetail.join.inspection import By, CachedKey
    from dovetail.join.mapper import Mapper
    from dovetail.join.policies import Policy
    from dovetail.join.pool import Pool

LEAST = 64 << 10
"""Bytes of the smallest cache worth making."""
ALL = 1 << 62
MOST_NOTES = 512 << 10
NOTES_SHARE = 32
"""The notes of who has left take one part in so many of the memory, up to MOST_NOTES."""


@dataclass(frozen=True, slots=True)
class Hits:
    """What the cache answers of a batch; event `positions[i]` by the entry at `starts[i]`."""

    positions: Ints
    entries: Bytes
    starts: Ints
    misses: Ints
    """The positions of all others."""

    @property
    def seen(self) -> int:
        """How many events of the batch were looked at, from its start."""
        return len(self.positions) + len(self.misses)

    def part(self, first: int, end: int) -> Hits:
        """The same of the events from one position to another."""
        hits = slice(*np.searchsorted(self.positions, [first, end]))
        misses = slice(*np.searchsorted(self.misses, [first, end]))
        positions = self.positions[hits] - first
        return Hits(positions, self.entries, self.starts[hits], self.misses[misses] - first)

    def only(self, kept: Flags) -> Hits:
        """These hits; the others are misses."""
        misses = np.sort(np.concatenate([self.misses, self.positions[~kept]]))
        return Hits(self.positions[kept], self.entries, self.starts[kept], misses)

    def among(self, kept: Flags) -> Hits:
        """The same of these events alone."""
        places = np.cumsum(kept) - 1
        hit, missed = kept[self.positions], kept[self.misses]
        return Hits(
            places[self.positions[hit]], self.entries, self.starts[hit], places[self.misses[missed]]
        )


class Cache(ABC):
    """Holds entries by join key.

    What it answers, it answers with all master rows of a key, so any key may enter or leave
    between two calls without a wrong answer. `oldest` is the earliest time at which rows were
    read that it still holds, as of the last complete round of `expire`; NOTHING if it held none.
    """

    def __init__(self, pool: Pool, cached: CachedEntries, departed: Departed) -> None:
        self._pool = pool
        self._cached = cached
        self._departed = departed
        self._swept_to = 0
        self._oldest_passed = self.oldest = NOTHING
        self._expired = self.taken = 0

    def __len__(self) -> int:
        """Join keys held."""
        return len(self._cached)

    @property
    @abstractmethod
    def _policy(self) -> Policy: ...

    @property
    @abstractmethod
    def hits(self) -> int: ...

    @property
    @abstractmethod
    def misses(self) -> int: ...

    @property
    @abstractmethod
    def components(self) -> dict[str, int]:
        """Bytes taken from the budget, whether entries fill them or not, by what takes them."""

    @property
    def allocated(self) -> int:
        """The same in all."""
        return sum(self.components.values())

    @property
    @abstractmethod
    def budget(self) -> int:
        """Bytes that it can take at most, all that surrounds entries included."""

    @property
    def used(self) -> int:
        """Bytes that hold entries and their keys, with their share of table and free stack."""
        return self._cached.blocks * BYTES_A_BLOCK

    @property
    def evicted(self) -> int:
        """Keys that made room, no longer paid for theirs, or were too old."""
        return self._policy.figures.evicted + self._expired

    @property
    def refused(self) -> int:
        return self._policy.figures.refused

    def take(self, entries: Entries, events: Ints, cycle: int, read_at: Ints) -> None:
        """Take migrations: entry i, whose rows were read at `read_at[i]`, in seconds.

        So many events had waited for it in the disk phase, whose cycle it is. A key that is
        held has its entry replaced, or is dropped if the new one does not fit.
        """
        self.taken += len(events)
        self._policy.take(self._cached, entries, events, read_at, cycle)

    def drop(self, keys: JoinKeys) -> None:
        """Drop these keys, where they are held."""
        self._cached.drop(keys)

    def drop_slots(self, mapper: Mapper, slots: list[int]) -> None:
        """Drop every key of these slots.

        The notes of who has left go too: part of them may be of those slots, and another
        node's concern from now on.
        """
        records = self._cached.records()
        belongs = mapper.slots(JoinKeys.of_ints(self._cached.values()))
        self._cached.drop_records(records[np.isin(belongs, slots)])
        self._departed.clear()

    def expire(self, before: int, share: float) -> None:
        """Evict whose rows were read before a time, looking at this share of the memory.

        The next call goes on from there, so that shares that add up to one are a round.
        """
        blocks = self._pool.blocks
        end = min(self._swept_to + ceil(share * blocks), blocks)
        evicted, oldest = self._cached.sweep(self._swept_to, end, before)
        self._expired += evicted
        self._oldest_passed = min(self._oldest_passed, oldest)
        self._swept_to = end
        if end == blocks:
            self._swept_to = 0
            self.oldest, self._oldest_passed = self._oldest_passed, NOTHING

    def most_of(
        self, by: By, most: int, among: Callable[[Ints], Flags] | None = None
    ) -> list[CachedKey]:
        """The keys that have most of something, for whoever wants to see them."""
        return inspection.most_of(self._pool, by, most, among)

    def find(self, value: int, text: bytes) -> CachedKey | None:
        """One key, without its counting as used."""
        return inspection.find(self._pool, value, text)

    def departed(self) -> JoinKeys:
        """The keys that left by themselves, or were not let in, since the last call.

        If there were very many, not all of them.
        """
        return self._departed.take_out()


class CachePhase(Cache):
    """A cache by itself, in at most `memory` bytes."""

    def __init__(self, algorithm: str, memory: int, parameters: Parameters | None = None) -> None:
        departed = new_departed(min(memory // NOTES_SHARE, MOST_NOTES))
        pool = new_pool(memory - departed.nbytes)
        super().__init__(pool, CachedEntries(pool, departed), departed)
        self._own = policy_named(algorithm, parameters)
        self._own.settle_alone()
        self._memory = memory
        self._hits = self._misses = 0

    @property
    def budget(self) -> int:
        return self._memory

    @property
    def _policy(self) -> Policy:
        return self._own

    @property
    def hits(self) -> int:
        return self._hits

    @property
    def misses(self) -> int:
        return self._misses

    @property
    def components(self) -> dict[str, int]:
        return {"cache": self._pool.nbytes, "departed": self._departed.nbytes}

    def probe(self, keys: JoinKeys, most: int = ALL) -> Hits:
        """Find the entries of these keys; each hit counts as use.

        If they take more than `most` bytes, of the first keys only (`Hits.seen`).
        """
        hits = Hits(*self._cached.probe(keys, most, by_recency=self._policy.by_recency))
        self._hits += len(hits.positions)
        self._misses += len(hits.misses)
        return hits

    def see(self, event_bytes: float) -> None:
        """Learn how large events are: what a hit saves is the memory of one that waits."""
        self._policy.see(1 + max(0, ceil((event_bytes - FIRST_ROOM) / ROOM)))


class SharedCache(Cache):
    """The cache of an engine: what takes memory is the engine's, and counted there."""

    def __init__(self, engine: Engine | Auto) -> None:
        self._engine = engine
        held = engine.held
        super().__init__(held.pool, held.cached, new_departed(0))

    @property
    def budget(self) -> int:
        return self._pool.nbytes

    @property
    def _policy(self) -> Policy:
        # One that caches itself has a whole policy (emigration.py is half of one).
        return cast("Policy", self._engine.policy)

    @property
    def hits(self) -> int:
        return self._engine.figures.hits

    @property
    def misses(self) -> int:
        figures = self._engine.figures
        return figures.accepted - figures.hits

    @property
    def components(self) -> dict[str, int]:
        return {}

    def take(self, entries: Entries, events: Ints, _cycle: int, read_at: Ints) -> None:
        """Take what somebody has planned, whose cycle is not the engine's."""
        super().take(entries, events, self._engine.cycle, read_at)
