"""What tests draw: the same every time, but in `make fuzz`, which searches with new seeds."""

from __future__ import annotations

import hypothesis
import numpy as np
from hypothesis import HealthCheck
from hypothesis.internal.conjecture import providers

from dovetail.join.seeds import FACTOR, SEEDS

DRAWS = "DOVETAIL_DRAWS"
"""The variable that says how tests draw."""
SAME = "same"
SEARCH = "search"

# How long an example takes says how busy the machine is, and nothing of the code.
_UNHURRIED = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.too_slow],
    "print_blob": True,
}
hypothesis.settings.register_profile(SAME, derandomize=True, **_UNHURRIED)
hypothesis.settings.register_profile(SEARCH, derandomize=False, **_UNHURRIED)


def draw_the_same() -> None:
    """Let every test draw what it always draws, alone as well as among others.

    That includes what the tables in memory are mixed with. Hypothesis also tries constants that it
    finds in the modules that are loaded, and those depend on which tests ran before; it has no
    setting to leave them out.
    """
    hypothesis.settings.load_profile(SAME)
    SEEDS[:] = np.random.default_rng(7).integers(0, 2**64, len(SEEDS), np.uint64)
    SEEDS[FACTOR] |= np.uint64(1)
    providers._get_local_constants = providers.Constants


def draw_anew(seed: int) -> None:
    """Let every test draw by this seed from now on, as `--hypothesis-seed` does."""
    hypothesis.core.global_force_seed = seed
