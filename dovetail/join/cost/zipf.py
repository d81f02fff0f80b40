"""Generalised harmonic numbers, and what Zipf's law says by them, without an array of keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]

_SUMMED = 64
"""So many terms are added up; the rest is an integral, whose error is then below 1e-9."""


def harmonic(terms: ArrayLike, exponent: float) -> Floats:
    """Sum i^-exponent for i from 1 to `terms`, by Euler and Maclaurin's formula.

    Continuous and increasing between whole numbers too, for searches over the number of terms.
    """
    wanted = np.asarray(terms, np.float64)
    summed = np.cumsum(np.arange(1, _SUMMED + 1, dtype=np.float64) ** -exponent)
    first = np.interp(wanted, np.arange(_SUMMED + 1), np.concatenate([[0.0], summed]))
    last = np.maximum(wanted, _SUMMED)
    ends = (last**-exponent - float(_SUMMED) ** -exponent) / 2
    slopes = exponent * (float(_SUMMED) ** (-exponent - 1) - last ** (-exponent - 1)) / 12
    return np.asarray(first + _integral(last / _SUMMED, exponent) + ends + slopes)


def _integral(ratio: Floats, exponent: float) -> Floats:
    """Integrate x^-exponent from _SUMMED to ratio·_SUMMED, stable where the exponent is near 1."""
    logarithm = np.log(ratio)
    scaled = (1.0 - exponent) * logarithm
    with np.errstate(invalid="ignore", divide="ignore"):
        growth = np.where(np.abs(scaled) < 1e-9, 1.0 + scaled / 2, np.expm1(scaled) / scaled)
    return np.asarray(float(_SUMMED) ** (1.0 - exponent) * logarithm * growth)
