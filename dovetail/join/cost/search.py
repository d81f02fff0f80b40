"""Searching many candidates at once: each array element is one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

_STEPS = 110
"""Halvings of a range of some hundred orders of magnitude, down to a float's precision."""
_LOWEST, _HIGHEST = 1e-12, 1e30


def grid(first: float, last: float, a_doubling: int) -> Floats:
    """Whole numbers from first to last, so many for each doubling.

    Candidates depend on R alone, never on the rate or the memory asked for. That is why more
    memory cannot give a lower rate, and why the two questions are each other's inverse.
    """
    steps = max(2, 1 + round(a_doubling * np.log2(max(last / first, 1.0))))
    return np.unique(np.round(np.geomspace(first, max(first, last), steps)))


def last_where(holds: Callable[[Floats], NDArray[np.bool_]], candidates: int) -> Floats:
    """For each candidate the largest number up to which `holds` does, as it turns once."""
    low = np.full(candidates, np.log(_LOWEST))
    high = np.full(candidates, np.log(_HIGHEST))
    for _ in range(_STEPS):
        middle = (low + high) / 2
        held = holds(np.exp(middle))
        low = np.where(held, middle, low)
        high = np.where(held, high, middle)
    return np.asarray(np.exp(low))
