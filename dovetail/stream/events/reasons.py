"""Why an event is bad: the codes in a batch, the names in a dead letter.

The names are a contract with whoever reads the dead-letter topic; the codes stay inside a process.

An event has one reason, the first that applies, on the fast path and on the slow one:

1. tombstone, oversized, empty: nothing is parsed; oversized is also an event of another format
   whose JSON text is too long;
2. invalid-json, invalid-avro, invalid-protobuf: the event as a whole is not what it should be,
   whatever else is wrong with it; unknown-schema: nobody knows the schema it names, or it cannot
   be read as the pipeline's;
3. null-key, null-field, wrong-type, unknown-field, invalid-key: the first offending member, in the
   order of the event, those of an object where it stands; of a name that occurs twice, every
   occurrence is checked;
4. missing-key, then missing-field: the key's parts in their order, then fields in the schema's.

An object that fields stand in is bad as they are: null or of another type than object with the
first of these reasons (null-key if a part of the key is in it, null-field if any other field that
must be there is); where it is missing, so are its fields. Of an object that occurs twice, every
occurrence must have what must be there.
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
    INVALID_AVRO = 12
    INVALID_PROTOBUF = 13
    UNKNOWN_SCHEMA = 14

    @property
    def label(self) -> str:
        return self.name.lower().replace("_", "-")
