"""What a disk phase is: it says what to read next and turns what was read into answers.

A phase holds parameters and where it is in R, never an event: pending events belong to the
pool. So one phase can take over from another at any step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from dovetail.join.columns import Column
from dovetail.join.entry import Entries

if TYPE_CHECKING:
    from dovetail.join.columns import Ints
    from dovetail.join.exchange import Read, Request
    from dovetail.join.held import Held
    from dovetail.join.pending import Admission


@dataclass(frozen=True, slots=True)
class Relation:
    """What the join knows about R."""

    pages: int = 1
    """N_R."""
    page_bytes: int = 8192
    """v_P: the most bytes that one page takes as a `Read`."""
    unique: bool = False
    """Whether no join key has more than one row."""
    rows: int = 0
    """R_t; 0 = unknown."""
    by_key: bool = True
    """Whether partitions and single keys can be asked for, not pages alone."""
    by_page: bool = True
    """Whether pages can be asked for, not keys alone: a view has none."""
    in_parts: bool = False
    """Whether a page that does not fit is read in parts."""


@dataclass(frozen=True, slots=True)
class Settled:
    """Keys that a read has answered completely, each with its entry."""

    keys: Ints
    entries: Entries

    @classmethod
    def together(cls, parts: list[Settled]) -> Settled:
        if len(parts) == 1:
            return parts[0]
        joined = Column.concatenate([Column(p.entries.data, p.entries.bounds) for p in parts])
        return cls(np.concatenate([p.keys for p in parts]), Entries(joined.data, joined.bounds))


class Turns:
    """Counts passes of a phase that has no cycle of R.

    What was pending at the start of a turn has left by its end. A key's start is the turn in
    which it came. So n events of a key a turn are n pending at a time: arrival rate ×
    residence, as the cache inequality wants it.
    """

    def __init__(self) -> None:
        self.count = 0

    def advance(self, held: Held) -> None:
        oldest = held.pending.oldest_start
        if oldest is None or oldest >= self.count:
            self.count += 1


class DiskPhase(Protocol):
    def begin(self, held: Held) -> None:
        """Take over whatever is pending."""
        ...

    def renew(self, held: Held, relation: Relation) -> None:
        """Go on over R as it is now, from its start: what keys have collected is worthless."""
        ...

    def terms(self, held: Held) -> Admission:
        """On which terms new events become pending now."""
        ...

    def wants(self, held: Held) -> Request | None:
        """What to read next; nothing while nothing is pending."""
        ...

    def settle(self, held: Held, read: Read) -> Settled:
        """Join what was read for the last request with everything pending."""
        ...

    @property
    def cycle(self) -> int:
        """How often an event could have been answered by now: whole passes, ever growing."""
        ...
