from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.stream.handler import Step
from services.disk_phase.settings import shares

if TYPE_CHECKING:
    from dovetail.pipeline.spec import Pipeline


def step(pipeline: Pipeline) -> Step:
    """No more than there is room for, should none of it be cached."""
    return Step(max_records=50_000, max_bytes=shares(pipeline).arrivals, linger_s=0.1)
