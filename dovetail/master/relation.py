"""The port through which the join engine reads R, whatever R lies in.

    engine.wants() ──► Request ──► MasterRelation.read ──► Read ──► engine.feed()

A read has to fit into the engine's disk buffer, so `most` goes with every request; whoever
reads asks for less than was wanted, or cuts what came (`cut`), but never within a page or a key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from dovetail.join.entry import MasterRows
from dovetail.join.exchange import NOTES_A_ROW

if TYPE_CHECKING:
    from dovetail.join.columns import Ints
    from dovetail.join.exchange import Read, Request
    from dovetail.join.phase import Relation

BYTES_A_ROW = 3 * 8 + NOTES_A_ROW
"""What a row takes in a `Read` beside its own bytes and those of a text key."""


class MasterRelation(Protocol):
    @property
    def facts(self) -> Relation:
        """What the engine has to know of R; the same until the relation is renewed, if ever."""
        ...

    def read(self, request: Request, most: int) -> Read:
        """Read what is asked, or the first pages or keys of it, in no more than `most` bytes.

        A single page or key is read whatever it takes: the engine says if it is too much.
        Raises Unavailable while R cannot be reached.
        """
        ...

    def close(self) -> None: ...


class ChangingRelation(MasterRelation, Protocol):
    """A relation whose rows may change while it is read: a cycle of pages sees one state of it.

    `renew` comes before page 0 and whenever anything but pages was read in between. The facts
    hold from one to the next.
    """

    @property
    def queries(self) -> int:
        """Statements that have read R in a database."""
        ...

    def renew(self) -> Relation | None:
        """Begin a cycle: new facts if anything may have changed since the last one, else None."""
        ...

    def rest(self) -> None:
        """End the cycle, if one is under way: hold nothing until the next begins."""
        ...

    def keep(self, slots: frozenset[int] | None) -> None:
        """Let pages have the rows of these slots alone, from the next `renew` on; None = of all."""
        ...


def cut(rows: MasterRows, ends: Ints, most: int) -> int:
    """How many of the pages or keys that end after these rows fit into `most` bytes; one does."""
    texts, data = rows.keys.texts.bounds, rows.rows.bounds
    taken = (
        ends * BYTES_A_ROW
        + (texts[ends] - texts[0])
        + (data[ends] - data[0])
        + 8 * np.arange(1, len(ends) + 1)
        + 16  # the bounds that stand before a first row
    )
    return max(1, int(np.searchsorted(taken, most, side="right")))


def part(rows: MasterRows, first: int, end: int) -> MasterRows:
    """Rows `first` up to `end`, sharing their buffers."""
    return MasterRows(rows.keys.slice(first, end), rows.rows.slice(first, end))
