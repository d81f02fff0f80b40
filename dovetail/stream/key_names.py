"""A join key as the key of a message: an int in decimal, anything else as its canonical bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dovetail.join.columns import Column, JoinKeys
from dovetail.join.keys import hash_text_many
from dovetail.kernels import kernel

if TYPE_CHECKING:
    from dovetail.join.columns import Bytes, Flags, Ints

_LONGEST = 20
_MINUS, _ZERO = 45, 48


def names_of(keys: JoinKeys, *, int_key: bool) -> Column:
    return Column(*_written(keys.values)) if int_key else keys.texts


def keys_named(names: Column, *, int_key: bool) -> JoinKeys:
    """Read names back; ValueError if one cannot be the name of a key."""
    if not int_key:
        return JoinKeys(hash_text_many(names.data, names.bounds), names)
    values, good = _read(names.data, names.bounds)
    if not good.all():
        name = names[int(np.argmin(good))]
        raise ValueError(f"{name!r} is not the name of an int key: was it sent by another release?")
    return JoinKeys.of_ints(values)


@kernel
def _written(values: Ints) -> tuple[Bytes, Ints]:
    out = np.empty(len(values) * _LONGEST, np.uint8)
    bounds = np.zeros(len(values) + 1, np.int64)
    digits = np.empty(_LONGEST, np.uint8)
    at = 0
    for i in range(len(values)):
        # The smallest int has no positive counterpart but an unsigned one.
        rest = np.uint64(values[i])
        if values[i] < 0:
            out[at] = _MINUS
            at += 1
            rest = ~rest + np.uint64(1)
        count = 0
        while rest > np.uint64(0) or count == 0:
            digits[count] = _ZERO + rest % np.uint64(10)
            rest //= np.uint64(10)
            count += 1
        for nth in range(count):
            out[at + nth] = digits[count - 1 - nth]
        at += count
        bounds[i + 1] = at
    return out[:at].copy(), bounds


@kernel
def _read(data: Bytes, bounds: Ints) -> tuple[Ints, Flags]:
    values = np.zeros(len(bounds) - 1, np.int64)
    good = np.ones(len(bounds) - 1, np.bool_)
    for i in range(len(values)):
        negative = bounds[i] < bounds[i + 1] and data[bounds[i]] == _MINUS
        first = bounds[i] + negative
        value = np.uint64(0)
        for at in range(first, bounds[i + 1]):
            digit = np.uint64(data[at]) - np.uint64(_ZERO)
            good[i] &= digit < np.uint64(10)
            value = value * np.uint64(10) + digit
        good[i] &= 0 < bounds[i + 1] - first < _LONGEST
        values[i] = np.int64(~value + np.uint64(1)) if negative else np.int64(value)
    return values, good
