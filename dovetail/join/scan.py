"""MESHJOIN and AMESHJOIN: R passes by again and again, and every pending key sees all of it.

    R    page 0 │ page 1 │ page 2 │ page 3 │ …        b pages a step, behind the last the first
                 ▲ next
    keys   started at 1   started at 0   started at 3 (a cycle ago: done)
           newest ──────────────────────────► oldest

1. Up to w events become pending; a new key starts at the page that is read next.
2. b pages are read; each of their rows is probed in H_S (MESHJOIN §3.1, Fig. 4).
3. A key that has seen all N_R pages is done: answered with the rows it has collected. Of
   keys known to be unique, an event leaves at its match.

b and w may change before every step (AMESHJOIN §3.3, Fig. 6): a key knows its start page, so
chunks may differ in size and the step that completes a key may read on beyond.

A page that does not fit into the disk buffer is read in parts, a step each. Whoever comes or starts
over between two of them starts at the page behind, and does not see the rest of this one.

The paper keeps each chunk for a whole cycle. Here an event that arrives while its key is
already waiting shares what the key has seen and leaves with it: the rows are the same, and
hot keys take half the memory. A chunk of distinct keys leaves exactly as in the paper.

Memory: the disk buffer of b · v_P bytes, H_S, and, unless keys are unique, the rows that
pending keys have collected. Room for those is kept free at the measured average of a key, and
never less than a share of the pool; if a read brings more, the newest keys start over
(collecting.py). If the oldest key's rows alone are more than events leave room for, it starts over
as the newest, and nobody is let in before it is done: whoever leaves makes room for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from dovetail.errors import ConfigError, TooManyRowsError
from dovetail.join import collecting, matching
from dovetail.join.exchange import Pages
from dovetail.join.pending import UNBOUNDED, Admission
from dovetail.join.phase import Settled

if TYPE_CHECKING:
    from dovetail.join.columns import Ints
    from dovetail.join.exchange import Read
    from dovetail.join.held import Held
    from dovetail.join.phase import Relation

_NOBODY = np.empty(0, np.int64)
_FIRST_GUESS = 3.0
"""Blocks that a key's rows take, before any key is done: one row of 120 bytes."""
_ROWS_SHARE = 16
"""One block in so many is kept for rows, also where a few keys' events could fill the pool."""
_MEMORY = 0.05
"""Weight of the latest read in the average of blocks a key."""


class Tuner(Protocol):
    """The paper's tuning module: it knows a cost model and the stream's rate, and has a clock."""

    def __call__(self, pending: int) -> tuple[int, int]:
        """Return b and w for the next step, while so many events are pending."""
        ...


class Scan:
    """The scan phase; `pages` is b and `events` is w, the most that a step lets in."""

    def __init__(
        self,
        relation: Relation,
        disk_buffer: int,
        *,
        pages: int = 0,
        events: int = UNBOUNDED,
        tuner: Tuner | None = None,
    ) -> None:
        self._disk_buffer = disk_buffer
        self._cycles = self._seen = self._place = 0
        self._rows_a_key = _FIRST_GUESS
        self._sent_back = 0
        self._tuner = tuner
        self._over(relation)
        self.tune(pages or UNBOUNDED, events)

    def tune(self, pages: int, events: int = UNBOUNDED) -> None:
        """Set b and w for the steps to come; b is cut to what the disk buffer holds."""
        self._wanted = pages
        self.events = events

    @property
    def pages(self) -> int:
        """b: as many as are wanted, if the disk buffer holds them."""
        if self._wanted == UNBOUNDED:
            return self._most_pages
        return max(1, min(self._wanted, self._most_pages))

    @property
    def next_page(self) -> int:
        return self._seen % self._relation.pages

    @property
    def cycle(self) -> int:
        """Whole passes, those over R as it was before `renew` included."""
        return self._cycles + self._seen // self._relation.pages

    def begin(self, held: Held) -> None:
        self._place = self._sent_back = 0
        held.pending.restart(self._seen)

    def renew(self, held: Held, relation: Relation) -> None:
        self._cycles, self._seen = self.cycle, 0
        self._over(relation)
        self.begin(held)

    def terms(self, held: Held) -> Admission:
        start = self._seen + bool(self._place)
        if self._relation.unique:
            return Admission(start=start, events=self.events)
        # One at least, however few keys have a row: whoever has one needs a block for it.
        rows = max(1, round(self._rows_a_key))
        for_rows = max(rows * held.pending.keys, held.blocks // _ROWS_SHARE)
        return Admission(
            start=start,
            events=self.events,
            kept_free=max(0, for_rows - held.collected_blocks),
            rows_a_key=rows,
        )

    def wants(self, held: Held) -> Pages | None:
        if not len(held.pending):
            return None
        if self._tuner is not None:
            self.tune(*self._tuner(len(held.pending)))
        count = 1 if self._place else self.pages
        return Pages(self.next_page, count, self._relation.pages, self._place)

    def settle(self, held: Held, read: Read) -> Settled:
        if self._relation.unique:
            settled = self._leave_at_match(held, read)
        else:
            settled = self._leave_after_a_cycle(held, read)
        self._seen += read.covers
        self._place = read.place
        return settled

    def _over(self, relation: Relation) -> None:
        self._relation = relation
        fitting = self._disk_buffer // relation.page_bytes
        # Who reads in parts ends before a page that does not fit: the others are no larger for it.
        self._most_pages = min(fitting or relation.pages, relation.pages)
        if not (fitting or relation.in_parts):
            raise ConfigError(
                f"a page of {relation.page_bytes} bytes does not fit into the disk buffer of "
                f"{self._disk_buffer}: give the join more memory"
            )

    def _leave_at_match(self, held: Held, read: Read) -> Settled:
        after = self._seen + read.covers
        return Settled(
            *matching.complete(held.pool, read.rows, _NOBODY, after, self._relation.pages)
        )

    def _leave_after_a_cycle(self, held: Held, read: Read) -> Settled:
        matches = matching.matches(held.pool, read.rows.keys)
        settled = []
        at = 0
        while True:
            done, at = collecting.collect(
                held.pool, read, matches, at, self._seen, self._relation.pages
            )
            collected = held.collected_blocks
            settled.append(Settled(done, collecting.entries_collected(held.pool, done)))
            self._average(collected - held.collected_blocks, len(done))
            if at == len(matches[0]):
                return Settled.together(settled)
            if len(held.cached):
                held.cached.shrink(0)
            else:
                self._send_back(held, matches[1][at : at + 1], self._seen + len(read.ends))

    def _average(self, blocks: int, keys: int) -> None:
        if keys:
            self._sent_back = 0
            self._rows_a_key += _MEMORY * (blocks / keys - self._rows_a_key)

    def _send_back(self, held: Held, stuck: Ints, start: int) -> None:
        """A key's rows do not fit: it starts over behind all others, which make room by leaving.

        Say so if none of them can: each was the oldest once, and nobody has left since.
        """
        self._sent_back += 1
        if self._sent_back < held.pending.keys:
            held.pending.send_back(stuck, start)
            held.draining = True
            return
        held.too_large = stuck
        key = held.pending.keys_of(stuck)
        raise TooManyRowsError(
            f"the master rows of join key {key.shown(0)} do not fit into the memory of the join: "
            f"give it more, or take fewer columns"
        )
