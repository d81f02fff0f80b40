"""What a pipeline is: the frozen result of reading a pipeline file."""

from __future__ import annotations

from typing import Self

import pydantic

from dovetail.join.kinds import JoinKind
from dovetail.pipeline.rules import broken_rules
from dovetail.pipeline.shape import (
    DERIVED_TOPICS,
    LEAST_MEMORY,
    MOST_KEY_PARTS,
    Algorithm,
    Draft,
    Engine,
    Field,
    FieldType,
    Format,
    Framing,
    KeyType,
    Layout,
    Master,
    Order,
    Overload,
    Shed,
    Sink,
    Source,
)

__all__ = [
    "DERIVED_TOPICS",
    "LEAST_MEMORY",
    "MOST_KEY_PARTS",
    "Algorithm",
    "Engine",
    "Field",
    "FieldType",
    "Format",
    "Framing",
    "JoinKind",
    "KeyType",
    "Layout",
    "Master",
    "Order",
    "Overload",
    "Pipeline",
    "Shed",
    "Sink",
    "Source",
]


class Pipeline(Draft):
    """A draft whose settings also fit one another."""

    @pydantic.model_validator(mode="after")
    def _keep_the_rules(self) -> Self:
        problems = [str(problem) for _, problem in broken_rules(self)]
        if problems:
            raise ValueError("\n".join(problems))
        return self
