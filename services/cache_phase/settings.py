from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.join.algorithms import policy_named
from dovetail.join.caching import LEAST
from dovetail.join.policies import Lru, NoCache
from dovetail.stream.loop import Step

if TYPE_CHECKING:
    from dovetail.pipeline.spec import Pipeline

_LRU_SHARE = 7 / 8
"""Of the node's budget: lookups are answered within a step, so hardly anything waits."""
_SHARE = 1 / 2
"""Where events wait for a scan or a partition: a byte is worth as much to either phase."""


def budget(pipeline: Pipeline) -> int:
    """The cache phase's part of the node's budget; the disk phase has the rest."""
    policy = policy_named(pipeline.algorithm)
    if isinstance(policy, NoCache):
        return LEAST
    return int(pipeline.memory * (_LRU_SHARE if isinstance(policy, Lru) else _SHARE))


def step(_: Pipeline) -> Step:
    return Step(max_records=64, max_bytes=16 << 20, linger_s=0.1)
