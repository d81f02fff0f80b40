"""The ops of an Avro program; kernel.py does their work."""

from __future__ import annotations

from enum import IntEnum, auto


class Op(IntEnum):
    END = 0
    TEXT = auto()
    """Write the op's text and nothing else."""
    LONG = auto()
    INT = auto()
    STRING = auto()
    DOUBLE = auto()
    BOOLEAN = auto()
    UNION = auto()
    """Jump to the place that the table has at A, of B branches, for the branch that is read."""
    JUMP = auto()
    TIMESTAMP = auto()
    """A: parts of a second; B: 1 for a moment in UTC, 0 for a local time."""
    DECIMAL = auto()
    """A: digits of fraction; B: bytes, or -1 where their number is read."""
    ENUM = auto()
    """The table has at A, for each of B symbols, where its text starts and its bytes (-1: none)."""
    CALL = auto()
    RETURN = auto()
    LOOP = auto()
    """Begin an array or a map."""
    NEXT = auto()
    """Begin an item, or go on at A when there is no more. B: flags IS_MAP and IS_SKIPPED."""
    NULL = auto()
    FLOAT = auto()
    BYTES = auto()
    FIXED = auto()
    """A: bytes."""
    DATE = auto()
    TIME = auto()
    """A: parts of a second."""
    FLOAT_AS_DOUBLE = auto()
    LONG_AS_DOUBLE = auto()
    LONG_AS_FLOAT = auto()
    SKIP_LONG = auto()
    SKIP_BYTES = auto()
    SKIP_FIXED = auto()
    """A: bytes."""
    REFUSE = auto()
    """This branch of the writer's union has no counterpart in the reader's schema."""


IS_MAP, IS_SKIPPED = 1, 2
