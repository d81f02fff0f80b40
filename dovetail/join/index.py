"""HYBRIDJOIN: the partition that holds the oldest key answers everything pending that it can.

    queue   oldest ─► 17 ─► 4 ─► 92 ─► 18 ─► 17 …
                      │                 │
    R      … │ 9 … 16 │ 17 … 24 │ 25 …          one read answers 17 and 18, however old

1. The join key that waits longest is looked up in the index (HYBRIDJOIN §4.2, Fig. 5).
2. Its whole partition is read and probed in H_S: every pending key in it is answered and
   leaves from the middle of the queue.
3. The key itself is answered in any case: a partition without it says that it has no row.

So no read answers nothing, no partition is read more often than once in as many events as
are pending (Theorem 1), and no event causes more than one read (Theorem 2). Reading does not
wait for arrivals: an intermittent stream is served until nothing is pending.

Memory: a disk buffer of one partition (v_p), and H_S.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.join import matching
from dovetail.join.exchange import Partition
from dovetail.join.pending import Admission
from dovetail.join.phase import Settled, Turns

if TYPE_CHECKING:
    from dovetail.join.exchange import Read
    from dovetail.join.held import Held
    from dovetail.join.phase import Relation

_FORESEEN = 64
"""Keys behind the oldest whose partitions a driver may read ahead. The oldest events came together
and most of their partitions have been read since: those that are left share a few."""


class Index:
    def __init__(self, pages: int = 0) -> None:
        self.pages = pages
        self._turns = Turns()

    @property
    def cycle(self) -> int:
        return self._turns.count

    def begin(self, held: Held) -> None:
        held.pending.restart(self._turns.count)

    def renew(self, held: Held, _relation: Relation) -> None:
        self.begin(held)

    def terms(self, _held: Held) -> Admission:
        return Admission(start=self._turns.count)

    def wants(self, held: Held) -> Partition | None:
        if not len(held.pending):
            return None
        keys = held.pending.keys_of(held.pending.oldest(1 + _FORESEEN))
        return Partition(keys.slice(0, 1), self.pages, keys.slice(1, len(keys)))

    def settle(self, held: Held, read: Read) -> Settled:
        asked = held.pending.oldest(1)
        settled = Settled(*matching.complete(held.pool, read.rows, asked))
        self._turns.advance(held)
        return settled
