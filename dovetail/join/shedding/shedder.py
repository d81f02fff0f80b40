"""When to shed in a pipeline, and how much: service rates against what arrives.

    arriving ──► mapper ──► │ line of the cache phase │ ──► │ line of the disk phase │ ──► answered
                   │ shed                                misses only

1. Behind by: the wait of an event that needs both phases, the sum of the waits in both lines.
2. Shedding begins when that exceeds `when_behind` for a while (`patience`), not for a moment.
3. While it lasts, a line that is far behind lets in what its stage can serve: half of it as long
   as `when_behind` is reached, all of it at half of `when_behind`, where an overload that goes on
   settles.
4. Of what arrives at a time, the strategy's highest priorities get what room there is. The disk
   phase's room is for events whose keys are not cached, if it is known which are (`cached`): a hit
   costs it nothing, so none is shed for its sake. If not, every event counts as the share that
   misses.
5. It ends when the wait is down to half of `when_behind` and nothing had to be shed for a while.

No I/O, no clock and no event is held: every event goes on or is shed within the call.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from dovetail.join.shedding.buffer import highest
from dovetail.join.shedding.line import Line, Rate

if TYPE_CHECKING:
    from dovetail.join.caching import Hits
    from dovetail.join.columns import Flags, Ints, JoinKeys
    from dovetail.join.shedding.frequency import Floats, Frequencies
    from dovetail.join.shedding.strategies import Strategy

_SAVED_S = 2.0
"""Room that was not used is kept for so long."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Events so far, as running totals of one moment."""

    at: float
    arrived: int
    """At the mapper, shed ones included."""
    mapped: int
    taken: int
    """By the cache phase."""
    missed: int
    answered: int
    """By the disk phase."""


class Gate(Protocol):
    """Room in front of a line."""

    def room(self, at: float) -> float:
        """For how many events there is room by then."""
        ...

    def enter(self, events: float) -> None: ...


class Doors:
    """Lets events through to both lines, as there is room."""

    def __init__(self, cache: Gate, disk: Gate, strategy: Strategy) -> None:
        self.strategy = strategy
        """May be exchanged at any time."""
        self.cached: Frequencies | None = None
        """Which keys the cache phase answers: those with a frequency above 0; None if unknown."""
        self._cache = cache
        self._disk = disk

    def admit(self, keys: JoinKeys, at: float, miss_share: float) -> Flags | None:
        """Say which of these events go on; None says that all do. The others are to be shed."""
        kept = np.ones(len(keys), np.bool_)
        missing, share = self._missing(keys, miss_share)
        self._through(self._disk, keys, missing, share, kept, at)
        self._through(self._cache, keys, np.flatnonzero(kept), 1.0, kept, at)
        return None if kept.all() else kept

    def _missing(self, keys: JoinKeys, miss_share: float) -> tuple[Ints, float]:
        """Which events may need the disk phase, and what share of them does."""
        if self.cached is None:
            return np.arange(len(keys)), miss_share
        return np.flatnonzero(self.cached.frequency(keys) <= 0), 1.0

    def _through(
        self, gate: Gate, keys: JoinKeys, places: Ints, share: float, kept: Flags, at: float
    ) -> None:
        """Let as many of the events at these places through as there is room for."""
        room = gate.room(at) / max(share, 1e-9)
        if len(places) <= room:
            gate.enter(share * len(places))
            return
        chosen = highest(self.strategy.priorities(keys.take(places)), int(room))
        kept[places[~chosen]] = False
        gate.enter(share * int(room))


class Shedder:
    def __init__(
        self, when_behind: float, strategy: Strategy, memory_s: float | None = None
    ) -> None:
        """Shed when events would wait for more than `when_behind` seconds.

        What a stage serves is a mean over `memory_s`, or over half of what they may wait.
        """
        self.patience = max(2.0, when_behind / 10)
        self._limit = when_behind
        memory_s = memory_s or min(max(when_behind / 2, 1.0), 30.0)
        self._cache = _Gate(Line(memory_s), when_behind)
        self._disk = _Gate(Line(memory_s), when_behind)
        self.doors = Doors(self._cache, self._disk, strategy)
        self._taken = Rate(memory_s)
        self._missed = Rate(memory_s)
        self._arriving = Rate(memory_s)
        self._last: Progress | None = None
        self._changing_since: float | None = None
        self._has_shed = False
        self.shedding = False

    @property
    def behind(self) -> float:
        """Seconds that an event waits behind the mapper if it needs both phases."""
        return self._cache.line.wait + self._disk.line.wait

    @property
    def arrival_rate(self) -> float:
        return self._arriving.value or 0.0

    @property
    def service_rate(self) -> float:
        """Events a second that the phases can take, by the slower one; 0 while unknown."""
        rates = (self._cache.line.rate, self._disk.line.rate / max(self.miss_share, 1e-9))
        return min((rate for rate in rates if rate), default=0.0)

    @property
    def miss_share(self) -> float:
        """Of what the cache phase takes, the part that the disk phase gets."""
        taken = self._taken.value or 0.0
        return min((self._missed.value or 0.0) / taken, 1.0) if taken else 1.0

    def look(self, seen: Progress, since: float | None = None) -> None:
        """Learn from how far the phases have come; to be called about once a second.

        Whoever cannot look so often says `since` when it has been as it is seen now.
        """
        self._cache.line.look(seen.at, seen.mapped, seen.taken)
        self._disk.line.look(seen.at, seen.missed, seen.answered)
        if self._last is not None and seen.at > self._last.at:
            seconds = seen.at - self._last.at
            self._arriving.learn(seen.arrived - self._last.arrived, seconds)
            if seen.taken > self._last.taken:
                self._taken.learn(seen.taken - self._last.taken, seconds)
                self._missed.learn(seen.missed - self._last.missed, seconds)
        self._last = seen
        self._decide(seen.at, seen.at if since is None else since)

    def admit(self, keys: JoinKeys, at: float) -> Flags | None:
        """Say which of these events go on; None says that all do. The others are to be shed."""
        kept = self.doors.admit(keys, at, self.miss_share) if self.shedding else None
        if kept is not None:
            self.has_shed()
        return kept

    def has_shed(self) -> None:
        """Note that events were shed since the last look, here or by others for it."""
        self._has_shed = True

    def _decide(self, at: float, since: float) -> None:
        """Begin or end, if the reason for it has lasted."""
        if self.shedding:
            change = self.behind <= self._limit / 2 and not self._has_shed
        else:
            change = self.behind > self._limit
        self._has_shed = False
        if not change:
            self._changing_since = None
            return
        if self._changing_since is None:
            self._changing_since = since
        if at - self._changing_since >= self.patience:
            self.shedding = not self.shedding
            self._changing_since = None
            self._cache.close(at)
            self._disk.close(at)


class _Gate:
    """Room in front of a line, which grows with time as its stage serves."""

    def __init__(self, line: Line, limit: float) -> None:
        self.line = line
        self._limit = limit
        self._room = 0.0
        self._at = 0.0

    def close(self, at: float) -> None:
        """Leave no room; it grows from now on."""
        self._room = 0.0
        self._at = at

    def room(self, at: float) -> float:
        seconds, self._at = at - self._at, at
        # With a short line the stage is not known to be at its limit.
        if self.line.wait <= self._limit / 4:
            return float("inf")
        rate = self.line.rate * min(max(1.5 - self.line.wait / self._limit, 0.5), 1.5)
        self._room = min(self._room + rate * seconds, rate * _SAVED_S)
        return self._room

    def enter(self, events: float) -> None:
        self._room = max(self._room - events, 0.0)


class Found:
    """Which of the very keys that are asked for the cache has."""

    def __init__(self, events: int, hits: Hits) -> None:
        self._found = np.zeros(events)
        self._found[hits.positions] = 1.0

    def frequency(self, _: JoinKeys) -> Floats:
        return self._found
