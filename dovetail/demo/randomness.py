"""Counter-based random numbers: the n-th one is a function of the seed and n alone.

So whatever is made from them is the same for any batch size, and any part of a stream can be
made again without making what came before it.
"""

from __future__ import annotations

import hashlib

import numpy as np

from dovetail.kernels import kernel

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_TO_UNIT = 1.0 / (1 << 53)


def random_key(seed: int, purpose: str) -> np.uint64:
    """Give each purpose of one seed a sequence of its own."""
    digest = hashlib.blake2b(f"{seed}:{purpose}".encode(), digest_size=8).digest()
    return np.uint64(int.from_bytes(digest, "little"))


@kernel(inline="always")
def mix(bits: np.uint64) -> np.uint64:
    """Spread 64 bits over 64 bits, one to one (the finaliser of SplitMix64)."""
    bits = (bits ^ (bits >> np.uint64(30))) * _MIX_1
    bits = (bits ^ (bits >> np.uint64(27))) * _MIX_2
    return bits ^ (bits >> np.uint64(31))


@kernel(inline="always")
def random_bits(key: np.uint64, counter: np.uint64) -> np.uint64:
    return mix(key + (counter + np.uint64(1)) * _GOLDEN)


@kernel(inline="always")
def random_unit(bits: np.uint64) -> float:
    """Turn random bits into a float in [0, 1)."""
    return np.float64(bits >> np.uint64(11)) * _TO_UNIT


@kernel(inline="always")
def random_below(bits: np.uint64, limit: int) -> int:
    """Turn random bits into an int in [0, limit), for limits below 2**31."""
    return int(np.int64(((bits >> np.uint64(32)) * np.uint64(limit)) >> np.uint64(32)))
