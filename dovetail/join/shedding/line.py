"""How long an event waits in front of a stage, told from two running totals.

    arrived ──► │ backlog = arrived - served │ ──► served, `rate` a second

The rate is learnt only while something waits: what a stage does with nothing to do says nothing
about what it could. It forgets exponentially, so that a stage that stands still counts as ever
slower, not as lost at once. Before it has served anything, the wait is how long that has lasted.

Times are in seconds on whatever clock the caller looks at.
"""

from __future__ import annotations

import math

LONGEST_S = 86_400.0
"""Whatever takes longer than a day takes a day: a figure has to stay finite."""


class Rate:
    """Events a second, lately: the mean of what it was told, weighted by `memory_s`."""

    def __init__(self, memory_s: float) -> None:
        self._memory_s = memory_s
        self.value: float | None = None
        """None before there was anything to learn from."""

    def learn(self, events: int, seconds: float) -> None:
        rate = max(events, 0) / seconds
        if self.value is None:
            self.value = rate
        else:
            self.value += (1.0 - math.exp(-seconds / self._memory_s)) * (rate - self.value)


class Line:
    """What waits in front of one stage."""

    def __init__(self, memory_s: float) -> None:
        self._rate = Rate(memory_s)
        self._last: tuple[float, int] | None = None
        self._idle_until: float | None = None
        self._at = 0.0
        self.backlog = 0

    @property
    def rate(self) -> float:
        """Events a second that the stage takes when it has enough of them; 0 while unknown."""
        return self._rate.value or 0.0

    @property
    def wait(self) -> float:
        """Seconds until an event that arrives now is served."""
        if not self.backlog or self._idle_until is None:
            return 0.0
        if self._rate.value is None:
            return self._at - self._idle_until
        return min(self.backlog / max(self.rate, self.backlog / LONGEST_S), LONGEST_S)

    def look(self, at: float, arrived: int, served: int) -> None:
        """Take the totals as of a moment."""
        waited = self.backlog > 0
        if self._last is not None and waited and at > self._last[0]:
            events = served - self._last[1]
            # An outage before the first event served is no service rate.
            if events or self._rate.value is not None:
                self._rate.learn(events, at - self._last[0])
        if not waited:
            self._idle_until = at
        self._last = (at, served)
        self._at = at
        self.backlog = max(arrived - served, 0)
