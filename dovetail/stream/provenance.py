"""Headers of an output: which event it came from, and which phase answered it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dovetail.join.columns import Column
from dovetail.join.memory import copy
from dovetail.kernels import kernel

if TYPE_CHECKING:
    from dovetail.join.columns import Bytes, Ints, SmallInts

ORIGIN = b"origin"
"""`topic/partition/offset` of the source record: the event's identity."""
VIA = b"via"
"""`cache`, `disk`, or `late`: completed by backfill."""
REASON = b"reason"
"""Why an event is where it is: a dead letter's defect, or why it has no output."""
DETAIL = b"detail"
"""A dead letter's defect in words."""

_MOST_BYTES = 10 + 1 + 19  # of a partition, a slash and an offset


def origins(topic: str, partitions: SmallInts, offsets: Ints) -> Column:
    """Return the identities of these source records, as text."""
    prefix = np.frombuffer(f"{topic}/".encode(), np.uint8)
    return Column(*_origins(prefix, partitions, offsets))


@kernel
def _write(number: int, out: Bytes, at: int) -> int:
    """Write a number that is not negative in decimal; return where it ends."""
    digits = 1
    rest = number // 10
    while rest > 0:
        digits += 1
        rest //= 10
    for i in range(digits):
        out[at + digits - 1 - i] = 48 + number % 10
        number //= 10
    return at + digits


@kernel
def _origins(prefix: Bytes, partitions: SmallInts, offsets: Ints) -> tuple[Bytes, Ints]:
    out = np.empty(len(offsets) * (len(prefix) + _MOST_BYTES), np.uint8)
    bounds = np.empty(len(offsets) + 1, np.int64)
    at = 0
    for i in range(len(offsets)):
        bounds[i] = at
        copy(out, at, prefix, 0, len(prefix))
        at = _write(partitions[i], out, at + len(prefix))
        out[at] = 47  # a slash
        at = _write(offsets[i], out, at + 1)
    bounds[len(offsets)] = at
    return out[:at], bounds
