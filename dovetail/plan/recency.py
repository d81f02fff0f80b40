"""How much an old event still counts, and for how long something was watched by that measure.

An event counts 1 at its time and half as much after every half-life. Of a key with a steady rate
the weights add up to rate × seconds, if the seconds fade in the same way; so the rate is the
weights over the faded seconds, for all hours together or for an hour of the week alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dovetail.join.columns import Ints

    Floats = NDArray[np.float64]

HOURS = 168
"""Of a week, from Monday 00:00 UTC on."""
HOUR_MS = 3_600_000
_MONDAY = 72
"""1970 began on a Thursday."""
_NOTHING_LEFT = 64
"""Half-lives after which what was watched adds nothing."""


def hours_of_week(times_ms: Ints) -> Ints:
    """The hour of the week of each time, in ms since 1970."""
    return (times_ms // HOUR_MS + _MONDAY) % HOURS


def weights(times_ms: Ints, as_of_ms: int, half_life_s: float) -> Floats:
    """What events of these times count at a moment; one that is said to come later counts 1."""
    ages = np.maximum(as_of_ms - times_ms.astype(np.float64), 0.0)
    return np.exp2(-ages / (1000 * half_life_s))


def fading(from_ms: int, to_ms: int, half_life_s: float) -> float:
    """What is left of a weight between two moments."""
    return float(np.exp2(-max(0, to_ms - from_ms) / (1000 * half_life_s)))


def watched_s(began_ms: int, as_of_ms: int, half_life_s: float, hour: int | None = None) -> float:
    """The faded seconds from a beginning to a moment, or those of one hour of the week in it."""
    began_ms = max(began_ms, as_of_ms - int(_NOTHING_LEFT * 1000 * half_life_s))
    if as_of_ms <= began_ms:
        return 0.0
    if hour is None:
        starts, ends = np.array([began_ms]), np.array([as_of_ms])
    else:
        first = began_ms // HOUR_MS
        first += (hour - first - _MONDAY) % HOURS - HOURS  # one may have been under way
        starts = np.arange(first, as_of_ms // HOUR_MS + 1, HOURS) * HOUR_MS
        ends = np.clip(starts + HOUR_MS, began_ms, as_of_ms)
        starts = np.clip(starts, began_ms, as_of_ms)
    at_end = weights(ends, as_of_ms, half_life_s)
    at_start = weights(starts, as_of_ms, half_life_s)
    return float((at_end - at_start).sum()) * half_life_s / float(np.log(2))
