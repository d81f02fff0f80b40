"""What `/metrics` shows, fed a step at a time."""

from __future__ import annotations

import collections
import threading
from typing import TYPE_CHECKING

import numpy as np
from prometheus_client import (
    CollectorRegistry,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from dovetail.pipeline.spec import Shed
from dovetail.service import declared
from dovetail.stream import ledger
from dovetail.stream.events.reasons import Reason
from dovetail.topology import CACHE_PHASE, DISK_PHASE, ENRICH, INGEST, INTAKE, MAPPER, NODE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from dovetail.join.columns import Ints
    from dovetail.service.declared import Declared, Family

# When a counter began is in no query of ours, and would be a series more for each.
disable_created_metrics()  # type: ignore[no-untyped-call]

_STEP_BUCKETS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)
_LATENCY_S = np.array([0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300, 3600])
_LAG_S = np.array([0, 0.1, 1, 10, 60, 600, 3600, 6 * 3600, 86_400, 7 * 86_400], np.float64)
_BESIDE = (ledger.IN, ledger.OUTPUTS, ledger.HITS)
"""What a ledger counts beside the outcomes of events."""


class Latency(Collector):
    """A histogram fed with whole batches: Prometheus's own takes a value at a time."""

    def __init__(
        self,
        metric: Declared = declared.LATENCY,
        bounds_s: NDArray[np.float64] = _LATENCY_S,
    ) -> None:
        self._metric, self._bounds = metric, bounds_s
        self._counts = np.zeros(len(bounds_s) + 1, np.int64)
        self._sum = 0.0

    def observe(self, milliseconds: Ints) -> None:
        seconds = milliseconds / 1000
        buckets = np.searchsorted(self._bounds, seconds)
        self._counts += np.bincount(buckets, minlength=len(self._counts))
        self._sum += float(seconds.sum())

    def take(self, other: Latency) -> None:
        """Take over what another has observed, and leave it with nothing."""
        self._counts += other._counts
        self._sum += other._sum
        other._counts[:] = 0
        other._sum = 0.0

    def told(self) -> dict[str, float]:
        """For heartbeats: how many events were answered within each bound, so far.

        Counts and not percentiles, as those of several processes cannot be added up. Nothing
        before the first answer: most stages have none.
        """
        if not self._counts.any():
            return {}
        bounds = [*(f"{bound:g}" for bound in self._bounds.tolist()), "inf"]
        counts = self._counts.cumsum().tolist()
        return {f"latency_le.{bound}": count for bound, count in zip(bounds, counts, strict=True)}

    def collect(self) -> Iterator[HistogramMetricFamily]:
        cumulative = self._counts.cumsum().tolist()
        bounds = [str(bound) for bound in self._bounds.tolist()] + ["+Inf"]
        yield HistogramMetricFamily(
            self._metric.name,
            self._metric.text,
            buckets=list(zip(bounds, cumulative, strict=True)),
            sum_value=self._sum,
        )


class _Counts(Collector):
    """Events of committed steps, by what became of them."""

    def __init__(self, kind: str) -> None:
        # From the beginning on, at 0: else the first dead letter would not be seen as a rise.
        self._counts = collections.Counter(dict.fromkeys((ledger.IN, *outcomes_of(kind)), 0))
        self._lock = threading.Lock()

    def add(self, counts: collections.Counter[str]) -> None:
        with self._lock:  # a process may have several loops
            self._counts.update(counts)

    def collect(self) -> Iterator[Family]:
        counts = self._counts.copy()
        taken, outputs, hits = (counts.pop(name, 0) for name in _BESIDE)
        yield declared.TAKEN.family([((), taken)])
        yield declared.EVENTS.family((split(name), count) for name, count in counts.items())
        yield declared.OUTPUTS.family([((), outputs)])
        yield declared.HITS.family([((), hits)])


class _Shown(Collector):
    """The stage's own figures, by the table."""

    def __init__(self) -> None:
        self.figures: dict[str, float] = {}

    def collect(self) -> Iterator[Family]:
        found: dict[declared.Declared, list[tuple[tuple[str, ...], float]]] = {}
        for figure, value in self.figures.items():
            metric, labels = declared.metric_of(figure)
            found.setdefault(metric, []).append((labels, value))
        for metric, samples in found.items():
            yield metric.family(samples)


def event_time_lag() -> Latency:
    """How late events come, for whoever is not shown himself."""
    return Latency(declared.EVENT_TIME_LAG, _LAG_S)


class Metrics:
    """A service's registry. Event counts are those of committed steps only."""

    def __init__(self, kind: str) -> None:
        """`kind` is the service's, without its link."""
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.latency = Latency()
        self._counts = _Counts(kind)
        self._shown = _Shown()
        for collector in (self.latency, self._counts, self._shown):
            self.registry.register(collector)
        self._steps = Histogram(
            declared.STEP.name,
            declared.STEP.text,
            buckets=_STEP_BUCKETS,
            registry=self.registry,
        )

    def event_time_lag(self) -> Latency:
        """Show how late events come, by their own time."""
        lag = event_time_lag()
        self.registry.register(lag)
        return lag

    def committed(self, counts: collections.Counter[str], seconds: float) -> None:
        self._counts.add(counts)
        self._steps.observe(seconds)

    def show(self, figures: dict[str, float]) -> None:
        """Show these figures, and none that were shown before."""
        self._shown.figures = figures


def split(outcome: str) -> tuple[str, str]:
    """Outcome and reason of a ledger's name: `dead.invalid-json`; most have no reason."""
    name, _, reason = outcome.partition(".")
    return name, reason


def outcomes_of(kind: str) -> tuple[str, ...]:
    """What a service's ledger may say of an event, beside its having come in."""
    answered = (ledger.ENRICHED, ledger.UNMATCHED)
    dead = tuple(ledger.dead(reason.label) for reason in Reason if reason is not Reason.GOOD)
    shed = tuple(ledger.shed(strategy) for strategy in Shed if strategy is not Shed.AUTO)
    found = {
        INGEST: (ledger.CLEAN, ledger.LOST, *dead),
        MAPPER: (ledger.MAPPED, *shed),
        CACHE_PHASE: (ledger.MISSED, ledger.PARKED, *answered),
        DISK_PHASE: (ledger.PARKED, *answered),
        ENRICH: (ledger.LOST, ledger.PARKED, *answered, *dead, *shed),
        NODE: (ledger.LOST, ledger.MAPPED, ledger.PARKED, *answered, *dead, *shed),
        INTAKE: (ledger.LOST, ledger.MAPPED, *dead, *shed),
    }
    return found[kind]


def figures_of(exposition: str) -> dict[str, float]:
    """Read figures back from what `/metrics` shows, by their names in heartbeats."""
    names = {metric.name: figure for figure, metric in declared.FIGURES.items()}
    found = {}
    for family in text_string_to_metric_families(exposition):
        for sample in family.samples:
            if sample.name in names:
                label = "".join(sample.labels.values())
                found[names[sample.name] + label] = sample.value
    return found
