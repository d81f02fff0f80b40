"""Which share of the events falls on which master rows: SSBJ's stream probability, in sum.

Everything is counted in master rows, the most sought after first: those with the most events a
row, because that is the order in which they earn their place in a cache. A key with m rows and a
probability p is m rows of p/m each, so that keys with many rows need no model of their own.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Protocol

import numpy as np

from dovetail.errors import ConfigError
from dovetail.join.cost.zipf import harmonic

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]

_SINGLE = 64
_RANGES = 200


class Popularity(Protocol):
    @property
    def rows(self) -> float:
        """R_t, the master rows."""

    @property
    def rows_a_key(self) -> float:
        """Master rows of a key on average over keys that have any."""

    @property
    def matches(self) -> float:
        """Outputs an event on average: master rows of a key, over events."""

    def share(self, rows: ArrayLike) -> Floats:
        """Give the share of the events that the `rows` most sought after rows answer."""

    def rows_above(self, density: ArrayLike) -> Floats:
        """Count the rows that draw more than this share of the events each."""


class ZipfPopularity:
    """Zipf's law: key number i is drawn in proportion to i^-skew; all have equally many rows."""

    def __init__(self, rows: float, skew: float, rows_a_key: float = 1.0) -> None:
        if not (math.isfinite(rows) and rows >= 1):
            raise ConfigError(f"master data needs at least one row, not {rows}")
        if not (math.isfinite(skew) and skew >= 0):
            raise ConfigError(f"the skew must be a number from 0 upward, not {skew}")
        if not 1 <= rows_a_key <= rows:
            raise ConfigError(f"the rows a key must lie between 1 and all {rows}, not {rows_a_key}")
        self._keys = max(1, round(rows / rows_a_key))
        self._skew = skew
        self._sum = float(harmonic(self._keys, skew))
        self.rows = float(rows)
        self.rows_a_key = rows / self._keys
        self.matches = self.rows_a_key

    def share(self, rows: ArrayLike) -> Floats:
        keys = np.minimum(np.asarray(rows, np.float64) / self.rows_a_key, self._keys)
        return np.minimum(harmonic(keys, self._skew) / self._sum, 1.0)

    def rows_above(self, density: ArrayLike) -> Floats:
        weight = np.asarray(density, np.float64) * self.rows_a_key * self._sum
        if self._skew == 0:
            return np.where(weight < 1, self.rows, 0.0)
        # The first rank that is not above, as a real number; in logarithms, for a small skew
        # takes it beyond any float.
        with np.errstate(divide="ignore", over="ignore"):
            log_rank = -np.log(weight) / self._skew
        rank = np.exp(np.minimum(log_rank, math.log(self._keys + 1)))
        keys = np.clip(np.ceil(rank) - 1, 0, self._keys)
        return np.asarray(keys * self.rows_a_key)


class CountedPopularity:
    """What was counted: events and master rows for each key. Keys without rows are welcome."""

    def __init__(self, events: ArrayLike, rows: ArrayLike = 1) -> None:
        counts = np.asarray(events, np.float64)
        held = np.broadcast_to(np.asarray(rows, np.float64), counts.shape)
        if counts.ndim != 1 or not counts.sum() > 0 or counts.min() < 0:
            raise ConfigError("the key frequencies must be counts of 0 or more, not all of them 0")
        if held.min() < 0 or not held.sum() > 0:
            raise ConfigError("the rows a key must be 0 or more, not all of them 0")
        if not counts[held > 0].any():
            raise ConfigError(
                "none of the counted events has a master row: nothing is to be joined"
            )
        shares = counts / counts.sum()
        with np.errstate(divide="ignore", invalid="ignore"):
            densities = np.where(held > 0, shares / held, np.inf)
        order = np.argsort(-densities, kind="stable")
        self._densities = -densities[order]
        # Entry i of both is for the first i keys.
        self._rows = np.concatenate([[0.0], np.cumsum(held[order])])
        self._shares = np.concatenate([[0.0], np.cumsum(shares[order])])
        self.rows = float(held.sum())
        self.rows_a_key = float(held[held > 0].mean())
        self.matches = float(shares @ held)

    def share(self, rows: ArrayLike) -> Floats:
        # Keys without rows come first, at row 0: the interpolation starts after the last of them.
        first = int(np.searchsorted(self._rows, 0.0, side="right")) - 1
        shares = np.interp(np.asarray(rows, np.float64), self._rows[first:], self._shares[first:])
        return np.asarray(np.minimum(shares, 1.0))

    def rows_above(self, density: ArrayLike) -> Floats:
        keys = np.searchsorted(self._densities, -np.asarray(density, np.float64), side="left")
        return np.asarray(self._rows[keys])


def ranges(total: float) -> Floats:
    """Cut 0 … total into ranges for sums over a falling curve.

    Single at first, then growing by the same factor: two hundred stand for millions.
    """
    single = np.arange(min(_SINGLE, math.ceil(total)), dtype=np.float64)
    grown = np.geomspace(min(_SINGLE, total), total, _RANGES)
    return np.unique(np.concatenate([single, grown, [total]]))
