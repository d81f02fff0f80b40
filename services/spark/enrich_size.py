"""How many events a batch has: fewer where a node cannot read R for all of them in time.

A batch that has failed by that would fail again, as large as it was, for ever. So it has half as
many events the next time, until it is answered, and grows again while that is quick.
"""

from __future__ import annotations

READING_S = 500.0
"""So long after a batch's beginning a node may begin to read R: its transaction has 600 s
(enrich_commit.py)."""
_QUICK_S = READING_S / 4
"""Twice as many events take half of the time then, as far as it depends on them."""


class BatchSize:
    def __init__(self, most: int) -> None:
        self._most = most
        self._quick = False
        self.events = most

    def too_slow(self) -> None:
        self.events = max(1, self.events // 2)

    def took(self, events: int, seconds: float) -> None:
        """Learn from a batch that was answered; one with few events says nothing of many."""
        self._quick = events >= self.events // 2 and seconds < _QUICK_S

    @property
    def may_grow(self) -> bool:
        return self._quick and self.events < self._most

    def grow(self) -> None:
        self._quick = False
        self.events = min(2 * self.events, self._most)
