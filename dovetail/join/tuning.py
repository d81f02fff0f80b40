"""AMESHJOIN's tuning module: b and w for the rate at which events arrive just now (§3.3).

1. The driver says how many events arrived; the clock says since when.
2. Before a step, the cost model is asked for the least memory that keeps up with that rate, a
   little to spare, or, where none does or events had to be refused, for the highest rate in the
   memory there is.
3. Its b and w are used for that step. A rate that hardly changed asks nothing anew.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from dovetail.errors import ConfigError
from dovetail.join.cost import meshjoin

if TYPE_CHECKING:
    from collections.abc import Callable

    from dovetail.join.cost.factors import Factors
    from dovetail.join.cost.plan import Plan
    from dovetail.join.cost.workload import Workload

WINDOW = 1.0
"""Seconds after which half of what was learnt of the rate is forgotten."""
SPARE = 1.1
"""Keep up with so much more than what arrives."""
_HARDLY = 0.05


class ArrivalTuner:
    """A `Tuner` for `Parameters.tuner`; `arrived` is for the driver to call."""

    def __init__(
        self, workload: Workload, factors: Factors, memory: float, clock: Callable[[], float]
    ) -> None:
        self._workload = workload
        self._factors = factors
        self._memory = memory
        self._clock = clock
        self._since = clock()
        self._arrived = 0
        self._more = False
        self.rate = 0.0
        self._planned_for = 0.0
        self.plan = meshjoin.highest_rate(workload, factors, memory)

    def arrived(self, events: int, *, more: bool = False) -> None:
        """So many events have come in; `more` had to stay outside, nobody knows how many."""
        self._arrived += events
        self._more |= more

    def learn(self, workload: Workload, factors: Factors) -> None:
        """Plan by what was measured since."""
        self._workload, self._factors = workload, factors
        self._planned_for = -1.0

    def __call__(self, pending: int) -> tuple[int, int]:
        """B and w for the next step; at least what waits already is worth reading for."""
        self._measure()
        wanted = math.inf if self._more else self.rate
        self._more = False
        if not math.isclose(wanted, self._planned_for, rel_tol=_HARDLY):
            self._planned_for = wanted
            self.plan = self._plan(wanted)
        return max(1, round(self.plan.pages)), max(1, pending, math.ceil(self.plan.events))

    def _measure(self) -> None:
        now = self._clock()
        elapsed = now - self._since
        if elapsed <= 0:
            return
        kept = 0.5 ** (elapsed / WINDOW)
        self.rate = kept * self.rate + (1 - kept) * self._arrived / elapsed
        self._since = now
        self._arrived = 0

    def _plan(self, rate: float) -> Plan:
        try:
            least = meshjoin.least_memory(self._workload, self._factors, SPARE * rate)
        except ConfigError:  # no memory buys this rate
            least = None
        if least is not None and least.memory <= self._memory:
            return least
        return meshjoin.highest_rate(self._workload, self._factors, self._memory)
