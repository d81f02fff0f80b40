"""Kernels are loaded once, by the parent of Spark's Python workers: it is told which pipeline's.

A worker that is forked then has them, in pages that all share; by itself it would take seconds for
them, with the first events waiting.
"""

from __future__ import annotations

import base64
import pickle
from typing import TYPE_CHECKING

from services.warm import warm

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dovetail.pipeline.spec import Pipeline

_VARIABLE = "DOVETAIL_WARM"


def told(pipeline: Pipeline) -> dict[str, str]:
    """What the environment of the workers' parent has to have for that."""
    # Pickled, as the tasks are; a shell leaves these letters as they are.
    return {_VARIABLE: base64.b64encode(pickle.dumps(pipeline)).decode()}


def warm_as_told(environment: Mapping[str, str]) -> None:
    if text := environment.get(_VARIABLE):
        warm(pickle.loads(base64.b64decode(text)))  # noqa: S301 - the driver wrote it
