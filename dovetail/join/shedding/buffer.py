"""The working buffer: what arrives during one loop of the scan, cut to the w events it can take.

    arrive ──► │ working buffer, at most w events │ ──► take, once in c_loop
                        │ lowest priority
                        ▼
                       shed

1. `arrive` gives each event its strategy's priority and keeps the w highest of all that have
   arrived since the last `take`; of equals, the earliest.
2. Whoever gets no place or loses it is handed back at once, with the strategy as the reason.
3. `take` gives what is left, in the order of arrival, and starts afresh.

Every event is taken or handed back as shed, once. Nothing is lost here: what becomes of a shed
event is the caller's to decide.

Memory: `nbytes`, exactly: kept events are copied, so that none holds on to its batch's buffer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dovetail.errors import ConfigError
from dovetail.join.columns import Column, JoinKeys
from dovetail.join.exchange import Events

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dovetail.join.columns import Flags
    from dovetail.join.shedding.frequency import Floats
    from dovetail.join.shedding.strategies import Strategy


@dataclass(frozen=True, slots=True)
class Shed:
    """Events that the join will not see now, in their order of arrival."""

    events: Events
    reason: str

    def __len__(self) -> int:
        return len(self.events)


class WorkingBuffer:
    """Holds the `capacity` events (w) of the highest priority."""

    def __init__(self, strategy: Strategy, capacity: int) -> None:
        self.strategy = strategy
        self._capacity = _at_least_one(capacity)
        self._forget()

    def __len__(self) -> int:
        return len(self._priorities)

    @property
    def capacity(self) -> int:
        return self._capacity

    @property
    def cut(self) -> float:
        """The highest priority that was shed since the last take; 0 if nothing was."""
        return self._cut

    @property
    def nbytes(self) -> int:
        """Bytes that the held events take, their keys, ids and priorities included."""
        return self._priorities.nbytes + sum(_nbytes(part) for part in self._held)

    def arrive(self, events: Events) -> Shed:
        before = len(self)
        priorities = np.concatenate([self._priorities, self.strategy.priorities(events.keys)])
        kept = highest(priorities, self._capacity)
        lost = self._give_up(kept[:before])
        self._hold(_select(events, kept[before:]))
        self._settle(priorities, kept)
        return self._shed([*lost, _select(events, ~kept[before:])])

    def resize(self, capacity: int) -> Shed:
        """Hold another number of events from now on (AMESHJOIN's w); shed what is too many.

        A larger w keeps more of what is still to arrive. It cannot bring back what was shed, so
        a sample is one of the whole interval only if w grows right after a `take`.
        """
        self._capacity = _at_least_one(capacity)
        kept = highest(self._priorities, capacity)
        lost = self._give_up(kept)
        self._settle(self._priorities, kept)
        return self._shed(lost)

    def take(self) -> Events:
        taken = _together(self._held)
        self._forget()
        return taken

    def _forget(self) -> None:
        self._held: list[Events] = []
        self._priorities: Floats = np.empty(0)
        self._cut = 0.0

    def _hold(self, events: Events) -> None:
        if len(events):
            self._held.append(events)

    def _give_up(self, kept: Flags) -> list[Events]:
        """Let go of the held events that lost their place; most arrivals cost nobody theirs."""
        if kept.all():
            return []
        held = _together(self._held)
        self._held = []
        self._hold(_select(held, kept))
        return [_select(held, ~kept)]

    def _settle(self, priorities: Floats, kept: Flags) -> None:
        self._priorities = priorities[kept]
        self._cut = max(self._cut, float(priorities[~kept].max(initial=0.0)))

    def _shed(self, parts: list[Events]) -> Shed:
        return Shed(_together(parts), self.strategy.name)


def highest(priorities: Floats, count: int) -> Flags:
    """Which of them are the `count` highest; of equals, those that come first."""
    excess = len(priorities) - count
    if excess <= 0 or count == 0:
        return np.full(len(priorities), excess <= 0)
    least = np.partition(priorities, excess)[excess]
    chosen: Flags = priorities > least
    equals = np.flatnonzero(priorities == least)
    chosen[equals[: count - np.count_nonzero(chosen)]] = True
    return chosen


def _at_least_one(capacity: int) -> int:
    if capacity < 1:
        raise ConfigError(
            f"a working buffer of {capacity} events would shed the whole stream: make it 1 or more"
        )
    return capacity


def _select(events: Events, chosen: Flags) -> Events:
    places = np.flatnonzero(chosen)
    return Events(events.keys.take(places), events.data.take(places), events.ids[places])


def _together(parts: Sequence[Events]) -> Events:
    return Events(
        JoinKeys.concatenate([part.keys for part in parts]),
        Column.concatenate([part.data for part in parts]),
        np.concatenate([np.empty(0, np.int64), *(part.ids for part in parts)]),
    )


def _nbytes(events: Events) -> int:
    keys = events.keys
    return keys.values.nbytes + keys.texts.nbytes + events.data.nbytes + events.ids.nbytes
