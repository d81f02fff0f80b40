from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with a setting, and the cure.

    `item` is the entry of the setting that is to blame, such as one column of several: it finds
    the line. `line` is set only where the place is known and no setting leads to it.
    """

    path: tuple[str, ...]
    text: str
    item: str | None = None
    line: int | None = None

    @property
    def place(self) -> tuple[str, ...]:
        return self.path if self.item is None else (*self.path, self.item)

    def __str__(self) -> str:
        return ": ".join(filter(None, (".".join(self.path), self.text)))
