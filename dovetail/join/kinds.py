"""Join kinds, and what each makes of an event with m master rows.

| kind  | m > 0                     | m = 0                         |
| ----- | ------------------------- | ----------------------------- |
| inner | m outputs, event and row  | none                          |
| left  | m outputs, event and row  | one output, event and NULLs   |
| semi  | one output, the event     | none                          |
| anti  | none                      | one output, the event         |

An event without an output goes to `unmatched`.
"""

from __future__ import annotations

from enum import StrEnum


class JoinKind(StrEnum):
    INNER = "inner"
    LEFT = "left"
    SEMI = "semi"
    ANTI = "anti"

    @property
    def code(self) -> int:
        """The kind as the kernels know it."""
        return list(JoinKind).index(self)

    @property
    def takes_columns(self) -> bool:
        return self in (JoinKind.INNER, JoinKind.LEFT)
