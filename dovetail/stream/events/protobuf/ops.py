"""The ops of a Protobuf program, and the lists that they refer to; kernel.py does their work."""

from __future__ import annotations

from enum import IntEnum, auto


class Op(IntEnum):
    """FIELD, REPEATED, MESSAGE and LOOP write a comma where one is due, then their text."""

    END = 0
    TEXT = auto()
    """Write the op's text and nothing else."""
    SCAN = auto()
    """Write the text, and note where the message's fields are. A: its list in the table."""
    FIELD = auto()
    """A scalar. A: its list in the table."""
    BARE = auto()
    """The same without text: a map's value, or what a wrapper wraps."""
    KEY = auto()
    """A map's key, as a string with the colon behind it. A: its list in the table."""
    REPEATED = auto()
    """An array of scalars. A: its list in the table."""
    MESSAGE = auto()
    """Go on at B with a message that is there. A: its list in the table."""
    BARE_MESSAGE = auto()
    """The same without text; where it is not there, write its default."""
    LOOP = auto()
    """Begin an array of messages, or a map. A: its list in the table."""
    NEXT = auto()
    """Go on at B with the next message, or behind this op when there is no more. A: as LOOP."""
    MOMENT = auto()
    """A google.protobuf.Timestamp."""
    RETURN = auto()


class Kind(IntEnum):
    """How a scalar stands in a message, and how it is written."""

    INT64 = 0
    INT32 = auto()
    UINT64 = auto()
    UINT32 = auto()
    SINT64 = auto()
    SINT32 = auto()
    BOOL = auto()
    ENUM = auto()
    STRING = auto()
    BYTES = auto()
    DOUBLE = auto()
    FIXED64 = auto()
    SFIXED64 = auto()
    FLOAT = auto()
    FIXED32 = auto()
    SFIXED32 = auto()
    MESSAGE = auto()

    @property
    def wire(self) -> int:
        if self <= Kind.ENUM:
            return VARINT
        if self in (Kind.STRING, Kind.BYTES, Kind.MESSAGE):
            return BYTES
        return EIGHT if self <= Kind.SFIXED64 else FOUR


VARINT, EIGHT, BYTES, START_GROUP, END_GROUP, FOUR = range(6)
"""The wire types."""

SLOTS, DENSE, SPARSE, INFO, HEAD = range(5)
"""
A message's list in the table. A slot is a field's place among those of its message.

SLOTS   how many slots it has
DENSE   field numbers below this are looked up by number; from HEAD on stands each one's slot or -1
SPARSE  how many others there are; behind the dense ones stands each one's number and slot
INFO    where its slots are described: WIRE, PACKABLE and ONEOF of each
"""
WIRE, PACKABLE, ONEOF, INFO_WIDTH = range(4)
"""ONEOF is 0 for none."""

SLOT, KIND, NUMBER, DEFAULT_AT, DEFAULT_SIZE, SYMBOLS, SYMBOL_COUNT, FIELD_WIDTH = range(8)
"""
A field's list in the table.

DEFAULT_AT    the text to write where it is not there, and its bytes; -1 bytes: leave it out
SYMBOLS       of an enum: where in the table stand each value's number, text and text's bytes
"""
