"""Phases behind a shedder, on a clock of their own: counts of events in place of services.

phases = SimulatedPhases(shedder, cache_rate=50_000, disk_rate=2_000, miss_share=0.2)
kept = phases.tick(0.1, keys)  # a tenth of a second, in which these arrive
assert shedder.shedding
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dovetail.join.shedding.shedder import Progress

if TYPE_CHECKING:
    from dovetail.join.columns import Flags, Ints, JoinKeys
    from dovetail.join.shedding.shedder import Shedder

_LOOK_EVERY_S = 1.0


class SimulatedPhases:
    """Serves in order of arrival at rates that may change from tick to tick.

    Events miss by a share, or by their keys: then those of `cached` are hits, and the cache phase
    has to be fast enough to take everything at once.
    """

    def __init__(
        self,
        shedder: Shedder,
        cache_rate: float,
        disk_rate: float,
        miss_share: float = 1.0,
        cached: Ints | None = None,
    ) -> None:
        self.shedder = shedder
        self.cache_rate = cache_rate
        self.disk_rate = disk_rate
        self.miss_share = miss_share
        self.cached = cached
        self.now = 0.0
        self.arrived = 0
        self.mapped = 0
        self._taken = 0.0
        self._missing = 0
        self._missed = 0.0
        self._answered = 0.0
        self._looked = -_LOOK_EVERY_S

    @property
    def waiting(self) -> float:
        """Events behind the mapper that are not answered yet."""
        return self.mapped - self._taken + self._missed - self._answered

    def tick(self, seconds: float, keys: JoinKeys) -> Flags:
        """Let time pass, then these events arrive; say which of them went on."""
        self.now += seconds
        taken = min(self.mapped - self._taken, self.cache_rate * seconds)
        self._taken += taken
        self._missed += taken * self.miss_share if self.cached is None else self._missing
        self._missing = 0
        self._answered += min(self._missed - self._answered, self.disk_rate * seconds)
        if self.now - self._looked >= _LOOK_EVERY_S - 1e-9:
            self._looked = self.now
            self.shedder.look(self._progress())
        kept = self.shedder.admit(keys, self.now)
        if kept is None:
            kept = np.ones(len(keys), np.bool_)
        self.arrived += len(keys)
        self.mapped += int(np.count_nonzero(kept))
        if self.cached is not None:
            self._missing = int(np.count_nonzero(~np.isin(keys.values[kept], self.cached)))
        return kept

    def _progress(self) -> Progress:
        return Progress(
            self.now,
            self.arrived,
            self.mapped,
            int(self._taken),
            int(self._missed),
            int(self._answered),
        )
