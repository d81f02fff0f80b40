"""MESHJOIN for range and inequality conditions: match when the intervals overlap (§3.4).

    R      page 0 │ page 1 │ page 2 │ …             b pages a step, behind the last the first
                   ▲ next
    window  [1,3] [2,20] [4,5] [6,7] …              pending events, indexed by key and interval

1. `offer` lets events in as far as there is room; each starts at the page that is read next.
   An empty interval overlaps nothing and is answered at once.
2. `wants` asks for the next b pages; for nothing while nothing is pending.
3. `feed` answers each event with the rows of this read that it overlaps: a slice of them, and
   `more` the next one, while there are any. After a whole cycle of R an event leaves; if it has
   met nobody, it is answered now, without rows. For semi and anti joins one row settles an event:
   it is answered once, and leaves at its first match.

An event may so be answered in several reads, and its rows never wait in memory: an inequality
may match half of R. `Met.done` says whose last answer was given. b and w may change before
every step, as in AMESHJOIN (§3.3): each event knows its start page.

Memory: a disk buffer, into which every read must fit, and the window (window.py) for
all that is pending and its index, allocated once; together the budget. Answers belong to the
caller and do not count: they come in slices (splice.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dovetail.errors import ConfigError, TooManyRowsError
from dovetail.join.engine import Figures, Offered
from dovetail.join.entry import LARGEST
from dovetail.join.exchange import Pages
from dovetail.join.overlap.exchange import NOBODY_MET, Met
from dovetail.join.overlap.index import sort_in
from dovetail.join.overlap.matching import START, Step, meet, nobody_met, rows_of
from dovetail.join.overlap.pending import admit, close_ranks, leave
from dovetail.join.overlap.window import (
    BYTES_A_SLOT,
    COUNT,
    LEFT,
    LEFT_BYTES,
    buffer_of,
    new_window,
    room_for,
    split_anew,
)
from dovetail.join.pending import UNBOUNDED
from dovetail.join.splice import slice_bytes

if TYPE_CHECKING:
    from dovetail.join.kinds import JoinKind
    from dovetail.join.overlap.exchange import IntervalEvents, IntervalRead
    from dovetail.join.overlap.matching import Place, Rows
    from dovetail.join.phase import Relation

_DISK_BUFFER_SHARE = 4
"""The disk buffer is one part in so many of the budget, unless it is given."""
_EVENT_BYTES = 128
"""How large events are thought to be before any has come."""
_IDLE_SHARE = 16
"""One part in so many of the window may lie idle before something is done about it."""


class OverlapJoin:
    """Joins events with R where key and interval match, within `memory` bytes.

    `pages` is b, 0 for as many as the disk buffer holds; `events` is w, the most that a step
    lets in. A page of `relation` is measured as an `IntervalRead`.
    """

    def __init__(
        self,
        kind: JoinKind,
        relation: Relation,
        memory: int,
        *,
        pages: int = 0,
        events: int = UNBOUNDED,
        disk_buffer: int = 0,
    ) -> None:
        self.kind = kind
        self.relation = relation
        self.budget = memory
        # What answers an event from one read is an entry at most.
        self.disk_buffer = min(disk_buffer or memory // _DISK_BUFFER_SHARE, LARGEST)
        self.figures = Figures()
        self._most_pages = min(self._fitting_pages(), relation.pages)
        self._window = new_window(memory - self.disk_buffer, _EVENT_BYTES)
        self._seen = self._place = 0
        self._let_in = 0
        self._request: Pages | None = None
        self._slice = slice_bytes(memory)
        self._meeting: tuple[Rows, Step, Place, int] | None = None
        self.tune(pages or self._most_pages, events)

    @property
    def allocated(self) -> int:
        """Bytes of the budget that are taken, the disk buffer included."""
        return buffer_of(self._window).nbytes + self._window.state.nbytes + self.disk_buffer

    @property
    def pending(self) -> int:
        """Events that were let in and have not seen all of R, or been settled by a match."""
        return int(self._window.state[COUNT] - self._window.state[LEFT])

    @property
    def cycle(self) -> int:
        return self._seen // self.relation.pages

    @property
    def answering(self) -> bool:
        """Whether there are more answers to the last read."""
        return self._meeting is not None

    def tune(self, pages: int, events: int = UNBOUNDED) -> None:
        """Set b and w for the steps to come; b is cut to what the disk buffer holds."""
        self.pages = max(1, min(pages, self._most_pages))
        self.events = events

    def offer(self, batch: IntervalEvents) -> Offered:
        """Let in what has room, from the batch's start; answer empty intervals."""
        self._require_all_taken()
        accepted = self._admit(batch)
        self.figures.accepted += accepted
        taken = batch.intervals.slice(0, accepted)
        empty = np.flatnonzero(taken.lows > taken.highs)
        if not len(empty):
            return Offered(accepted, NOBODY_MET)
        self.figures.answered += len(empty)
        ids = batch.events.ids[empty]
        return Offered(
            accepted, Met(batch.events.data.take(empty), ids, *nobody_met(len(empty)), ids)
        )

    def wants(self) -> Pages | None:
        """What to read next; the same again until it is fed."""
        self._require_all_taken()
        if self._request is None and self.pending:
            next_page = self._seen % self.relation.pages
            count = 1 if self._place else self.pages
            self._request = Pages(next_page, count, self.relation.pages, self._place)
        return self._request

    def feed(self, read: IntervalRead) -> Met:
        """Take what was read for the request; answer whom it has rows for, and who leaves.

        A slice of the answers: `more` has the others. Who leaves is told with the last one.
        """
        if self._request is None:
            raise ValueError("nothing was asked for: feed() answers the request of wants()")
        self._require_fit(read)
        settled_by_one = not self.kind.takes_columns
        step = Step(self._seen, self.relation.pages, read.read.covers, settled_by_one)
        self._meeting = rows_of(read), step, START, read.read.place
        self._request = None
        self._let_in = 0
        self.figures.reads += 1
        self.figures.rows_read += len(read.read.rows)
        return self.more()

    def more(self) -> Met:
        """The next slice of the answers to the last read; empty if there is none."""
        if self._meeting is None:
            return NOBODY_MET
        rows, step, place, rest = self._meeting
        answered, following = meet(self._window, rows, step, place, self._slice)
        if following is not None:
            self._meeting = rows, step, following, rest
            return Met(*answered, NOBODY_MET.done)
        self._meeting = None
        self._seen += step.covers
        done = leave(self._window, self._seen - self.relation.pages + 1, step.at_match)
        # With nobody left to see the rest of a page, it is begun anew for whoever comes.
        self._place = rest if self.pending else 0
        self.figures.answered += len(done)
        return Met(*answered, done)

    def _require_all_taken(self) -> None:
        if self._meeting is not None:
            raise ValueError("there are answers left to the last read: take them by more()")

    def _admit(self, batch: IntervalEvents) -> int:
        if self._place:  # in the middle of a page nobody comes: everyone sees whole ones
            return 0
        accepted = self._let(batch)
        for make_room in (self._close_ranks, self._split_anew):
            if accepted == len(batch) or self._let_in == self.events:
                return accepted
            rest = batch.slice(accepted, len(batch))
            if make_room(rest):
                accepted += self._let(rest)
        if accepted or self.pending:
            return accepted
        self._window = split_anew(self._window, 1)
        accepted = self._let(batch)
        if not accepted:
            raise ConfigError(
                f"an event of {len(batch.events.data[0])} bytes does not fit into the memory of "
                f"the join, {self.budget} bytes: give it more"
            )
        return accepted

    def _let(self, batch: IntervalEvents) -> int:
        keys, data = batch.events.keys, batch.events.data
        accepted, waiting = admit(
            self._window,
            keys.values,
            keys.texts.data,
            keys.texts.bounds,
            data.data,
            data.bounds,
            batch.events.ids,
            batch.intervals.lows,
            batch.intervals.highs,
            self._seen,
            UNBOUNDED if self.events == UNBOUNDED else self.events - self._let_in,
        )
        self._let_in += waiting
        return accepted

    def _close_ranks(self, _rest: IntervalEvents) -> bool:
        window = self._window
        slots, size = window.state[LEFT], window.state[LEFT_BYTES]
        idle = slots * _IDLE_SHARE >= window.capacity or size * _IDLE_SHARE >= len(window.bytes)
        if not slots or (self.pending and not idle):
            return False
        close_ranks(window)
        return True

    def _split_anew(self, rest: IntervalEvents) -> bool:
        events, texts = rest.events.data.bounds, rest.events.keys.texts.bounds
        average = float(events[-1] - events[0] + texts[-1] - texts[0]) / len(rest)
        more = room_for(self._window, average)
        if more * (BYTES_A_SLOT + average) * _IDLE_SHARE < len(buffer_of(self._window)):
            return False
        sort_in(self._window)
        self._window = split_anew(self._window, int(self._window.state[COUNT]) + more)
        return True

    def _fitting_pages(self) -> int:
        fitting = self.disk_buffer // self.relation.page_bytes
        if not (fitting or self.relation.in_parts):
            raise ConfigError(
                f"a page of {self.relation.page_bytes} bytes does not fit into the disk buffer of "
                f"{self.disk_buffer}: give the join more memory"
            )
        return max(1, fitting)

    def _require_fit(self, read: IntervalRead) -> None:
        if read.nbytes > self.disk_buffer:
            raise TooManyRowsError(
                f"rows that are read together take {read.nbytes} bytes, and the disk buffer has "
                f"{self.disk_buffer}: give the join more memory, or take fewer columns"
            )
