from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.stream.loop import Step

if TYPE_CHECKING:
    from dovetail.pipeline.spec import Pipeline


def step(_: Pipeline) -> Step:
    return Step(max_records=50_000, max_bytes=16 << 20, linger_s=0.1)
