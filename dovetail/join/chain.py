"""Chains: one event enriched from several master tables in turn, each by its own join.

    events ──► product ──► customer ──► store ──► outputs
                  │  ▲backlog │  ▲backlog │
                  ▼           ▼           ▼
               dropped     dropped     dropped

1. `offer` takes what the first link's engine takes. An event without a key matches nothing: the
   link answers it at once, as one without rows.
2. `wants` says which links want what read; `feed` takes a read for one of them.
3. A link's answers are spliced and offered to the next link, whose key is made from the event
   as enriched so far. What that one has no room for waits in its backlog.

While a link has a backlog no link before it is fed or offered anything, so that a full engine
holds up the chain to its start. The last link with a backlog can always be read for: nothing
is stuck.

With many rows a key one event becomes several, all with its id; `Made.done` says when the
last of them has come out or was dropped.

Memory: the engines' budgets; beside them the backlogs (`backlog_bytes`), outputs of at most one
read or offer of each link; and 12 bytes for each event since the oldest in the chain.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from dovetail.join.engine import fed
from dovetail.join.entry import Entries
from dovetail.join.exchange import Answers, Events
from dovetail.join.splice import splice

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dovetail.join.columns import Bytes, Column, Flags, Ints, JoinKeys, SmallInts
    from dovetail.join.engine import Engine
    from dovetail.join.exchange import Read, Request
    from dovetail.join.in_order import InOrder
    from dovetail.join.kinds import JoinKind


@dataclass(frozen=True, slots=True)
class Batch:
    """Events on their way: bytes, and what the caller calls each."""

    data: Column
    ids: Ints

    def __len__(self) -> int:
        return len(self.ids)

    def slice(self, first: int, end: int) -> Batch:
        return Batch(self.data.slice(first, end), self.ids[first:end])

    def take(self, places: Ints) -> Batch:
        return Batch(self.data.take(places), self.ids[places])


class LinkKeys(NamedTuple):
    keys: JoinKeys
    missing: Flags
    """Events without a key (NULL): it equals nothing. What stands in `keys` is not looked at."""


class MakeKeys(Protocol):
    def __call__(self, events: Column) -> LinkKeys:
        """Make the join keys of events as they are enriched so far."""
        ...


@dataclass(frozen=True, slots=True)
class Link:
    """One master table. In order, an event without a key still overtakes those that wait."""

    engine: Engine | InOrder
    kind: JoinKind
    keys: MakeKeys
    no_row: Bytes
    """What a left join continues an event with where it has no row (splice.null_row)."""


class Want(NamedTuple):
    link: int
    request: Request


@dataclass(slots=True)
class Made:
    """What has come out of a chain."""

    outputs: list[Batch] = field(default_factory=list)
    dropped: list[tuple[int, Batch]] = field(default_factory=list)
    """Events as they were when a link had no output for them, and which link that was."""
    done: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    """Ids of the events of which nothing is in the chain any more."""


class ChainOffered(NamedTuple):
    accepted: int
    made: Made


class _Copies:
    """How many copies of each event are in the chain, by a number in the order of arrival."""

    def __init__(self) -> None:
        self.next = 0
        self._first = 0
        self._ids: Ints = np.empty(0, np.int64)
        self._left: SmallInts = np.empty(0, np.int32)
        self._touched: list[Ints] = []

    def enter(self, ids: Ints) -> None:
        self.next += len(ids)
        self._ids = np.concatenate([self._ids, ids])
        self._left = np.concatenate([self._left, np.ones(len(ids), np.int32)])

    def ids(self, numbers: Ints) -> Ints:
        return self._ids[numbers - self._first]

    def replace(self, before: Ints, after: Ints) -> None:
        """Of each number in `before` a copy goes, and of each in `after` one comes."""
        np.subtract.at(self._left, before - self._first, 1)
        np.add.at(self._left, after - self._first, 1)
        self._touched.append(before)

    def done(self) -> Ints:
        """Ids of the events that have gone since the last call."""
        if not self._touched:
            return np.empty(0, np.int64)
        places = np.unique(np.concatenate(self._touched)) - self._first
        ids: Ints = self._ids[places[self._left[places] == 0]]
        gone = int(np.argmax(self._left > 0)) if self._left.any() else len(self._left)
        self._first += gone
        self._ids, self._left = self._ids[gone:], self._left[gone:]
        self._touched = []
        return ids


class Chain:
    def __init__(self, links: Sequence[Link]) -> None:
        self.links = tuple(links)
        self._backlogs: list[Events | None] = [None] * len(self.links)
        self._wanted: set[int] = set()
        self._copies = _Copies()

    @property
    def backlog(self) -> int:
        """Events that wait between links."""
        return sum(len(events) for events in self._backlogs if events is not None)

    @property
    def backlog_bytes(self) -> int:
        return sum(
            events.data.nbytes
            + events.ids.nbytes
            + events.keys.values.nbytes
            + events.keys.texts.nbytes
            for events in self._backlogs
            if events is not None
        )

    def offer(self, batch: Batch) -> ChainOffered:
        """Let in what the first link has room for, from the batch's start."""
        made = Made()
        if not len(batch) or self._held_up(0):
            return ChainOffered(0, made)
        first = self._copies.next
        numbered = Batch(batch.data, np.arange(first, first + len(batch)))
        events, some, missing = self._keyed(0, numbered)
        offered = self.links[0].engine.offer(events)
        all_in = offered.accepted == len(events)
        accepted = len(batch) if all_in else int(some[offered.accepted])
        self._copies.enter(batch.ids[:accepted])
        self._pass_on(0, _without_rows(numbered.take(missing[missing < accepted])), made)
        self._pass_on_all(0, offered.answers, made)
        made.done = self._copies.done()
        return ChainOffered(accepted, made)

    def wants(self) -> list[Want]:
        """What to read next and for which link, the last link first; empty when idle."""
        wants = []
        for link in reversed(range(len(self.links))):
            request = None if self._held_up(link) else self.links[link].engine.wants()
            if request is not None:
                wants.append(Want(link, request))
        self._wanted = {want.link for want in wants}
        return wants

    def feed(self, link: int, read: Read) -> Made:
        """Take what was read for a link of the latest `wants`; each once."""
        if link not in self._wanted:
            raise ValueError(f"link {link} asked for nothing: feed() answers what wants() says")
        self._wanted.remove(link)
        made = Made()
        for answers in fed(self.links[link].engine, read):
            self._pass_on(link, answers, made)
        for waiting in reversed(range(len(self.links))):
            self._push(waiting, made)
        made.done = self._copies.done()
        return made

    def _held_up(self, link: int) -> bool:
        """Whether a link behind this one has a backlog."""
        return any(events is not None for events in self._backlogs[link + 1 :])

    def _keyed(self, link: int, batch: Batch) -> tuple[Events, Ints, Ints]:
        """The events that have a key, and the places of those and of the others."""
        keys, missing = self.links[link].keys(batch.data)
        some, none = np.flatnonzero(~missing), np.flatnonzero(missing)
        if not len(none):  # without a copy
            return Events(keys, batch.data, batch.ids), some, none
        chosen = batch.take(some)
        return Events(keys.take(some), chosen.data, chosen.ids), some, none

    def _pass_on_all(self, link: int, answers: Answers, made: Made) -> None:
        """Pass on what an offer has answered, which may come in slices as well."""
        self._pass_on(link, answers, made)
        while self.links[link].engine.answering:
            self._pass_on(link, self.links[link].engine.more(), made)

    def _pass_on(self, link: int, answers: Answers, made: Made) -> None:
        """Splice a link's answers and hand them to the next."""
        if not len(answers):
            return
        kind, no_row = self.links[link].kind, self.links[link].no_row
        spliced = splice(kind, answers.events, answers.entries, answers.starts, no_row)
        dropped = Batch(answers.events, answers.ids).take(spliced.unmatched)
        passed = Batch(spliced.outputs, answers.ids[spliced.events])
        last = link + 1 == len(self.links)
        self._copies.replace(answers.ids, passed.ids[:0] if last else passed.ids)
        if len(dropped):
            made.dropped.append((link, self._named(dropped)))
        if last and len(passed):
            made.outputs.append(self._named(passed))
        elif len(passed):
            self._arrive(link + 1, passed, made)

    def _named(self, batch: Batch) -> Batch:
        return Batch(batch.data, self._copies.ids(batch.ids))

    def _arrive(self, link: int, batch: Batch, made: Made) -> None:
        events, _, missing = self._keyed(link, batch)
        if len(events):
            self._backlogs[link] = (
                events
                if (before := self._backlogs[link]) is None
                else Events.concatenate([before, events])
            )
            self._push(link, made)
        self._pass_on(link, _without_rows(batch.take(missing)), made)

    def _push(self, link: int, made: Made) -> None:
        """Offer a link its backlog, unless one behind it has a backlog too."""
        events = self._backlogs[link]
        if events is None or self._held_up(link):
            return
        offered = self.links[link].engine.offer(events)
        rest = events.slice(offered.accepted, len(events))
        self._backlogs[link] = rest if len(rest) else None
        self._pass_on_all(link, offered.answers, made)


def _without_rows(batch: Batch) -> Answers:
    """Answer events as ones that have no master row."""
    entry = Entries.without_rows()
    return Answers(batch.data, batch.ids, entry.data, np.zeros(len(batch), np.int64))
