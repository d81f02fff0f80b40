"""How the events flow during a run: the audit, a few times a second.

In a thread of its own, so that a broker that does not answer never keeps the supervisor from
starting again what has ended.
"""

from __future__ import annotations

import contextlib
import threading
from bisect import bisect_left
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from dovetail.audit import Auditor
from dovetail.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from dovetail.audit import Audit
    from dovetail.testing.pipeline import RunningPipeline

_EVERY_S = 0.25


@dataclass(frozen=True, slots=True)
class Sample:
    at: float
    answered: int
    """Events enriched, unmatched or dead-lettered, by the ledgers."""
    by_slot: dict[int, int] = field(default_factory=dict)
    """Events answered, by the slot of their key."""


class Flow:
    def __init__(self, pipeline: RunningPipeline, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._settings = replace(pipeline.settings, kafka={"reconnect.backoff.max.ms": "500"})
        self._topology = pipeline.topology
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="flow", daemon=True)
        self.samples: list[Sample] = []
        self.latest: tuple[float, Audit] | None = None
        """The last audit, and when it was begun."""
        self.off: list[str] = []
        """Where the sum was off at a look. Transactions become visible a topic at a time, so
        such a look is told, and only the last one counts."""

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(timeout=60)

    def answered_by(self, count: int, since: float) -> float | None:
        """Seconds from `since` until so many events were answered; None if they never were."""
        first = bisect_left(self.samples, since, key=lambda sample: sample.at)
        for sample in self.samples[first:]:
            if sample.answered >= count:
                return sample.at - since
        return None

    def until_every_slot(self, since: float) -> float | None:
        """Seconds from `since` until each slot has answered something; None if one never did."""
        first = bisect_left(self.samples, since, key=lambda sample: sample.at)
        after = self.samples[first:]
        if not after:
            return None
        # What was committed before the fault may show in the first look after it.
        before, silent = after[0].by_slot, set(after[0].by_slot)
        for sample in after[1:]:
            silent -= {slot for slot in silent if sample.by_slot.get(slot, 0) > before[slot]}
            if not silent:
                return sample.at - since
        return None

    def longest_silence(self) -> tuple[float, float]:
        """How long at most no answer came, and since when."""
        moved = [(0.0, 0)]
        for sample in self.samples:
            if sample.answered > moved[-1][1]:
                moved.append((sample.at, sample.answered))
        gaps = [(after - before, before) for (before, _), (after, _) in pairwise(moved)]
        return max(gaps, default=(0.0, 0.0))

    def _run(self) -> None:
        with closing(Auditor(self._settings, self._topology)) as auditor:
            while not self._stop.is_set():
                began = self._clock()
                with contextlib.suppress(Unavailable):
                    self._take(began, auditor.audit(), auditor.answered_by_slot())
                self._stop.wait(max(0.02, began + _EVERY_S - self._clock()))

    def _take(self, began: float, seen: Audit, by_slot: dict[int, int]) -> None:
        self.latest = began, seen
        answered = seen.enriched + seen.unmatched + seen.dead_lettered
        self.samples.append(Sample(self._clock(), answered, by_slot))
        self.off += [f"{self._clock():.1f} s: {problem}" for problem in seen.problems]
