"""What goes into a range join and comes out of it: the equality join's columns, and intervals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dovetail.join.columns import JoinKeys
from dovetail.join.exchange import NO_ANSWERS, Answers

if TYPE_CHECKING:
    from dovetail.join.columns import Ints
    from dovetail.join.entry import MasterRows
    from dovetail.join.exchange import Events, Read
    from dovetail.join.overlap.conditions import Intervals


def no_key(count: int) -> JoinKeys:
    """The join keys of a condition without equality: all alike, on both sides."""
    return JoinKeys.of_ints(np.zeros(count, np.int64))


@dataclass(frozen=True, slots=True)
class IntervalEvents:
    """A batch of events, each with its interval; the keys are equality's, or `no_key`."""

    events: Events
    intervals: Intervals

    def __len__(self) -> int:
        return len(self.events)

    def slice(self, first: int, end: int) -> IntervalEvents:
        return IntervalEvents(self.events.slice(first, end), self.intervals.slice(first, end))


@dataclass(frozen=True, slots=True)
class IntervalRead:
    """Pages of R as a driver read them, and each row's interval."""

    read: Read
    intervals: Intervals

    @property
    def rows(self) -> MasterRows:
        return self.read.rows

    @property
    def nbytes(self) -> int:
        """Bytes of the disk buffer that it takes, the join's own notes on each row included."""
        return self.read.nbytes + self.intervals.nbytes


@dataclass(frozen=True, slots=True)
class Met(Answers):
    """Events with the master rows that one read had for them.

    An event is answered again in each read that has rows for it. One that leaves without ever
    having had any is answered by an entry without rows, so that splice's left, anti and
    `unmatched` are exact over all answers together.
    """

    done: Ints
    """Ids of the events that have left: nothing more will come for them."""


NOBODY_MET = Met(
    NO_ANSWERS.events, NO_ANSWERS.ids, NO_ANSWERS.entries, NO_ANSWERS.starts, NO_ANSWERS.ids
)
