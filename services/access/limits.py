"""How often somebody may ask: a bucket each, filled at a rate, of which a request takes one."""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_MOST_KEPT = 10_000
"""Buckets; whoever was not heard of for longest starts with a full one again."""


class Limits:
    """For the event loop's thread alone."""

    def __init__(
        self, rate: float, burst: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rate = rate
        self._burst = burst
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, who: str) -> float:
        """Take one; 0, or the seconds until there is one."""
        left = self._left(who)
        self._buckets[who] = (left - 1 if left >= 1 else left, self._clock())
        self._buckets.move_to_end(who)
        if len(self._buckets) > _MOST_KEPT:
            self._buckets.popitem(last=False)
        return 0.0 if left >= 1 else (1 - left) / self._rate

    def _left(self, who: str) -> float:
        left, at = self._buckets.get(who, (self._burst, self._clock()))
        return min(self._burst, left + (self._clock() - at) * self._rate)
