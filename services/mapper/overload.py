"""Sheds in an overload: brings together the shedder, the phases' ledgers, f_R and the caches' keys.

The ledgers are read once a second, f_R is counted once an hour, and the caches are followed while
it sheds, each in a thread of its own; a step only picks up what they have found.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from dovetail.join.kinds import JoinKind
from dovetail.join.shedding.choice import Criterion, Relationship, strategy_for, strategy_named
from dovetail.join.shedding.frequency import KnownFrequencies, most_keys
from dovetail.join.shedding.shedder import Progress, Shedder
from dovetail.join.shedding.strategies import KeepW, SampleW, TopW
from dovetail.master.frequencies import MasterFrequencies
from dovetail.pipeline.spec import Shed
from dovetail.service.latest import Latest
from dovetail.stream import ledger
from dovetail.stream.ledger import parse
from dovetail.stream.offsets import CommittedOffsets
from dovetail.topology import CACHE_PHASE, DISK_PHASE, MAPPER
from services.mapper.cached_keys import CachedKeys

if TYPE_CHECKING:
    from dovetail.join.columns import Flags, JoinKeys
    from dovetail.join.shedding.choice import Choice
    from dovetail.join.shedding.frequency import Floats
    from dovetail.join.shedding.strategies import Strategy
    from dovetail.master.frequencies import Counted
    from dovetail.pipeline.spec import Overload, Pipeline
    from dovetail.service.latest import News
    from dovetail.settings import Settings
    from dovetail.topology import Topology

log = logging.getLogger(__name__)

_LOOK_EVERY_S = 1.0
COUNT_EVERY_S = 3600.0
RETRY_S = 60.0


class OverloadGuard:
    """Decides, step by step, which events go on."""

    def __init__(
        self,
        shedder: Shedder,
        progress: News[Progress],
        strategies: News[Strategy] | None = None,
        caches: Caches | None = None,
    ) -> None:
        self._shedder = shedder
        self._progress = progress
        self._strategies = strategies
        self._caches = caches

    @property
    def strategy(self) -> str:
        return self._shedder.doors.strategy.name

    def look(self) -> None:
        """Pick up what was found out since the last time."""
        seen = self._progress.take()
        if seen is not None:
            before = self._shedder.shedding
            self._shedder.look(seen)
            if self._shedder.shedding != before:
                self._tell()
        if self._strategies and (strategy := self._strategies.take()):
            self._shedder.doors.strategy = strategy
        if self._caches:
            self._look_at_caches(self._caches)

    def admit(self, keys: JoinKeys) -> Flags | None:
        """Say which of these events go on; None says that all do."""
        return self._shedder.admit(keys, time.monotonic())

    def figures(self) -> dict[str, float]:
        return figures_of(self._shedder)

    def close(self) -> None:
        self._progress.close()
        for news in (self._strategies, self._caches):
            if news:
                news.close()

    def _look_at_caches(self, caches: Caches) -> None:
        wanted = self._shedder.shedding and isinstance(self._shedder.doors.strategy, KeepW | TopW)
        caches.want(wanted)
        cached = caches.take()
        if not wanted:
            self._shedder.doors.cached = None
        elif cached is not None:
            self._shedder.doors.cached = cached

    def _tell(self) -> None:
        log.warning(
            "shedding begins" if self._shedder.shedding else "shedding ends",
            extra={"strategy": self.strategy, **self.figures()},
        )


def figures_of(shedder: Shedder) -> dict[str, float]:
    return {
        "behind_seconds": shedder.behind,
        "arrival_rate": shedder.arrival_rate,
        "service_rate": shedder.service_rate,
        "shedding": float(shedder.shedding),
    }


def guard_of(settings: Settings, pipeline: Pipeline, topology: Topology) -> OverloadGuard | None:
    """None if the pipeline leaves an overload to backpressure."""
    overload = pipeline.overload
    if overload is None:
        return None
    ledgers = Ledgers(settings, topology)
    strategies = Strategies(overload, pipeline, settings.database_url)
    return OverloadGuard(
        Shedder(overload.when_behind, strategies.first),
        Latest("ledgers", ledgers.read, _LOOK_EVERY_S, _LOOK_EVERY_S, ledgers.close),
        Latest("f_R", strategies.choose, COUNT_EVERY_S, RETRY_S, strategies.close)
        if strategies.depends
        else None,
        Caches(CachedKeys.over(settings, topology, pipeline.memory // 16)),
    )


class Caches:
    """The caches' keys, followed in a thread of its own while they are wanted.

    A sample of the join is one of hits and misses alike, so it is for the other strategies only.
    """

    def __init__(self, keys: CachedKeys) -> None:
        self._keys = keys
        self._latest = Latest("caches", keys.read, _LOOK_EVERY_S, _LOOK_EVERY_S, keys.close)

    def want(self, wanted: bool) -> None:
        self._keys.wanted = wanted

    def take(self) -> KnownFrequencies | None:
        return self._latest.take()

    def close(self) -> None:
        self._latest.close()


class Ledgers:
    """How far the mapper and the phases behind it have come, from what they committed."""

    def __init__(self, settings: Settings, topology: Topology) -> None:
        self._offsets = {
            service: CommittedOffsets(
                settings, topology.group(service), topology.stage(service).reads
            )
            for service in (DISK_PHASE, CACHE_PHASE, MAPPER)
        }

    def read(self) -> Progress:
        """Read the last stage first: what moves on meanwhile waits, and is never negative."""
        counts = {service: self._total(service) for service in self._offsets}
        mapper, cache, disk = counts[MAPPER], counts[CACHE_PHASE], counts[DISK_PHASE]
        return Progress(
            at=time.monotonic(),
            arrived=mapper[ledger.IN],
            mapped=mapper[ledger.MAPPED],
            taken=cache[ledger.IN],
            missed=cache[ledger.MISSED],
            answered=disk[ledger.ENRICHED] + disk[ledger.UNMATCHED] + disk[ledger.PARKED],
        )

    def close(self) -> None:
        for offsets in self._offsets.values():
            offsets.close()

    def _total(self, service: str) -> Counter[str]:
        total: Counter[str] = Counter()
        for at in self._offsets[service].read().values():
            total.update(parse(at.text))
        return total


class Strategies:
    """The strategy that the pipeline asks for, over f_R as PostgreSQL counts it.

    Before f_R is known, every key counts alike: topw does what keep-w would, cluster sampling what
    sample-w would. So nothing has to wait for the database.

    Memory: a 32nd of the pipeline's `memory`, and as much again while a new count replaces it.
    """

    def __init__(self, overload: Overload, pipeline: Pipeline, database_url: str) -> None:
        self._criterion = overload.criterion or Criterion.MAX_SUBSET
        self._named = None if overload.shed is Shed.AUTO else strategy_named(overload.shed)
        self._kind = pipeline.join
        self._budget = pipeline.memory // 32
        self._master = MasterFrequencies(database_url, pipeline)
        self._chance = np.random.default_rng()
        self._told = ""
        nobody = KnownFrequencies(0, np.empty(0, np.int64), np.empty(0))
        self.first: Strategy = self._by(self._most_general).make(nobody, self._chance)

    @property
    def depends(self) -> bool:
        """Whether there is anything to find out in the database."""
        return not isinstance(self.first, KeepW | SampleW)

    def choose(self) -> Strategy:
        """Look at the table, and count its keys if the choice depends on it."""
        if self._named is None and self._master.unique():
            return self._make(Relationship.MANY_TO_ONE, None)
        counted = self._master.count(most_keys(self._budget))
        one = Relationship.MANY_TO_ONE if counted.unique else Relationship.MANY_TO_MANY
        return self._make(one, counted)

    def close(self) -> None:
        self._master.close()

    @property
    def _most_general(self) -> Relationship:
        """A semi or anti join gives an event at most one output, however many rows it has."""
        if self._kind.takes_columns:
            return Relationship.MANY_TO_MANY
        return Relationship.MANY_TO_ONE

    def _by(self, relationship: Relationship) -> Choice:
        return self._named or strategy_for(relationship, self._criterion)

    def _make(self, relationship: Relationship, counted: Counted | None) -> Strategy:
        choice = self._by(relationship)
        if choice.strategy != self._told:
            self._told = choice.strategy
            log.info(
                "chosen what to shed", extra={"strategy": choice.strategy, "reason": choice.reason}
            )
        return choice.make(self._known(counted), self._chance)

    def _known(self, counted: Counted | None) -> KnownFrequencies:
        if counted is None:
            return KnownFrequencies(0, np.empty(0, np.int64), np.empty(0))
        (other,) = results(self._kind, np.array([counted.rest]))
        return KnownFrequencies(
            self._budget, counted.keys, results(self._kind, counted.rows), float(other)
        )


def results(kind: JoinKind, rows: Floats | np.ndarray) -> Floats:
    """How many outputs events with so many master rows have."""
    match kind:
        case JoinKind.INNER:
            return np.asarray(rows, np.float64)
        case JoinKind.LEFT:
            return np.maximum(rows, 1.0)
        case JoinKind.SEMI:
            return np.minimum(rows, 1.0)
        case JoinKind.ANTI:
            return np.maximum(1.0 - rows, 0.0)
