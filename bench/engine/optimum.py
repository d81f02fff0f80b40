"""The ratio of SSBJ to MESHJOIN that Theorem 1 of SSBJ allows, where reading R bounds both.

Both read R once a cycle, so that the ratio of their rates is that of the events they let in a
cycle. MESHJOIN must hold all of them; SSBJ holds for each key the smaller of two sides, its entry
or its events. Solved for the events that fill the memory, over ranges of keys that are alike.

Two accounts of "hold":
- engine: what this engine takes. Keys are unique, so that the events of a key leave together at
  its match: on average half of a cycle's are there at a time, and the key's record while any is.
- paper: an event stays for a whole cycle and takes v_S bytes, a row takes v_R.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bench.engine.data import EVENT_BYTES, ROW_BYTES
from dovetail.join.cost.footprint import entry_footprint, event_footprint
from dovetail.join.cost.popularity import ZipfPopularity, ranges
from dovetail.join.pool import BYTES_A_BLOCK

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

_HALVINGS = 60


@dataclass(frozen=True, slots=True)
class Account:
    """What a key's side takes: bytes of an event and of a record, events there at a time."""

    event: float
    record: float
    entry: float
    share: float

    def pending(self, events: Floats) -> Floats:
        """Bytes of a key's pending events, when so many come a cycle on average."""
        some = np.where(events > 0, 1 - -np.expm1(-events) / np.maximum(events, 1e-300), 0.0)
        return np.asarray(self.share * events * self.event + self.record * some)


ENGINE = Account(
    event_footprint(EVENT_BYTES), BYTES_A_BLOCK, entry_footprint(ROW_BYTES, 1), share=0.5
)
PAPER = Account(EVENT_BYTES, 0, ROW_BYTES, share=1.0)


def allowed_ratio(rows: int, skew: float, memory: float, account: Account = ENGINE) -> float:
    """Events a cycle of SSBJ over those of MESHJOIN, both in the same memory."""
    edges = ranges(rows)
    keys = np.diff(edges)
    shares = np.diff(ZipfPopularity(rows, skew).share(edges)) / keys

    def both(events: float) -> float:
        return float(keys @ np.minimum(account.entry, account.pending(events * shares)))

    def one(events: float) -> float:
        return float(keys @ account.pending(events * shares))

    return _filling(both, memory) / _filling(one, memory)


def _filling(takes: Callable[[float], float], memory: float) -> float:
    """The events a cycle that take just this memory."""
    low, high = 1.0, 1e12
    for _ in range(_HALVINGS):
        middle = (low * high) ** 0.5
        if takes(middle) < memory:
            low = middle
        else:
            high = middle
    return low
