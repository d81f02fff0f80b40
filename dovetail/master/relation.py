"""The port through which the join engine reads R, whatever R lies in.

    engine.wants() ──► Request ──► MasterRelation.read ──► Read ──► engine.feed()

A read has to fit into the engine's disk buffer, so `most` goes with every request; whoever
reads asks for less than was wanted, or cuts what came (`cut`), but never within a key, and within a
page only if that does not fit alone (`Read.place`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from dovetail.join.entry import MasterRows
from dovetail.join.exchange import NOTES_A_ROW, Read

if TYPE_CHECKING:
    from dovetail.join.columns import Ints
    from dovetail.join.exchange import Request
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

        A single key, and a single row of a page, is read whatever it takes: the engine says if it
        is too much. So is a single page, unless the facts say that those are read in parts.
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

    def now(self) -> float:
        """The moment by R's own clock, in seconds since 1970: what is read next is as of then."""
        ...

    def renew(self) -> Relation | None:
        """Begin a cycle: new facts if anything may have changed since the last one, else None."""
        ...

    def rest(self) -> None:
        """End the cycle, if one is under way: hold nothing until the next begins."""
        ...

    def keep(self, slots: frozenset[int] | None) -> None:
        """Let reads have the rows of these slots alone; None = of all. Pages need a `renew`."""
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


def first_rows(page: Read, after: Ints, most: int) -> Read:
    """As many rows of a page, or of the rest of one, as fit into `most` bytes; one does.

    `after` says where the page goes on behind each row.
    """
    ends = np.arange(1, len(page.rows) + 1)
    count = cut(page.rows, ends, most)
    if count == len(page.rows) and page.covers:
        return page
    return Read(part(page.rows, 0, count), 0, ends[count - 1 : count], int(after[count - 1]))


def part(rows: MasterRows, first: int, end: int) -> MasterRows:
    """Rows `first` up to `end`, sharing their buffers."""
    return MasterRows(rows.keys.slice(first, end), rows.rows.slice(first, end))
