"""What can be wrong with the bytes of an event that is not JSON."""

from __future__ import annotations

from enum import IntEnum

MOST_DEPTH = 64
"""Records, messages, arrays and maps within one another, beside the event itself."""


class Fault(IntEnum):
    """Why bytes are no event; the words stand in a dead letter's detail."""

    NONE = 0
    TRUNCATED = 1
    TRAILING = 2
    LONG_VARINT = 3
    INT_RANGE = 4
    BOOLEAN = 5
    LENGTH = 6
    NOT_TEXT = 7
    SYMBOL = 8
    BRANCH = 9
    TOO_DEEP = 10
    ITEMS = 11
    RANGE = 12
    MISMATCH = 13
    TOO_LONG = 14
    TAG = 15
    GROUP = 16
    MERGED = 17

    @property
    def words(self) -> str:
        return _WORDS[self]


_WORDS = {
    Fault.NONE: "nothing is wrong",
    Fault.TRUNCATED: "it breaks off",
    Fault.TRAILING: "there are bytes behind its end",
    Fault.LONG_VARINT: "a number has more than 64 bits",
    Fault.INT_RANGE: "an int has more than 32 bits",
    Fault.BOOLEAN: "a boolean is neither 0 nor 1",
    Fault.LENGTH: "a length is negative",
    Fault.NOT_TEXT: "a string is not UTF-8",
    Fault.SYMBOL: "an enum has no such symbol",
    Fault.BRANCH: "a union has no such branch",
    Fault.TOO_DEEP: f"it nests deeper than {MOST_DEPTH} levels",
    Fault.ITEMS: "an array or a map has more items than the event can hold",
    Fault.RANGE: "a date, time or decimal is out of range",
    Fault.MISMATCH: "a union's branch has no counterpart in the pipeline's schema",
    Fault.TOO_LONG: "its JSON text is longer than allowed",
    Fault.TAG: "a field has no valid number or wire type",
    Fault.GROUP: "a group does not end where it should",
    Fault.MERGED: "a message that comes in pieces is too long",
}
