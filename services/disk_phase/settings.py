from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.stream.loop import Step
from services.cache_phase.settings import budget as cache_budget

if TYPE_CHECKING:
    from dovetail.pipeline.spec import Pipeline

KEYS_A_QUERY = 5_000
"""Measured: from 1,000 keys on PostgreSQL gives its best rate a key."""


def budget(pipeline: Pipeline) -> int:
    """What the cache phase leaves of the node's budget."""
    return pipeline.memory - cache_budget(pipeline)


def step(pipeline: Pipeline) -> Step:
    """A step's events and the rows that answer them are held at once, so it takes less."""
    return Step(max_records=64, max_bytes=budget(pipeline) // 4, linger_s=0.1)
