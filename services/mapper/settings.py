from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.stream.handler import Step

if TYPE_CHECKING:
    from dovetail.pipeline.spec import Pipeline


def step(_: Pipeline) -> Step:
    """Records are batches of up to a mebibyte here."""
    return Step(max_records=64, max_bytes=16 << 20, linger_s=0.1)
