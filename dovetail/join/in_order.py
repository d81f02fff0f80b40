"""Answers in the order of the stream, for any algorithm (MESHJOIN §3.4).

    engine ──► 5 3 ──► │ 3 5 · 7 │ ──► 1 2           4 is still pending: 5 and 7 wait for it
                        held back

1. The engine keeps every answer within `distance` places of where its event stood.
2. What is answered too early is held back here until all before it are answered.

Memory: at most `distance` answers, beside the engine's budget: they are output that has not
been handed over yet. `nbytes` says what they take.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from dovetail.errors import ConfigError
from dovetail.join.columns import Column
from dovetail.join.engine import Offered
from dovetail.join.exchange import NO_ANSWERS, Answers
from dovetail.join.pending import UNBOUNDED

if TYPE_CHECKING:
    from dovetail.join.auto import Auto
    from dovetail.join.columns import Flags, Ints
    from dovetail.join.engine import Engine
    from dovetail.join.exchange import Events, Read, Request
    from dovetail.join.phase import Relation


class InOrder:
    """Drives an engine that has a bounded distance; used as the engine itself would be."""

    def __init__(self, engine: Engine | Auto) -> None:
        if engine.distance == UNBOUNDED:
            raise ConfigError(
                "answers can be put in order only within a distance: set it for the engine"
            )
        self.engine = engine
        self._next = 0
        self._ids: Ints = np.empty(0, np.int64)
        """What the caller calls the events from `next` on."""
        self._answered: Flags = np.empty(0, np.bool_)
        self._early: list[Answers] = []

    @property
    def nbytes(self) -> int:
        """Bytes of the answers that are held back."""
        return sum(
            part.events.nbytes + part.ids.nbytes + part.entries.nbytes + part.starts.nbytes
            for part in self._early
        )

    @property
    def held_back(self) -> int:
        return sum(len(part) for part in self._early)

    def offer(self, events: Events) -> Offered:
        first = self._next + len(self._ids)
        numbered = replace(events, ids=np.arange(first, first + len(events)))
        offered = self.engine.offer(numbered)
        self._ids = np.concatenate([self._ids, events.ids[: offered.accepted]])
        self._answered = np.concatenate([self._answered, np.zeros(offered.accepted, np.bool_)])
        return Offered(offered.accepted, self._release(offered.answers))

    def wants(self) -> Request | None:
        return self.engine.wants()

    def feed(self, read: Read) -> Answers:
        return self._release(self.engine.feed(read))

    def renew(self, relation: Relation) -> None:
        self.engine.renew(relation)

    def _release(self, answers: Answers) -> Answers:
        if not len(answers):
            return NO_ANSWERS
        self._early.append(answers)
        self._answered[answers.ids - self._next] = True
        due = len(self._answered) if self._answered.all() else int(np.argmin(self._answered))
        if not due:
            return NO_ANSWERS
        released = self._take(self._next + due)
        ids = self._ids[released.ids - self._next]
        self._next += due
        self._ids = self._ids[due:]
        self._answered = self._answered[due:]
        return replace(released, ids=ids)

    def _take(self, end: int) -> Answers:
        """Take the answers to events before this one, and put them in order."""
        due = [_select(part, part.ids < end) for part in self._early]
        late = [_select(part, part.ids >= end) for part in self._early]
        self._early = [part for part in late if len(part)]
        return _sorted([part for part in due if len(part)])


def _select(part: Answers, chosen: Flags) -> Answers:
    if chosen.all():
        return part
    places = np.flatnonzero(chosen)
    return Answers(part.events.take(places), part.ids[places], part.entries, part.starts[places])


def _sorted(parts: list[Answers]) -> Answers:
    shifts = np.cumsum([0, *(len(part.entries) for part in parts)])
    ids = np.concatenate([part.ids for part in parts])
    starts = np.concatenate(
        [part.starts + shift for part, shift in zip(parts, shifts, strict=False)]
    )
    order = np.argsort(ids)
    return Answers(
        Column.concatenate([part.events for part in parts]).take(order),
        ids[order],
        np.concatenate([part.entries for part in parts]),
        starts[order],
    )
