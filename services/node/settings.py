from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.stream.handler import Step
from services.disk_phase.settings import shares

if TYPE_CHECKING:
    from dovetail.pipeline.spec import Pipeline


SHARE = 1 / 3
"""Of time for transactions: there are fewer than where every stage has its own."""


def step(pipeline: Pipeline) -> Step:
    """No more than there is room for, should none of it be cached."""
    return Step(50_000, shares(pipeline).arrivals, linger_s=0.1, share=SHARE)
