from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.stream.loop import Step

if TYPE_CHECKING:
    from dovetail.pipeline.spec import Pipeline

SHARE = 7 / 8
"""Of the node's budget; the disk phase has the rest."""


def budget(pipeline: Pipeline) -> int:
    return int(pipeline.memory * SHARE)


def step(_: Pipeline) -> Step:
    return Step(max_records=64, max_bytes=16 << 20, linger_s=0.1)
