from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dovetail.errors import ConfigError
from dovetail.node.window import BYTES_AN_EVENT, LEAST
from dovetail.stream.handler import Step
from services.cache_phase.settings import budget as cache_budget

if TYPE_CHECKING:
    from dovetail.pipeline.spec import Pipeline

KEYS_A_QUERY = 5_000
"""Measured: from 1,000 keys on PostgreSQL gives its best rate a key."""
_HELD_AN_EVENT = 256
"""About what an event takes while it waits: the window need not hold more than fit."""
LEAST_JOIN = 256 << 10


@dataclass(frozen=True, slots=True)
class Shares:
    """The disk phase's part of a node's budget, in bytes, by what holds it."""

    window: int
    """Which events wait."""
    arrivals: int
    """Batches that were read and have no room yet."""
    join: int
    """The events themselves, the disk buffer, and what is read ahead."""
    line: int = 0
    """Answers that wait for their turn, where the pipeline keeps an order."""

    @property
    def capacity(self) -> int:
        """Events in the window."""
        return self.window // BYTES_AN_EVENT


def budget(pipeline: Pipeline) -> int:
    """What the cache phase leaves of the node's budget."""
    return pipeline.memory - cache_budget(pipeline)


def shares(pipeline: Pipeline) -> Shares:
    whole = budget(pipeline)
    window = max(LEAST, whole // _HELD_AN_EVENT) * BYTES_AN_EVENT
    line = whole // 4 if pipeline.order.within is not None else 0
    arrivals = whole // (8 if line else 4)
    join = whole - window - arrivals - line
    if join < LEAST_JOIN:
        raise ConfigError(
            f"memory of {pipeline.memory} bytes leaves the disk phase {whole}: too little to hold "
            f"events; give the pipeline more"
        )
    return Shares(window, arrivals, join, line)


def step(pipeline: Pipeline) -> Step:
    return Step(max_records=64, max_bytes=shares(pipeline).arrivals, linger_s=0.1)
