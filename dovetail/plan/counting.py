"""How often each key came in a batch of events, by hour of the week."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dovetail.join.entry import distinct
from dovetail.plan.recency import HOURS, hours_of_week, weights

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dovetail.join.columns import Ints, JoinKeys

    Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Counted:
    """A row for each key and hour of the week that occurred together."""

    keys: JoinKeys
    hours: Ints
    events: Ints
    weights: Floats
    """The sum of what its events count as of the moment asked for (recency.py)."""

    def __len__(self) -> int:
        return len(self.hours)


def count(keys: JoinKeys, times_ms: Ints, as_of_ms: int, half_life_s: float) -> Counted:
    """Count events by their keys and times."""
    firsts, ranks = distinct(keys)
    groups, rows = np.unique(ranks * HOURS + hours_of_week(times_ms), return_inverse=True)
    weighed: Floats = np.zeros(len(groups))
    np.add.at(weighed, rows, weights(times_ms, as_of_ms, half_life_s))
    return Counted(
        keys.take(firsts[groups // HOURS]),
        groups % HOURS,
        np.bincount(rows, minlength=len(groups)).astype(np.int64),
        weighed,
    )
