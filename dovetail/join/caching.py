"""The cache phase (H_R): the cache of a node that only caches, by the policy of an algorithm.

    events ──► probe ──► hits, each with its entry, and misses
    migrations ──► take ──► entries, some evicted for them
    time ──► expire ──► entries whose master rows were read too long ago leave

Which keys are worth a place is decided in two halves: the disk phase sends those that its half
has chosen (emigration.py), the policy's cache half takes them and makes room. The pool is the
cache's alone.

An age is kept a key, in the last free word of its record (records.py), in whole seconds.

Memory: a pool, and notes of who has left (departed.py); both are allocated once.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

import numpy as np

from dovetail.join import inspection
from dovetail.join.algorithms import policy_named
from dovetail.join.cached import NOTHING, CachedEntries
from dovetail.join.columns import JoinKeys
from dovetail.join.departed import new_departed
from dovetail.join.pending import FIRST_ROOM
from dovetail.join.pool import BYTES_A_BLOCK, FREE, ROOM, new_pool

if TYPE_CHECKING:
    from collections.abc import Callable

    from dovetail.join.algorithms import Parameters
    from dovetail.join.columns import Bytes, Flags, Ints
    from dovetail.join.entry import Entries
    from dovetail.join.inspection import By, CachedKey
    from dovetail.join.mapper import Mapper

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


class CachePhase:
    """Holds entries by join key, in at most `memory` bytes.

    What it answers, it answers with all master rows of a key, so any key may enter or leave
    between two calls without a wrong answer. `oldest` is the earliest time at which rows were
    read that it still holds, as of the last complete round of `expire`; NOTHING if it held none.
    """

    def __init__(self, algorithm: str, memory: int, parameters: Parameters | None = None) -> None:
        notes = min(memory // NOTES_SHARE, MOST_NOTES)
        self._departed = new_departed(notes)
        self._pool = new_pool(memory - self._departed.nbytes)
        self._cached = CachedEntries(self._pool, self._departed)
        self._policy = policy_named(algorithm, parameters)
        self._policy.settle_alone()
        self._swept_to = 0
        self._oldest_passed = self.oldest = NOTHING
        self._expired = 0
        self.hits = self.misses = self.taken = 0

    def __len__(self) -> int:
        """Join keys held."""
        return len(self._cached)

    @property
    def allocated(self) -> int:
        """Bytes taken from the budget, whether entries fill them or not."""
        return sum(self.components.values())

    @property
    def components(self) -> dict[str, int]:
        """The same by what takes them."""
        return {"cache": self._pool.nbytes, "departed": self._departed.nbytes}

    @property
    def used(self) -> int:
        """Bytes that hold entries and their keys, with their share of table and free stack."""
        return (self._pool.blocks - int(self._pool.state[FREE])) * BYTES_A_BLOCK

    @property
    def evicted(self) -> int:
        """Keys that made room, no longer paid for theirs, or were too old."""
        return self._policy.figures.evicted + self._expired

    @property
    def refused(self) -> int:
        return self._policy.figures.refused

    def probe(self, keys: JoinKeys, most: int = ALL) -> Hits:
        """Find the entries of these keys; each hit counts as use.

        If they take more than `most` bytes, of the first keys only (`Hits.seen`).
        """
        hits = Hits(*self._cached.probe(keys, most, by_recency=self._policy.by_recency))
        self.hits += len(hits.positions)
        self.misses += len(hits.misses)
        return hits

    def see(self, event_bytes: float) -> None:
        """Learn how large events are: what a hit saves is the memory of one that waits."""
        self._policy.see(1 + max(0, ceil((event_bytes - FIRST_ROOM) / ROOM)))

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
