"""How many events find a master row, and whether that has collapsed.

The share of the latest events is held against what is usual here. A table that was emptied, loaded
by half or filled with other keys shows in it within some thousand events, long before somebody
misses the outputs.
"""

from __future__ import annotations

import logging

log = logging.getLogger(__name__)

LATELY, USUALLY = 5_000, 500_000
"""Events after which two thirds of a figure are their doing."""
COLLAPSED, RECOVERED = 0.25, 0.5
"""Of the usual share: below the one an alarm begins, above the other it ends."""
_WORTH_WATCHING = 0.05
"""Where hardly any event ever finds a row, there is nothing to collapse."""


class MatchRate:
    def __init__(self, table: str) -> None:
        self._table = table
        self._seen = 0
        self.lately = 0.0
        self.usual = 0.0
        self.alarm = ""
        """What is wrong, and what to look at; empty if nothing is."""

    def see(self, events: int, matched: int) -> None:
        """Count events that were answered, and how many of them had a master row."""
        if not events:
            return
        self._seen += events
        share = matched / events
        self.lately += (share - self.lately) * _weight(events, min(self._seen, LATELY))
        if not self.alarm:  # what goes wrong is not to become usual
            self.usual += (share - self.usual) * _weight(events, min(self._seen, USUALLY))
        self._judge()

    def figures(self) -> dict[str, float]:
        """Both shares; none before there is an event."""
        return {"match_rate": self.lately, "match_rate_usual": self.usual} if self._seen else {}

    def _judge(self) -> None:
        if self._seen < LATELY or self.usual < _WORTH_WATCHING:
            return
        if self.alarm and self.lately > RECOVERED * self.usual:
            log.warning("match rate is back", extra={"share": round(self.lately, 3)})
            self.alarm = ""
        elif not self.alarm and self.lately < COLLAPSED * self.usual:
            self.alarm = (
                f"only {self.lately:.1%} of the latest events find a row in {self._table}, where "
                f"{self.usual:.1%} is usual: was it emptied or loaded in part, or do the events "
                f"carry other keys?"
            )
            log.error("match rate has collapsed", extra={"reason": self.alarm})


def _weight(events: int, horizon: int) -> float:
    return events / max(events, horizon)
