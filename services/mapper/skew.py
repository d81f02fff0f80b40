"""How evenly the events are spread over the slots, lately."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from dovetail.join.columns import Ints

_MEMORY_S = 60.0


class Skew:
    """Events by slot, each counting the less the longer ago it came: a minute's worth."""

    def __init__(self, slots: int, now: float) -> None:
        self._events = np.zeros(slots)
        self._weight = 0.0
        self._at = now

    def add(self, by_slot: Ints, now: float) -> None:
        kept = math.exp(-(now - self._at) / _MEMORY_S)
        self._weight = 1.0 - (1.0 - self._weight) * kept
        self._events = self._events * kept + by_slot
        self._at = now

    def figures(self) -> dict[str, float]:
        """`slot_skew`, the busiest slot's events over the mean, and each slot's events a second."""
        mean = self._events.mean()
        rates = self._events / (_MEMORY_S * self._weight) if self._weight else self._events
        return {
            "slot_skew": float(self._events.max() / mean) if mean else 1.0,
            **{f"slot_rate.{slot}": rate for slot, rate in enumerate(rates.tolist())},
        }
