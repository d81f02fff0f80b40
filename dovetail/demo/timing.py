"""When events happen: steady, as fast as possible, or bursty as in HYBRIDJOIN's benchmark.

A timing is an endless iterator of steps: how many events are due, and when, in seconds since the
start. It looks at no clock and sleeps for nobody.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

STEP_SECONDS = 0.01
STREAMS = 10
MAXIMAL_BATCH = 20_000


class Step(NamedTuple):
    offset: float
    """Seconds since the start at which the step's events are due."""
    events: int


def steady(rate: float, step: float = STEP_SECONDS) -> Iterator[Step]:
    """`rate` events a second, evenly; no rounding error accumulates."""
    done = 0
    number = 0
    while True:
        due = int(rate * step * (number + 1))
        yield Step(number * step, due - done)
        done = due
        number += 1


def maximal(batch: int = MAXIMAL_BATCH) -> Iterator[Step]:
    """Everything is due at once: the sender alone sets the pace."""
    while True:
        yield Step(0.0, batch)


def bursty(
    rate: float, seed: int, step: float = STEP_SECONDS, streams: int = STREAMS
) -> Iterator[Step]:
    """Self-similar traffic with a mean of `rate` events a second (HYBRIDJOIN, Figure 9).

    Ten virtual streams are each either on or off. Stream i has a bandwidth of 2^i events a step
    (lines 5-7) and keeps its state for a random time between 0 and 2^i steps (line 19); a step
    outputs the sum of the bandwidths that are on (lines 15-17, 20-26). So the load changes on ten
    time scales at once, the slow changes being the large ones: from one step to 1,024 steps
    (10 s) the burstiness does not average out. Beyond that it does, as in any sum of finite
    scales.

    Where the figure cannot be meant as it stands, this is what is done:

    - Line 3 has one `on` for all; a bandwidth would be taken away that was never added, so each
      stream has its own.
    - Lines 8 and 12 take two streams off the queue and line 27 returns one, which loses the first
      for good. Here a stream leaves the queue only to be switched and returned.
    - Line 11 switches one stream a step although about two become due in each, so the queue would
      fall ever further behind the clock. Here all that are due are switched.
    - Line 6 switches all streams on at the start, a burst of twice the mean. Here each starts
      somewhere within a stretch of on or off, so that the mean holds from the first step.

    All streams together output 2^(streams + 1) - 2 events a step, half of that on average; the
    output is scaled from there to `rate`, fractions of an event being carried to the next step.
    """
    random = np.random.default_rng(seed)
    bandwidths = [2**i for i in range(1, streams + 1)]
    on = [bool(random.integers(2)) for _ in bandwidths]
    # What is left of a stretch of uniform length, seen at a random moment: 1 - sqrt(uniform).
    switches = [
        (bandwidth * (1 - random.random() ** 0.5), i) for i, bandwidth in enumerate(bandwidths)
    ]
    heapq.heapify(switches)
    total = sum(bandwidth for bandwidth, is_on in zip(bandwidths, on, strict=True) if is_on)
    scale = rate * step / (sum(bandwidths) / 2)
    number = 0
    carried = 0.0
    while True:
        while switches[0][0] < number:
            due, i = switches[0]
            on[i] = not on[i]
            total += bandwidths[i] if on[i] else -bandwidths[i]
            heapq.heapreplace(switches, (due + random.random() * bandwidths[i], i))
        carried += total * scale
        events = int(carried)
        carried -= events
        yield Step(number * step, events)
        number += 1
