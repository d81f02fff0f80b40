"""What `/metrics` shows, fed a step at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    import collections
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from dovetail.join.columns import Ints

_STEP_BUCKETS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)
_LATENCY_S = np.array([0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300, 3600])
_LAG_S = np.array([0, 0.1, 1, 10, 60, 600, 3600, 6 * 3600, 86_400, 7 * 86_400], np.float64)


class Latency(Collector):
    """A histogram fed with whole batches: Prometheus's own takes a value at a time."""

    def __init__(
        self,
        name: str = "dovetail_latency_seconds",
        text: str = "From the source record's timestamp to the output being sent",
        bounds_s: NDArray[np.float64] = _LATENCY_S,
    ) -> None:
        self._name, self._text, self._bounds = name, text, bounds_s
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

    def collect(self) -> Iterator[HistogramMetricFamily]:
        cumulative = self._counts.cumsum().tolist()
        bounds = [str(bound) for bound in self._bounds.tolist()] + ["+Inf"]
        yield HistogramMetricFamily(
            self._name,
            self._text,
            buckets=list(zip(bounds, cumulative, strict=True)),
            sum_value=self._sum,
        )


class Metrics:
    """A service's registry. Event counts are those of committed steps only."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.latency = Latency()
        self.registry.register(self.latency)
        self._events = Counter(
            "dovetail_events",
            "Events by outcome, of committed steps",
            ["outcome"],
            registry=self.registry,
        )
        self._steps = Histogram(
            "dovetail_step_seconds",
            "A step from its first to its last call, commit included",
            buckets=_STEP_BUCKETS,
            registry=self.registry,
        )
        self._figures = Gauge(
            "dovetail_figure", "The stage's own figures", ["name"], registry=self.registry
        )

    def event_time_lag(self) -> Latency:
        """Show how late events come, by their own time; what is before 0 is ahead of the clock."""
        lag = Latency(
            "dovetail_event_time_lag_seconds", "From an event's time to its being read", _LAG_S
        )
        self.registry.register(lag)
        return lag

    def committed(self, counts: collections.Counter[str], seconds: float) -> None:
        for outcome, events in counts.items():
            self._events.labels(outcome).inc(events)
        self._steps.observe(seconds)

    def show(self, figures: dict[str, float]) -> None:
        for name, value in figures.items():
            self._figures.labels(name).set(value)
