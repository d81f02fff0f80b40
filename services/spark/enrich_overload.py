"""Sheds in an overload: the driver says when and how much, batch by batch, and a node which events.

    source: │ what waits │ ──► a batch ──┬──► answered
                                         └──► shed

1. Behind by: what waits in the source topic over what batches answer a second. When that is too
   much, for long enough, and when it is over again, is the mapper's own shedder's to say. What a
   batch shows was so from its beginning: nobody has to wait for the next, which may be long.
2. While it sheds, a batch may take half of `when_behind`: an event waits for the batch under way,
   and then for its own.
3. A batch's time goes into reading R, for its misses, and into all else, for every event; what
   either takes is learnt from the batches before. All else comes first, with up to half of the
   time: so hits are shed only where they are too many by themselves (decision 11).
4. Which events those are that go on is said by the mapper's own strategies, among some thousand
   events at a time.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dovetail.join.shedding.line import Rate
from dovetail.join.shedding.shedder import Doors, Found, Progress, Shedder
from dovetail.join.shedding.strategies import KeepW, TopW
from dovetail.service.latest import Latest
from dovetail.stream import ledger
from dovetail.stream.ledger import shed_events
from services.mapper.overload import COUNT_EVERY_S, RETRY_S, Strategies, figures_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dovetail.join.caching import Hits
    from dovetail.join.columns import Flags, JoinKeys
    from dovetail.join.shedding.strategies import Strategy
    from dovetail.pipeline.spec import Overload, Pipeline
    from dovetail.service.latest import News
    from dovetail.settings import Settings
    from services.spark.enrich_node import Report

log = logging.getLogger(__name__)

_ANSWERED = (ledger.ENRICHED, ledger.UNMATCHED, ledger.PARKED)
_MEMORY_S = 0.5
"""A batch that takes longer says by itself what can be served: it is a mean already."""
_WEIGHT = 0.3
"""Of one batch against all before it."""


@dataclass(frozen=True, slots=True)
class Admission:
    """What may go on of a batch in which events are shed."""

    misses: float
    """What share of those that have to be read."""
    events: float
    """What share of all."""
    miss_share: float
    """How many miss, where it does not matter which."""


class BatchGuard:
    """The driver's part: watches what waits, and decides before every batch."""

    def __init__(
        self,
        overload: Overload,
        ends: Callable[[], list[int]],
        most_events: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`ends` tells where the source's partitions end; a batch has `most_events` at most."""
        self._ends = ends
        self.most_events = most_events
        self._clock = clock
        self._limit = overload.when_behind
        # Which events are shed is the nodes' matter: they have the keys.
        self._shedder = Shedder(overload.when_behind, KeepW(), _MEMORY_S)
        self._reached: dict[int, int] = {}
        self._warm = False
        """Whether the run has answered a batch: the first one loads kernels and opens files."""
        self._answered = 0
        self._busy_s = 0.0
        self._arriving = Rate(overload.when_behind)
        self._looked_at: float | None = None
        self._arrived = 0
        self._miss_share = 1.0
        self._read_s: float | None = None
        """What a miss takes of a node's time for R; None before there was one."""
        self._event_s: float | None = None
        """What an event takes of it for all else."""
        self._abreast = 1.0
        """How many nodes work at a time."""

    def begin(self, positions: dict[int, int]) -> None:
        """Begin a run at these offsets of the source."""
        self._reached = dict(positions)
        self._warm = False

    def admission(self) -> Admission | None:
        """Look at what waits before a batch; None if all of it goes on."""
        events = min(self._look(), self.most_events)
        if not self._shedder.shedding or not events or self._event_s is None:
            return None
        given = self._limit / 2 * self._abreast
        for_all = min(events * self._event_s, given / 2)
        misses = events * self._miss_share
        to_read = (given - for_all) / self._read_s if self._read_s else misses
        return Admission(
            min(1.0, to_read / max(misses, 1.0)),
            min(1.0, for_all / max(events * self._event_s, 1e-9)),
            self._miss_share,
        )

    def note(self, reports: Sequence[Report], seconds: float) -> None:
        """Learn from a batch that took so long."""
        counts: Counter[str] = Counter()
        for report in reports:
            self._reached.update(report.reached)
            counts.update(report.counts)
        answered = sum(counts[name] for name in _ANSWERED)
        if answered:
            self._learn(reports, answered, answered - counts[ledger.HITS], seconds)
        began = self._busy_s
        self._answered += answered
        self._busy_s += max(report.seconds for report in reports)
        if shed_events(counts):
            self._shedder.has_shed()
        self._look(began if self._warm else None)
        self._warm = True

    def figures(self) -> dict[str, float]:
        return {**figures_of(self._shedder), "arrival_rate": self._arriving.value or 0.0}

    def _learn(self, reports: Sequence[Report], answered: int, misses: int, seconds: float) -> None:
        busy = sum(report.seconds for report in reports)
        reading = sum(report.reading_s for report in reports)
        self._event_s = _mean(self._event_s, (busy - reading) / answered)
        if misses:
            self._read_s = _mean(self._read_s, reading / misses)
        if seen := sum(report.seen for report in reports):
            self._miss_share = sum(report.missed for report in reports) / seen
        self._abreast = max(1.0, _mean(self._abreast, busy / max(seconds, 1e-9)))

    def _look(self, since: float | None = None) -> int:
        """Tell the shedder how far it is; give what waits."""
        waiting = sum(
            max(0, end - self._reached.get(number, 0)) for number, end in enumerate(self._ends())
        )
        now, before = self._clock(), self._shedder.shedding
        arrived = waiting + sum(self._reached.values())
        if self._looked_at is not None and now > self._looked_at:
            self._arriving.learn(arrived - self._arrived, now - self._looked_at)
        self._looked_at, self._arrived = now, arrived
        # By the time that batches took: what lies between them says nothing of what they can do.
        self._shedder.look(
            Progress(
                at=self._busy_s,
                arrived=arrived,
                mapped=self._answered + waiting,
                taken=self._answered,
                missed=self._answered,
                answered=self._answered,
            ),
            since,
        )
        if self._shedder.shedding != before:
            log.warning(
                "shedding begins" if self._shedder.shedding else "shedding ends",
                extra=self.figures(),
            )
        return waiting


def _mean(before: float | None, value: float) -> float:
    return value if before is None else before + _WEIGHT * (value - before)


class NodeGuard:
    """A node's part: chooses among the events of a batch."""

    def __init__(self, settings: Settings, pipeline: Pipeline, overload: Overload) -> None:
        strategies = Strategies(overload, pipeline, settings.database_url)
        self._strategy: Strategy = strategies.first
        self._news: News[Strategy] | None = None
        if strategies.depends:
            self._news = Latest("f_R", strategies.choose, COUNT_EVERY_S, RETRY_S, strategies.close)
        self._choice: BatchChoice | None = None
        self.seen = self.missed = 0
        """Of the batch's events so far, shed ones included."""

    @property
    def strategy(self) -> str:
        return self._strategy.name

    def begin(self, admission: Admission | None) -> None:
        """Begin a batch; without an admission all of it goes on."""
        if self._news and (strategy := self._news.take()):
            self._strategy = strategy
        self.seen = self.missed = 0
        self._choice = None if admission is None else BatchChoice(admission, self._strategy)

    def admit(self, keys: JoinKeys, hits: Hits) -> Flags | None:
        """Say which of these events go on; None says that all do."""
        self.seen += len(keys)
        self.missed += len(hits.misses)
        return None if self._choice is None else self._choice.admit(keys, hits)

    def close(self) -> None:
        if self._news:
            self._news.close()


class BatchChoice:
    """Which events of a batch go on, as they come."""

    def __init__(self, admission: Admission, strategy: Strategy) -> None:
        self._miss_share = admission.miss_share
        self._events, self._misses = _Share(admission.events), _Share(admission.misses)
        self._doors = Doors(self._events, self._misses, strategy)
        # A sample of the join is one of hits and misses alike.
        self._by_worth = isinstance(strategy, KeepW | TopW)

    def admit(self, keys: JoinKeys, hits: Hits) -> Flags | None:
        self._events.come(len(keys))
        if self._by_worth:
            self._doors.cached = Found(len(keys), hits)
            self._misses.come(len(hits.misses))
        else:
            self._misses.come(len(keys) * self._miss_share)
        return self._doors.admit(keys, 0.0, self._miss_share)


class _Share:
    """A gate that has room for a share of what comes."""

    def __init__(self, share: float) -> None:
        self._share = share
        self._room = 0.0

    def come(self, events: float) -> None:
        self._room += self._share * events

    def room(self, _: float) -> float:
        # A share of one is all, whatever rounding makes of the sums.
        return self._room if self._share < 1.0 else float("inf")

    def enter(self, events: float) -> None:
        self._room = max(self._room - events, 0.0)
