"""Lookups by key: INLJ one at a time, SRJ in batches.

    queue   oldest ─► 17 ─► 4 ─► 92 ─► 18 …
                     └──── k keys ────┘        one query: their rows, and no others

1. The k distinct keys that wait longest are asked for in one query (SRJ §2.2); k = 1 is the
   index nested loop join.
2. Each of them is answered with all its rows, or as a key without any.

Events of a key that arrive while its query is under way are answered by it too. A batch does
not wait to fill: while one query runs, the next batch gathers by itself, and a slow stream is
answered at once. How far hits may overtake the misses before them is the engine's `distance`.

Memory: a disk buffer for the rows of k keys, and H_S.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.join import matching
from dovetail.join.exchange import Keys
from dovetail.join.pending import Admission
from dovetail.join.phase import Settled, Turns

if TYPE_CHECKING:
    from dovetail.join.exchange import Read
    from dovetail.join.held import Held
    from dovetail.join.phase import Relation


class Lookup:
    def __init__(self, keys: int) -> None:
        self.keys = keys
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

    def wants(self, held: Held) -> Keys | None:
        if not len(held.pending):
            return None
        return Keys(held.pending.keys_of(held.pending.oldest(self.keys)))

    def settle(self, held: Held, read: Read) -> Settled:
        # Nothing leaves between the request and here: the oldest are those asked for.
        asked = held.pending.oldest(read.covers)
        settled = Settled(*matching.complete(held.pool, read.rows, asked))
        self._turns.advance(held)
        return settled
