"""Shedding strategies: each is a priority, and the w highest since the last take are kept.

| strategy         | priority        | so the buffer holds                                      |
| ---------------- | --------------- | -------------------------------------------------------- |
| keep-w           | all the same    | the first w: of equals the earliest stays                |
| sample-w         | u               | a uniform sample of w, without replacement (a reservoir) |
| topw             | f_R             | the w that join with the most master rows (§4.2)         |
| cluster-sampling | f_R ÷ u         | each with a chance proportional to f_R (§4.1)            |

u is random, uniform in (0, 1]. An event's f_R result rows are the cluster that is sampled with
it. As priorities, f_R ÷ u make the chance known: an event was kept with probability
min(1, f_R ÷ cut), `cut` being the highest priority that was shed. Dividing by it estimates
sums over the whole join without bias, although the rows are no uniform sample of it.

A strategy sees join keys only, and no clock. Given the same random generator and the same
keys, in whatever batches, it does the same again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:
    from dovetail.join.columns import JoinKeys
    from dovetail.join.shedding.frequency import Floats, Frequencies


class Strategy(Protocol):
    @property
    def name(self) -> str:
        """The reason that a shed event carries."""
        ...

    def priorities(self, keys: JoinKeys) -> Floats:
        """One for each event, never negative; the lowest are shed first."""
        ...


class KeepW:
    name = "keep-w"

    def priorities(self, keys: JoinKeys) -> Floats:
        return np.zeros(len(keys))


class SampleW:
    name = "sample-w"

    def __init__(self, chance: np.random.Generator) -> None:
        self._chance = chance

    def priorities(self, keys: JoinKeys) -> Floats:
        return _uniform(self._chance, len(keys))


class TopW:
    name = "topw"

    def __init__(self, frequencies: Frequencies) -> None:
        self._frequencies = frequencies

    def priorities(self, keys: JoinKeys) -> Floats:
        return self._frequencies.frequency(keys)


class ClusterSampling:
    name = "cluster-sampling"

    def __init__(self, frequencies: Frequencies, chance: np.random.Generator) -> None:
        self._frequencies = frequencies
        self._chance = chance

    def priorities(self, keys: JoinKeys) -> Floats:
        return self._frequencies.frequency(keys) / _uniform(self._chance, len(keys))


def _uniform(chance: np.random.Generator, count: int) -> Floats:
    """Numbers in (0, 1]: the generator's own interval has the 0 instead."""
    return 1.0 - chance.random(count)
