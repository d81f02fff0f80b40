"""The join: a cache policy and a disk phase over one budget of bytes. It reads nothing itself.

    events ──► offer ──hit────────────────────────────► answers
                 │miss          ▲ keys that are worth it
                 ▼              │
              pending ──► wants ──► (a driver reads) ──► feed ──► answers

1. `offer` lets events in, from a batch's start and as many as have room: hits are answered,
   misses become pending. What was not let in is offered again later (backpressure).
2. `wants` says what to read next; None while nothing is pending.
3. `feed` joins what was read with everything pending and answers whoever is done: a slice of
   them, and `more` the next one, while there are any (`fed` goes through all).

Every event that was let in is answered once, with all its master rows, by `offer`, `feed` or
`more`. Between any two calls the algorithm may be changed, unless answers are left.

A key whose rows do not fit, though nobody is let in and whoever could has left, is let go without
an answer, and no other: `feed` says so by a TooManyRowsError, and `dismiss` gives its events back.

Memory: a disk buffer, into which every read must fit, and a pool (pool.py) for the rest;
together never more than the budget. Answers belong to the caller and do not count: a slice of those
to a read, entries as large as the rows read and collected, or cached entries of a batch's hits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from dovetail.errors import ConfigError, MasterDataError, TooManyRowsError
from dovetail.join import matching
from dovetail.join.algorithms import Parameters, algorithm_named
from dovetail.join.columns import Column
from dovetail.join.entry import LARGEST, MasterRows
from dovetail.join.exchange import NO_ANSWERS, NO_KEYS, Answers, Pages, Read
from dovetail.join.held import Held
from dovetail.join.pending import NOBODY, UNBOUNDED
from dovetail.join.pool import BYTES_A_BLOCK
from dovetail.join.splice import slice_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dovetail.join.columns import Flags, JoinKeys
    from dovetail.join.entry import Entries
    from dovetail.join.exchange import Events, Request
    from dovetail.join.pending import Admission, Admitted, Leaving, Left
    from dovetail.join.phase import Relation
    from dovetail.join.policies import CachePolicy

DISK_BUFFER_SHARE = 4
"""The disk buffer is one part in so many of the budget, unless it is given."""


@dataclass(frozen=True, slots=True)
class Offered:
    accepted: int
    """How many events of the batch were let in, from its start."""
    answers: Answers


@dataclass(slots=True)
class Figures:
    """Counted since the engine was made."""

    accepted: int = 0
    hits: int = 0
    answered: int = 0
    reads: int = 0
    read_units: int = 0
    """Pages, partitions or keys that were read."""
    rows_read: int = 0


class Answering(Protocol):
    """Gives the answers to a read slice by slice."""

    @property
    def answering(self) -> bool: ...
    def feed(self, read: Read, /) -> Answers: ...
    def more(self) -> Answers: ...


def fed(engine: Answering, read: Read) -> Iterator[Answers]:
    """Feed an engine, and take all slices of the answers; some may be empty."""
    yield engine.feed(read)
    while engine.answering:
        yield engine.more()


class Engine:
    """Joins events with R by the algorithm of a name, within `memory` bytes.

    `distance` is the order constraint: how many places an answer may be away from where its
    event stood in the stream (scrambling distance, SRJ §2.1).
    `policy`, if given, takes the place of every algorithm's own: of an engine whose cache is
    another process's (emigration.py).
    """

    def __init__(
        self,
        algorithm: str,
        relation: Relation,
        memory: int,
        *,
        parameters: Parameters | None = None,
        disk_buffer: int = 0,
        distance: int = UNBOUNDED,
        policy: CachePolicy | None = None,
    ) -> None:
        self.relation = relation
        self.budget = memory
        # What is answered from one read is an entry at most.
        self.disk_buffer = min(disk_buffer or memory // DISK_BUFFER_SHARE, LARGEST)
        self.parameters = parameters or Parameters()
        self.held = Held(memory - self.disk_buffer)
        self.figures = Figures()
        self.distance = distance
        self._given_policy = policy
        self._cycles = 0
        self._request: Request | None = None
        self._let_in = 0
        self._slice = slice_bytes(memory)
        self._leaving: tuple[Leaving, Entries] | None = None
        self._row_too_large = False
        self._choose(algorithm)

    @property
    def allocated(self) -> int:
        """Bytes of the budget that are taken, the disk buffer included."""
        return sum(self.components.values())

    @property
    def components(self) -> dict[str, int]:
        """The same by what takes them."""
        pool = {"pool": self.held.allocated}
        if self._given_policy is None:
            cache = self.held.cached.blocks * BYTES_A_BLOCK
            pool = {"cache": cache, "pool": self.held.allocated - cache}
        return {**pool, "disk_buffer": self.disk_buffer}

    @property
    def pending(self) -> int:
        """Events that were let in and are not answered yet."""
        return len(self.held.pending)

    @property
    def cycle(self) -> int:
        return self._cycles + self.phase.cycle

    @property
    def answering(self) -> bool:
        """Whether there are more answers to the last read."""
        return self._leaving is not None

    def offer(self, events: Events) -> Offered:
        """Let in what has room, from the batch's start; answer hits."""
        self._require_all_taken()
        admitted = self._admit(events)
        hits = len(admitted.hits)
        self._let_in += admitted.events - hits
        self.figures.accepted += admitted.events
        self.figures.hits += hits
        self.figures.answered += hits
        if not hits:
            return Offered(admitted.events, NO_ANSWERS)
        entries, starts = self.held.cached.gather(admitted.owners)
        # Without a copy where everything was a hit.
        data = events.data if hits == len(events) else events.data.take(admitted.hits)
        ids = events.ids[admitted.hits]
        return Offered(admitted.events, Answers(data, ids, entries, starts))

    def awaited(self, keys: JoinKeys) -> Flags:
        """Which of these keys have pending events."""
        return self.held.pending.awaited(keys)

    def wants(self) -> Request | None:
        """What to read next; the same again until it is fed."""
        self._require_all_taken()
        if self._request is None:
            self._request = self.phase.wants(self.held)
        return self._request

    def feed(self, read: Read) -> Answers:
        """Take what was read for the request, and answer whoever that completes: a slice."""
        if self._request is None:
            raise ValueError("nothing was asked for: feed() answers the request of wants()")
        if read.nbytes > self.disk_buffer:
            read = self._without_rows(read)
        self._request = None
        self._let_in = 0
        settled = self.phase.settle(self.held, read)
        self.figures.reads += 1
        self.figures.read_units += read.covers
        self.figures.rows_read += len(read.rows)
        if not len(settled.keys):
            return NO_ANSWERS
        leaving = self.held.pending.leaving(settled.keys)
        self._leaving = leaving, settled.entries
        self.figures.answered += int(leaving.counts.sum())
        return self.more()

    def more(self) -> Answers:
        """The next slice of the answers to the last read; empty if there is none."""
        if self._leaving is None:
            return NO_ANSWERS
        leaving, entries = self._leaving
        left = self.held.pending.remove(leaving, self._slice)
        if leaving.done:
            self._leaving = None
            self.policy.learn(self.held.cached, left, entries, self.cycle)
        return Answers(left.events, left.ids, entries.data, entries.bounds[left.ranks])

    def dismiss(self) -> Left:
        """Let the key go without an answer of whose rows `feed` said by TooManyRowsError.

        What was read is to be read again. Did the rows find no room in the pool, everybody else
        starts over.
        """
        self._request = None
        self._let_in = 0  # a step ends here too: there may be nobody left to read for
        if not self._row_too_large:
            self.phase.begin(self.held)
        keys = self.held.too_large
        self._row_too_large, self.held.too_large = False, None
        return self.held.pending.dismiss(self.held.pending.oldest(1) if keys is None else keys)

    def forget(self) -> None:
        """Let go of all that waits, without an answer; what is cached and learnt stays."""
        self.held.pending.clear()
        self._leaving = self._request = None
        self._let_in = 0
        self._row_too_large, self.held.too_large, self.held.draining = False, None, False
        self.phase.begin(self.held)

    def warm(self, entries: Entries) -> None:
        """Cache entries ahead of their events, if the algorithm caches: a plan, or a restart.

        A key that is pending or cached already is left as it is.
        """
        self.policy.warm(self.held.cached, entries)

    def switch(self, algorithm: str, parameters: Parameters | None = None) -> None:
        """Go on with another algorithm: pending events and, if it caches, entries stay.

        A request under way is forgotten: ask again.
        """
        self.parameters = parameters or self.parameters
        self._cycles += self.phase.cycle
        self._choose(algorithm)

    def renew(self, relation: Relation) -> None:
        """Go on over R as it is now: every pending key starts over, the cache stays.

        So a key that waits for all pages sees those of one R, if this is called whenever what is
        read may have changed. A request under way is forgotten: ask again.
        """
        self.relation = relation
        self.phase.renew(self.held, relation)
        self._request = None

    def _choose(self, name: str) -> None:
        algorithm = algorithm_named(name)
        self.algorithm = name
        self.policy: CachePolicy = self._given_policy or algorithm.policy(self.parameters)
        self.phase = algorithm.phase(self.parameters, self.relation, self.disk_buffer)
        self.policy.begin(self.held.cached)
        self.phase.begin(self.held)
        self._request = None
        self._let_in = 0

    def _require_all_taken(self) -> None:
        if self._leaving is not None:
            raise ValueError("there are answers left to the last read: take them by more()")

    def _admit(self, events: Events) -> Admitted:
        self.held.draining = self.held.draining and self.pending > 0
        if self.held.draining:
            return NOBODY
        terms = self._terms()
        admitted = self.held.pending.admit(events, terms)
        if admitted.events or not len(events) or self.pending:
            return admitted
        # Nothing will ever leave to make room, so room has to be made here.
        self.held.cached.shrink(0)
        terms.kept_free = terms.rows_a_key = 0
        admitted = self.held.pending.admit(events, terms)
        if not admitted.events:
            raise ConfigError(
                f"an event of {len(events.data[0])} bytes does not fit into the memory of the "
                f"join, {self.budget} bytes: give it more"
            )
        return admitted

    def _terms(self) -> Admission:
        terms = self.phase.terms(self.held)
        if terms.events != UNBOUNDED:
            terms.events = max(0, terms.events - self._let_in)
        terms.distance = self.distance
        terms.by_recency = self.policy.by_recency
        return terms

    def _without_rows(self, read: Read) -> Read:
        """Refuse what does not fit, unless it is a row of a page that nobody waits for."""
        size = f"{read.nbytes} bytes, and the disk buffer has {self.disk_buffer}"
        cure = "give the join more memory, or take fewer columns"
        keys = read.rows.keys
        if not isinstance(self._request, Pages):
            raise TooManyRowsError(f"the rows of a join key take {size}: {cure}")
        if len(keys) > 1:
            raise MasterDataError(f"a page takes {size}: {cure}")
        _, waiting = matching.matches(self.held.pool, keys)
        if len(waiting):
            self._row_too_large, self.held.too_large = True, waiting
            raise TooManyRowsError(f"a row of join key {keys.shown(0)} takes {size}: {cure}")
        nothing = MasterRows(NO_KEYS, Column.of([]))
        return Read(nothing, read.covers, np.zeros_like(read.ends), read.place)
