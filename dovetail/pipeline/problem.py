from __future__ import annotations

from dataclasses import dataclass

from dovetail.errors import ConfigError


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


@dataclass(frozen=True, slots=True)
class Fault:
    """A problem with its place in the document, for whoever shows it there."""

    line: int | None
    field: str
    """The setting's path, or the variable that has overridden it; empty for the whole document."""
    text: str


class InvalidPipelineError(ConfigError):
    """A pipeline's document is wrong; the message has a line for each fault."""

    def __init__(self, text: str, faults: tuple[Fault, ...]) -> None:
        super().__init__(text)
        self.faults = faults
