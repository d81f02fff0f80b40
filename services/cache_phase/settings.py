from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.join.algorithms import policy_named
from dovetail.join.caching import LEAST
from dovetail.join.policies import Lru, NoCache
from dovetail.pipeline.spec import Algorithm, Engine
from dovetail.stream.batch import PIECE_BYTES
from dovetail.stream.handler import Step

if TYPE_CHECKING:
    from dovetail.pipeline.spec import Pipeline

_LRU_SHARE = 7 / 8
"""Of the node's budget: lookups are answered within a step, so hardly anything waits."""
_AUTO_SHARE = 3 / 4
"""Of `auto`, which looks up where it can, but has to hold what waits for a scan where it cannot."""
_SHARE = 1 / 2
"""Where events wait for a scan or a partition: a byte is worth as much to either phase."""
_LEAST_LEFT = 5 << 18
"""Bytes that the disk phase needs for a window, a batch and a query."""
_BATCHES = 8
"""Batches of the disk phase's share: a quarter of it is for those that have no room yet."""


def budget(pipeline: Pipeline) -> int:
    """The cache phase's part of the node's budget; the disk phase has the rest."""
    policy = policy_named(pipeline.algorithm)
    if isinstance(policy, NoCache):
        return LEAST
    share = _LRU_SHARE if isinstance(policy, Lru) else _SHARE
    # On Spark a batch is held until R is scanned: what waits needs as much as the cache.
    if pipeline.algorithm is Algorithm.AUTO and pipeline.engine is Engine.SERVICES:
        share = _AUTO_SHARE
    return min(int(share * pipeline.memory), pipeline.memory - _LEAST_LEFT)


def piece_bytes(pipeline: Pipeline) -> int:
    """How large a batch for the disk phase is: two have to fit where batches wait there."""
    return min(PIECE_BYTES, (pipeline.memory - budget(pipeline)) // _BATCHES)


def step(_: Pipeline) -> Step:
    return Step(max_records=64, max_bytes=16 << 20, linger_s=0.1)
