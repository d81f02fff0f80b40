"""Cache policies: which join keys are answered from memory (H_R), decided as they leave H_S.

| policy     | a key enters when                      | who makes room                       |
| ---------- | -------------------------------------- | ------------------------------------ |
| none       | never                                  | –                                    |
| lru        | it was answered                        | the least recently used              |
| threshold  | f ≥ threshold events waited for it     | the least frequent                   |
| inequality | its entry takes less than its events   | who no longer satisfies the same     |

A policy has two halves. The disk half (worth.py) says which of the keys that leave are worth a
place; the cache half takes them in and makes room. The engine puts both together (`learn`).
Where the phases are two processes, the disk half stays behind (emigration.py), the keys that it
chooses travel, and the cache half receives them (`take`, caching.py).

A key enters with all its rows or, if it has none, as such, at the moment its events leave:
they are all answered by then, so nothing has to be phased out of H_S. That folds SSBJ's
incrementing, switching and phase-out cycles (§3.1) into the one cycle in which a key collects
its rows: s_count is the number of rows collected, and the collected rows are the switching
buffer. The eviction state remains.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from dovetail.join.cached import Eviction
from dovetail.join.worth import (
    AT_A_TIME,
    AwaitedByMany,
    Everybody,
    LookedUpAgain,
    Nobody,
    Smaller,
)

if TYPE_CHECKING:
    from dovetail.join.cached import CachedEntries, Kept
    from dovetail.join.columns import Flags, Ints
    from dovetail.join.entry import Entries
    from dovetail.join.pending import Left
    from dovetail.join.worth import Worth

REVIEW_CYCLES = 10
"""Cycles for which a key of SSBJ's cache can have saved up: the paper judges every tenth."""
_ENOUGH = 7 / 8
"""How much of a pool that is a cache's alone may be taken before places are short."""
_WEIGHT = 0.05
"""Weight of the latest read in the average size of an event."""


@dataclass(slots=True)
class CacheFigures:
    kept: int = 0
    refused: int = 0
    evicted: int = 0


class CachePolicy(Protocol):
    by_recency: bool
    """Whether a hit makes its key the most recently used one."""
    figures: CacheFigures

    def begin(self, cached: CachedEntries) -> None:
        """Take over whatever is cached."""
        ...

    def learn(self, cached: CachedEntries, left: Left, entries: Entries, cycle: int) -> None:
        """See the keys that have just been answered by the disk phase."""
        ...

    def warm(self, cached: CachedEntries, entries: Entries) -> None:
        """Take entries that are known to be worth it, as far as there is room."""
        ...


class Policy(CachePolicy, Protocol):
    """A policy whose halves can be two processes'."""

    def abroad(self, memory: int) -> Worth:
        """Its disk half for a cache in another process; may take so many bytes."""
        ...

    def settle_alone(self) -> None:
        """The whole pool is the cache's."""
        ...

    def see(self, blocks_an_event: float) -> None:
        """Learn what an event would take in H_S."""
        ...

    def take(
        self, cached: CachedEntries, entries: Entries, events: Ints, read_at: Ints, cycle: int
    ) -> None:
        """Receive keys that a disk half has chosen, each when so many events had left with it.

        `read_at` is when its master rows were read. A key that is cached already has its
        entry replaced, whatever the policy says: the rows may have changed.
        """
        ...


class _Bounded:
    """A cache of at most a fixed share of the pool."""

    by_recency = False

    def __init__(self, share: float, eviction: Eviction, worth: Worth) -> None:
        self._share = share
        self._eviction = eviction
        self._worth = worth
        self.figures = CacheFigures()

    def settle_alone(self) -> None:
        self._share = 1.0

    def _limit(self, cached: CachedEntries) -> int:
        return int(self._share * cached.pool_blocks)

    def begin(self, cached: CachedEntries) -> None:
        cached.shrink(self._limit(cached))

    def warm(self, cached: CachedEntries, entries: Entries) -> None:
        self._keep(cached, entries, np.arange(len(entries)))

    def learn(self, cached: CachedEntries, left: Left, entries: Entries, cycle: int) -> None:
        chosen = self._worth.choose(left, entries)
        self.see(float(left.blocks.sum() / left.counts.sum()))
        self._keep(cached, entries, chosen[self._wanted(left.counts[chosen])])
        self._turn(cached, cycle)

    def take(
        self, cached: CachedEntries, entries: Entries, events: Ints, read_at: Ints, cycle: int
    ) -> None:
        limit = self._limit(cached)
        self._count(cached.take(entries, self._wanted(events), read_at, limit, self._eviction))
        self._turn(cached, cycle)

    def see(self, blocks_an_event: float) -> None:
        pass

    def _wanted(self, events: Ints) -> Flags:
        """Who of the chosen, for each of whom so many events had waited, may enter."""
        return np.ones(len(events), np.bool_)

    def _turn(self, cached: CachedEntries, cycle: int) -> None:
        """Do what has to be done once a cycle."""

    def _keep(self, cached: CachedEntries, entries: Entries, chosen: Ints) -> None:
        if len(chosen):
            self._count(cached.keep(entries, chosen, self._limit(cached), self._eviction))

    def _count(self, kept: Kept) -> None:
        self.figures.kept += kept.kept
        self.figures.refused += kept.refused
        self.figures.evicted += kept.evicted


def _everybody(remember: int) -> Worth:
    """Whoever was looked up, or, with memory for that, whoever was before."""
    return LookedUpAgain(remember) if remember else Everybody()


class NoCache(_Bounded):
    def __init__(self) -> None:
        super().__init__(0.0, Eviction.NOBODY, Nobody())

    def abroad(self, _memory: int) -> Worth:
        return Nobody()

    def learn(self, cached: CachedEntries, left: Left, entries: Entries, cycle: int) -> None:
        pass

    def warm(self, cached: CachedEntries, entries: Entries) -> None:
        pass

    def _wanted(self, events: Ints) -> Flags:
        return np.zeros(len(events), np.bool_)


class Lru(_Bounded):
    """SRJ's cache (§3): every key that was read, until others were used more recently."""

    by_recency = True

    def __init__(self, share: float = 0.5, remember: int = 0) -> None:
        super().__init__(share, Eviction.COLDEST, _everybody(remember))

    def abroad(self, memory: int) -> Worth:
        return LookedUpAgain(memory)


class Threshold(_Bounded):
    """CACHEJOIN's cache with its self-tuning threshold (PCSRJ §3.2).

    Once a cycle: if a tenth of the cached keys or more were evicted, the threshold was too
    low; if nothing was and a tenth of the cache is still free, it was too high.
    """

    def __init__(self, share: float = 0.5, threshold: int = 2) -> None:
        super().__init__(share, Eviction.LEAST_FREQUENT, Everybody())
        self.threshold = threshold
        self._cycle = 0
        self._evicted = 0

    def abroad(self, _memory: int) -> Worth:
        return AwaitedByMany()

    def _wanted(self, events: Ints) -> Flags:
        return events >= self.threshold

    def _turn(self, cached: CachedEntries, cycle: int) -> None:
        if cycle > self._cycle:
            self._cycle = cycle
            self._tune(cached)

    def _tune(self, cached: CachedEntries) -> None:
        evicted = self.figures.evicted - self._evicted
        self._evicted = self.figures.evicted
        if evicted and evicted * 10 >= len(cached):
            self.threshold += 1
        elif not evicted and cached.blocks < 0.9 * self._limit(cached):
            self.threshold = max(1, self.threshold - 1)


class Inequality(_Bounded):
    """SSBJ's cache (§3.1): each key where it takes less memory, m · v_R < n · v_S (Theorem 2).

    The left side is the blocks of the entry with its record. n is the number of events that
    would wait for the key at a time: as they leave together, half of those that leave, on
    average (in the paper, where chunks leave one by one, all that arrive in a cycle).

    Enter: the events that have just left say what the key takes on the right side.
    Eviction: the paper counts hits for ten cycles and then judges. One lucky cycle would so
    keep a rare key for ten; here every key pays for its place cycle by cycle out of what its
    hits save, and may save up for ten. A key on the wrong side leaves after one or two, a hot
    one survives a lull, and when the distribution shifts all is settled after ten.

    s_f is the switching factor, a hysteresis: 1 is none. The cache has no size of its own; the
    share only keeps H_S from being starved. A cache with a pool of its own has nobody to leave
    memory to: there, places are charged for only while they are short, and no more keys leave
    than have to.
    """

    def __init__(self, switching_factor: float = 1.0, share: float = 0.875) -> None:
        super().__init__(share, Eviction.NOBODY, Smaller(switching_factor))
        self._factor = switching_factor
        self._alone = False
        self._reviewed = 0
        self._blocks_an_event = 2.0

    def settle_alone(self) -> None:
        super().settle_alone()
        self._alone = True

    def abroad(self, _memory: int) -> Worth:
        return Smaller(self._factor)

    def see(self, blocks_an_event: float) -> None:
        self._blocks_an_event += _WEIGHT * (blocks_an_event - self._blocks_an_event)

    def _turn(self, cached: CachedEntries, cycle: int) -> None:
        enough = int(_ENOUGH * self._limit(cached)) if self._alone else 0
        if cycle > self._reviewed and cached.blocks > enough:
            self.figures.evicted += cached.review(
                cycle - self._reviewed,
                AT_A_TIME * self._blocks_an_event,
                self._factor,
                REVIEW_CYCLES,
                enough,
            )
        self._reviewed = max(cycle, self._reviewed)


class AutoCache(_Bounded):
    """The cache of `auto` in the services, where R is looked up.

    The inequality asks for the least memory at a given rate. Here the memory is given and the
    rate is wanted: any key that was looked up again may fill it, and the least frequent makes
    room. At skew 1 and 5 % of R that answers 68 % of the events, where the inequality's review
    left 60 %, and sends a third of the migrations.
    """

    def __init__(self, share: float = 0.5, remember: int = 0) -> None:
        super().__init__(share, Eviction.LEAST_FREQUENT, _everybody(remember))

    def abroad(self, memory: int) -> Worth:
        return LookedUpAgain(memory)
