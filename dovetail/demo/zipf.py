"""Zipf's law over a finite number of keys: rank k is drawn with probability ∝ k^-exponent.

Exact, without a table: rejection-inversion (W. Hörmann, G. Derflinger, "Rejection-inversion to
generate variates from monotone discrete distributions", ACM TOMACS 6(3), 1996). The inverse of
the integral of x^-exponent proposes a real number, its nearest integer is the rank, and the few
proposals that lie where the integral exceeds the sum are drawn again. HYBRIDJOIN's benchmark
(Figure 9, lines 28-31) takes every proposal, rounded down: of a million keys at exponent 1 the
first then gets 5.0 % of the draws where Zipf's law says 6.9 %, and it is the first ranks that a
cache lives on.

Memory and start-up time do not depend on the number of keys; a cumulative or alias table of ten
million keys would take 80-120 MB and a cache miss a draw.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dovetail.demo.randomness import random_bits, random_key, random_unit
from dovetail.errors import ConfigError
from dovetail.kernels import kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Zipf:
    """Ranks 1 (the most popular) to `keys`; exponent 0 is uniform, 1 the papers' market."""

    keys: int
    exponent: float

    def __post_init__(self) -> None:
        if self.keys < 1:
            raise ConfigError(f"a Zipf distribution needs at least one key, not {self.keys}")
        if not (math.isfinite(self.exponent) and self.exponent >= 0):
            raise ConfigError(f"the skew must be a number from 0 upward, not {self.exponent}")

    def ranks(self, seed: int, first: int, count: int) -> NDArray[np.int64]:
        """Draw ranks number first to first + count - 1 of this seed's sequence."""
        out = np.empty(count, np.int64)
        _draw(random_key(seed, "rank"), first, self.keys, float(self.exponent), out)
        return out

    def pmf(self) -> NDArray[np.float64]:
        """Give the probability of each rank, rank 1 first."""
        weights = np.arange(1, self.keys + 1, dtype=np.float64) ** -self.exponent
        return np.asarray(weights / weights.sum())


@kernel
def _integral(x: float, exponent: float) -> float:
    """∫ t^-exponent dt from 1 to x, stable where the exponent is near 1."""
    log_x = math.log(x)
    scaled = (1.0 - exponent) * log_x
    if abs(scaled) < 1e-8:
        return log_x * (1.0 + scaled * 0.5)
    return log_x * (math.expm1(scaled) / scaled)


@kernel
def _inverse_integral(area: float, exponent: float) -> float:
    scaled = max(area * (1.0 - exponent), -1.0)
    if abs(scaled) < 1e-8:
        return math.exp(area * (1.0 - scaled * 0.5))
    return math.exp(area * (math.log1p(scaled) / scaled))


@kernel
def _draw(key: np.uint64, first: int, keys: int, exponent: float, out: NDArray[np.int64]) -> None:
    lowest = _integral(1.5, exponent) - 1.0
    highest = _integral(keys + 0.5, exponent)
    # Within this distance below its integer a proposal is right without evaluating the integral.
    safe = 2.0 - _inverse_integral(_integral(2.5, exponent) - 2.0**-exponent, exponent)
    for i in range(out.size):
        number = random_bits(key, np.uint64(first + i))
        attempt = np.uint64(0)
        while True:
            unit = random_unit(random_bits(number, attempt))
            area = highest + unit * (lowest - highest)
            x = _inverse_integral(area, exponent)
            rank: int = min(max(int(x + 0.5), 1), keys)
            if rank - x <= safe or area >= _integral(rank + 0.5, exponent) - rank**-exponent:
                out[i] = rank
                break
            attempt += np.uint64(1)
