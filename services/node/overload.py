"""Sheds in an overload, within the node, which knows what waits, what is cached, what R takes.

    what is left to read │ ──► cache half ──hit──► answered
                         │        │miss
                         │        ▼
                         │     what waits for R │ ──► answered

1. Behind by: all that waits, over what is answered a second while something does. When that is too
   much, for long enough, and when it is over again, is the shedder's to say.
2. While it sheds, a miss goes on as R can be read for it, by what R has answered a second of the
   time in which something waited for it; a hit, as the node could take events in if it did nothing
   else. So no hit is shed for R's sake.
3. Of the events that come together the strategy's highest priorities go on.

A step picks up what was found in between; R's own frequencies come from a thread of their own.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import numpy as np

from dovetail.join.shedding.line import Rate
from dovetail.join.shedding.shedder import Doors, Found, Progress, Shedder
from dovetail.join.shedding.strategies import KeepW, TopW
from dovetail.service.latest import Latest
from services.mapper.overload import COUNT_EVERY_S, RETRY_S, Strategies, figures_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from dovetail.join.caching import Hits
    from dovetail.join.columns import Flags, JoinKeys
    from dovetail.join.shedding.strategies import Strategy
    from dovetail.pipeline.spec import Pipeline
    from dovetail.service.latest import News
    from dovetail.settings import Settings

log = logging.getLogger(__name__)

_LOOK_EVERY_S = 1.0
_MEMORY_S = 2.0
"""What is served is a mean over so long."""
_SAVED_S = 2.0
"""Room that was not used is kept for so long."""


class NodeGuard:
    """Decides which events go on, as the cache half comes to them."""

    def __init__(
        self,
        when_behind: float,
        strategy: Strategy,
        clock: Callable[[], float],
        strategies: News[Strategy] | None = None,
    ) -> None:
        self._strategy = strategy
        self._strategies = strategies
        self._clock = clock
        self._limit = when_behind
        memory_s = min(max(when_behind / 2, 1.0), 30.0)
        self._shedder = Shedder(when_behind, strategy, memory_s)
        self._events, self._misses = _Gate(saved_s=_SAVED_S), _Gate()
        self._miss_share = 1.0
        self._looked_at = clock()
        self._seen = self._missed = self._kept = 0
        """Events that came; those of them that the cache had not; and of these those that went on,
        all of them since the beginning."""
        self._shed = 0
        self._answered_misses = 0
        self._before = (0, 0, 0)
        self._intake_s = self._reading_s = 0.0

    @property
    def strategy(self) -> str:
        return self._strategy.name

    def worked(self, intake_s: float, reading_s: float) -> None:
        """So much of a step's time went into taking events in, and so much into reading R."""
        self._intake_s += intake_s
        self._reading_s += reading_s

    def look(self, outside: int, pending: int) -> None:
        """Learn, about once a second, from what is left to read, and what waits for R."""
        now = self._clock()
        seconds = now - self._looked_at
        if seconds < _LOOK_EVERY_S:
            return
        if self._strategies and (strategy := self._strategies.take()):
            self._strategy = strategy
        seen, missed, answered = self._before
        self._answered_misses = max(answered, self._kept - pending)
        if pending and not self._reading_s:
            self._reading_s = seconds  # R is away: it takes all the time, and gives nothing
        self._events.learn(self._seen - seen, self._intake_s)
        self._misses.learn(self._answered_misses - answered, self._reading_s)
        if self._seen > seen:
            self._miss_share = (self._missed - missed) / (self._seen - seen)
        done = self._seen - self._shed - pending
        waiting = outside + pending
        before = self._shedder.shedding
        progress = Progress(now, self._seen + outside, done + waiting, done, done, done)
        self._shedder.look(progress)
        self._open(seconds)
        self._looked_at = now
        self._before = self._seen, self._missed, self._answered_misses
        self._intake_s = self._reading_s = 0.0
        if self._shedder.shedding != before:
            log.warning(
                "shedding begins" if self._shedder.shedding else "shedding ends",
                extra={"strategy": self.strategy, **self.figures()},
            )

    def admit(self, keys: JoinKeys, hits: Hits) -> Flags | None:
        """Say which of these events go on; None says that all do."""
        self._seen += len(keys)
        self._missed += len(hits.misses)
        kept = self._chosen(keys, hits) if self._shedder.shedding else None
        if kept is None:
            self._kept += len(hits.misses)
            return None
        self._shedder.has_shed()
        self._shed += len(keys) - int(np.count_nonzero(kept))
        self._kept += int(np.count_nonzero(kept[hits.misses]))
        return kept

    def drop(self) -> None:
        """What waited for R is read again."""
        again = self._kept - self._answered_misses
        self._kept -= again
        self._missed -= again
        self._seen -= again

    def figures(self) -> dict[str, float]:
        return figures_of(self._shedder)

    def close(self) -> None:
        if self._strategies:
            self._strategies.close()

    def _chosen(self, keys: JoinKeys, hits: Hits) -> Flags | None:
        now = self._clock()
        doors = Doors(self._events, self._misses, self._strategy)
        # A sample of the join is one of hits and misses alike.
        if isinstance(self._strategy, KeepW | TopW):
            doors.cached = Found(len(keys), hits)
        return doors.admit(keys, now, self._miss_share)

    def _open(self, seconds: float) -> None:
        """Say how fast either goes on while it sheds.

        What waits has to become less where it is much. Where it is little, more goes on than was
        served last: a read of few keys takes its time, and says nothing of one of many.
        """
        wait = self._shedder.behind
        share = min(max(1.5 - wait / self._limit, 0.5), 1.5)
        busy = (self._seen - self._before[0]) / max(self._events.rate * seconds, 1e-9)
        self._misses.share = share * (1.0 - min(busy, 0.5))
        self._events.share = share


class _Gate:
    """Room for as many events as can be served, of the time that there is for them."""

    def __init__(self, saved_s: float = 0.0) -> None:
        """It begins with the room of so many seconds."""
        self._rate = Rate(_MEMORY_S)
        self._saved_s = saved_s
        self.share = 1.0
        self._room = 0.0
        self._at: float | None = None

    @property
    def rate(self) -> float:
        """Events a second of the time spent on them; 0 while unknown."""
        return self._rate.value or 0.0

    def learn(self, events: int, seconds: float) -> None:
        # An outage before the first event served is no service rate.
        if seconds > 0 and (events or self._rate.value is not None):
            self._rate.learn(events, seconds)

    def room(self, at: float) -> float:
        if self._rate.value is None:
            return float("inf")
        rate = self.rate * self.share
        since = self._saved_s if self._at is None else at - self._at
        self._room = min(self._room + rate * since, rate * _SAVED_S)
        self._at = at
        return self._room

    def enter(self, events: float) -> None:
        self._room = max(self._room - events, 0.0)


def guard_of(
    settings: Settings, pipeline: Pipeline, clock: Callable[[], float]
) -> NodeGuard | None:
    """None if the pipeline leaves an overload to backpressure."""
    overload = pipeline.overload
    if overload is None:
        return None
    strategies = Strategies(overload, pipeline, settings.database_url)
    news: News[Strategy] | None = None
    if strategies.depends:
        news = Latest("f_R", strategies.choose, COUNT_EVERY_S, RETRY_S, strategies.close)
    return NodeGuard(overload.when_behind, strategies.first, clock, news)
