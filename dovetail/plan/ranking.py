"""Which keys a cache should hold, the most worthwhile first (SSBJ's Theorem 2, then worth a byte).

    n = rate × horizon                     the events that the key's entry would answer
    m · v_R < n · v_S                      its entry takes less than they would
    worth = n / (m · v_R)                  the events that a byte saves

The horizon is the time over which events count. Where a cache's size follows from the stream, as
by SSBJ's policy, that is how long an event waits. Where it is given, as by all other policies, a
key's entry answers until its rows are read anew. There the inequality keeps out who would be
answered once or never, worth ranks the rest, and the budget cuts.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

from dovetail.join.cached import LARGEST_SHARE
from dovetail.join.pool import BYTES_A_BLOCK
from dovetail.kernels import kernel
from dovetail.plan.room import entry_blocks

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dovetail.join.columns import Flags, Ints, SmallInts

    Floats = NDArray[np.float64]


class Verdict(StrEnum):
    """Why a key is in the plan, or is not."""

    CHOSEN = "chosen"
    INEQUALITY = "inequality"
    """Its entry takes more than the events that it would answer."""
    TOO_LARGE = "too-large"
    """No cache takes in an entry of that size."""
    BUDGET = "budget"
    """Others of its slot are worth more, and fill it."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What a plan is made for."""

    horizon_s: float
    event_blocks: float
    """v_S: what an event takes while it waits."""
    cache_blocks: int
    """Of a node's whole cache."""
    slot_blocks: int
    """That the plan may fill for a slot."""


@dataclass(frozen=True, slots=True)
class Ranked:
    """For each key what it is judged by; those that pass are `candidates`, until they are cut."""

    events: Floats
    """n"""
    blocks: Ints
    worth: Floats
    fits: Flags
    pays: Flags

    @property
    def candidates(self) -> Flags:
        return self.fits & self.pays


def rank(rates: Floats, rows: Ints, row_bytes: Ints, key_bytes: Ints, terms: Terms) -> Ranked:
    """Judge keys with these events a second, master rows, and bytes of rows and of the key."""
    blocks = entry_blocks(rows, row_bytes, key_bytes)
    events = rates * terms.horizon_s
    largest = min(terms.cache_blocks // LARGEST_SHARE, terms.slot_blocks)
    return Ranked(
        events,
        blocks,
        events / (blocks * BYTES_A_BLOCK),
        fits=blocks <= largest,
        pays=blocks < events * terms.event_blocks,
    )


class Cut:
    """Takes keys, in the order of their worth, as long as their slots have room.

    A key that does not fit is passed over: a smaller one behind it may.
    """

    def __init__(self, slots: int, slot_blocks: int) -> None:
        self._left = np.full(slots, slot_blocks, np.int64)

    def take(self, slots: SmallInts, blocks: Ints) -> Flags:
        """Which of the next keys are chosen."""
        return _cut(self._left, slots, blocks)


@kernel
def _cut(left: Ints, slots: SmallInts, blocks: Ints) -> Flags:
    chosen = np.zeros(len(slots), np.bool_)
    for i in range(len(slots)):
        if blocks[i] <= left[slots[i]]:
            left[slots[i]] -= blocks[i]
            chosen[i] = True
    return chosen
