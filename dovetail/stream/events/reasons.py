"""Why an event is bad: the codes in a batch, the names in a dead letter.

The names are a contract with whoever reads the dead-letter topic; the codes stay inside a process.

An event has one reason, the first that applies, on the fast path and on the slow one:

1. tombstone, oversized, empty: nothing is parsed;
2. invalid-json: the event as a whole is no JSON object, whatever else is wrong with it;
3. null-key, null-field, wrong-type, unknown-field, invalid-key: the first offending member, in the
   order of the event; of a name that occurs twice, every occurrence is checked;
4. missing-key, then missing-field: the key's parts in their order, then fields in the schema's.
"""

from __future__ import annotations

from enum import IntEnum


class Reason(IntEnum):
    GOOD = 0
    TOMBSTONE = 1
    OVERSIZED = 2
    EMPTY = 3
    INVALID_JSON = 4
    NULL_KEY = 5
    NULL_FIELD = 6
    WRONG_TYPE = 7
    UNKNOWN_FIELD = 8
    INVALID_KEY = 9
    MISSING_KEY = 10
    MISSING_FIELD = 11

    @property
    def label(self) -> str:
        return self.name.lower().replace("_", "-")
