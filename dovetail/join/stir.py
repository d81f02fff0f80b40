"""Where a key stands in a table in memory: a hash that nobody outside the process can foresee.

The hash that slots are made of (keys.py) is public, and int keys are what a sender says they are.
By either, somebody could send keys that all start their search at one place, and every probe would
walk past all of them. So the tables hash anew, with the seeds of the process (seeds.py):

    int key    shift, multiply and fold, as ever; then multiply by a random odd number and take the
               first bits: two keys meet in a table of n places with probability 2/n (Dietzfelbinger
               et al., A reliable randomized algorithm for the closest-pair problem, 1997)
    text key   first the sum of its words, each times a random number: two texts have the same one
               with probability 2^-32 (Lemire, Kaser, Strongly universal string hashing is fast,
               2014), whether or not they share the public hash
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dovetail.join.memory import load_int32
from dovetail.join.pool import inner
from dovetail.join.seeds import FACTOR, FIRST_WORD, HIGH_HALF, LENGTH, LOW_HALF, SHIFT, TEXT_WORDS

if TYPE_CHECKING:
    from dovetail.join.columns import Bytes
    from dovetail.join.seeds import Seeds

_FIBONACCI = np.uint64(0x9E3779B97F4A7C15)
_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)


@inner
def stirred(seeds: Seeds, key: int) -> int:
    """64 bits, the first of which spread best; different for different keys."""
    bits = (np.uint64(key) ^ seeds[SHIFT]) * _FIBONACCI
    bits = (bits ^ (bits >> _HALF)) * seeds[FACTOR]
    return np.int64(bits)  # type: ignore[return-value]


@inner
def identity(seeds: Seeds, key: int, data: Bytes, start: int, end: int) -> int:
    """What is stirred for a key: itself, or 64 bits of its text `data[start:end]` if it has one."""
    if start == end:
        return key
    total = np.uint64(end - start) * seeds[LENGTH]
    nth = 0
    while end - start >= 4:
        if nth == TEXT_WORDS:
            total = (total & _LOW) * seeds[LOW_HALF] + (total >> _HALF) * seeds[HIGH_HALF]
            nth = 0
        total += (np.uint64(load_int32(data, start)) & _LOW) * seeds[FIRST_WORD + nth]
        start += 4
        nth += 1
    if start < end:
        word = np.uint64(0)
        for at in range(start, end):
            word = (word << np.uint64(8)) | np.uint64(data[at])
        total = (total & _LOW) * seeds[LOW_HALF] + (total >> _HALF) * seeds[HIGH_HALF]
        total += word * seeds[FIRST_WORD]
    return np.int64(total)  # type: ignore[return-value]
