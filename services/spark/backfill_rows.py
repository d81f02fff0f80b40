"""Events of keys that have more rows than memory holds, joined with the rows as they come by.

The services answer an event with all its rows at once, and park it if they do not fit. Here the
rows of a key need not be held: R is scanned, in one state of it, and whatever rows of these keys a
read brings are spliced to their events and sent before the next read. It is all one transaction,
so that a reader sees an event with all of its outputs or with none.

Memory: the events, in a share of the node's that they are let into; a read; and a piece of the
output.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dovetail.errors import MasterDataError
from dovetail.join.entry import Entries, distinct
from dovetail.join.exchange import Pages
from dovetail.master.relation import part
from dovetail.stream.batch import EventBatch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dovetail.join.columns import Bytes, Ints
    from dovetail.join.entry import MasterRows
    from dovetail.master.relation import ChangingRelation

PIECE_BYTES = 8 << 20
"""Output that is made at once, about."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Some rows of some events' keys."""

    events: Ints
    """Which events, by their places in the batch."""
    entries: Bytes
    starts: Ints


class LargeKeys:
    """Events that wait for a scan."""

    def __init__(self, relation: ChangingRelation, most: int, room: int) -> None:
        """`most` are the bytes of a read, `room` those of the events."""
        self._relation = relation
        self._most = most
        self._room = room
        self._held: list[tuple[int, EventBatch]] = []
        self._bytes = 0

    def __len__(self) -> int:
        return sum(len(batch) for _, batch in self._held)

    @property
    def full(self) -> bool:
        return self._bytes > self._room

    def add(self, place: int, batch: EventBatch) -> None:
        """`place` is the caller's name for where these come from."""
        self._held.append((place, batch))
        self._bytes += batch.nbytes

    def leave(self) -> tuple[EventBatch, Ints]:
        """Let all of them go, each with its place."""
        held, self._held, self._bytes = self._held, [], 0
        places = [np.full(len(batch), place, np.int64) for place, batch in held]
        return EventBatch.concatenate([batch for _, batch in held]), np.concatenate(places)

    def pieces(self, batch: EventBatch) -> Iterator[Piece]:
        """Scan R once, and give what it has for these events."""
        firsts, ranks = distinct(batch.keys)
        keys = batch.keys.take(firsts)
        sizes = np.diff(batch.events.bounds)
        step = max(1, PIECE_BYTES // int(sizes.max()))
        for rows in self._scan():
            for first in range(0, len(rows), step):
                some = part(rows, first, min(first + step, len(rows)))
                entries = Entries.of(keys, some)
                counts = entries.rows_each()[ranks]
                there = np.flatnonzero(counts)
                taken = counts[there] * sizes[there] + np.diff(entries.bounds)[ranks[there]]
                for events in _cut(there, taken):
                    yield Piece(events, entries.data, entries.bounds[ranks[events]])

    def _scan(self) -> Iterator[MasterRows]:
        """R, a read at a time; all of one state of it."""
        facts = self._relation.renew() or self._relation.facts
        if not facts.by_page:
            raise MasterDataError(
                "there are events whose key has more rows than memory holds, and the master "
                "table cannot be scanned, as it is not one heap: name a table or a materialised "
                "view, or let a snapshot be written and read (master.snapshot)"
            )
        at = place = 0
        while at < facts.pages:
            read = self._relation.read(Pages(at, facts.pages - at, facts.pages, place), self._most)
            at, place = at + read.covers, read.place
            yield read.rows
        self._relation.rest()


def _cut(events: Ints, taken: Ints) -> Iterator[Ints]:
    """Cut them where they take a piece of the output, at least one each."""
    ends = np.cumsum(taken)
    first = 0
    while first < len(events):
        before = int(ends[first] - taken[first])
        end = int(np.searchsorted(ends, before + PIECE_BYTES, "right"))
        end = max(end, first + 1)
        yield events[first:end]
        first = end
