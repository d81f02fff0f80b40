"""Answers in the order of the stream, for any algorithm (MESHJOIN §3.4).

    engine ──► 5 3 ──► │ 3 5 · 7 │ ──► 1 2           4 is still pending: 5 and 7 wait for it
                          line

1. Events are numbered as they come. What is answered too early stands in the line (line.py) until
   all before it are answered.
2. No more events are let in than their answers would probably find room in the line. If the answers
   are larger after all, the last in line are turned away: their events are joined once more, before
   any new one.

Memory: the engine's, the line's `room`, and the events that were turned away, which take less than
their answers did.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from dovetail.join.engine import Offered
from dovetail.join.entry import keys_at
from dovetail.join.exchange import NO_ANSWERS, NO_EVENTS, Answers, Events
from dovetail.join.line import Line

if TYPE_CHECKING:
    from dovetail.join.auto import Auto
    from dovetail.join.columns import Ints
    from dovetail.join.engine import Engine
    from dovetail.join.exchange import Read, Request
    from dovetail.join.phase import Relation


class InOrder:
    """Drives an engine, and is used as the engine itself would be.

    Only that `offer`, too, gives a slice of the answers, and `more` the others.
    """

    def __init__(self, engine: Engine | Auto, room: int) -> None:
        self.engine = engine
        self._line = Line(0, room)
        self._next = 0
        """The first event that has not left."""
        self._ids: Ints = np.empty(0, np.int64)
        """What the caller calls the events from `next` on."""
        self._away: Events = NO_EVENTS
        """What was turned away, in its order: the first of it is the next to be joined."""
        self._settled = True

    @property
    def nbytes(self) -> int:
        """Bytes of the answers that are held back."""
        return self._line.nbytes

    @property
    def held_back(self) -> int:
        return len(self._line)

    @property
    def answering(self) -> bool:
        return self.engine.answering or not self._settled

    def offer(self, events: Events) -> Offered:
        most = 0 if len(self._away) else self._line.lets_in(self.engine.pending)
        if not most:
            return Offered(0, NO_ANSWERS)
        first = self._next + len(self._ids)
        part = events.slice(0, min(most, len(events)))
        offered = self.engine.offer(replace(part, ids=np.arange(first, first + len(part))))
        self._ids = np.concatenate([self._ids, events.ids[: offered.accepted]])
        return Offered(offered.accepted, self._through_line(offered.answers))

    def wants(self) -> Request | None:
        return self.engine.wants()

    def feed(self, read: Read) -> Answers:
        return self._through_line(self.engine.feed(read))

    def more(self) -> Answers:
        """The next slice of what may leave; perhaps nothing, although there is more."""
        answers = self._leaving()
        if len(answers):
            return answers
        if self.engine.answering:
            return self._through_line(self.engine.more())
        return self._through_line(self._joined_again())

    def renew(self, relation: Relation) -> None:
        self.engine.renew(relation)

    def _through_line(self, answers: Answers) -> Answers:
        self._settled = not len(answers)
        if len(answers):
            self._line.stand(answers, cached=False)
        return self._leaving()

    def _leaving(self) -> Answers:
        """The next of the stream, as far as they are answered; the others have to find room."""
        waiting = len(self._ids)
        due = self._line.due(np.arange(self._next, self._next + waiting)) if waiting else None
        if due is None:
            self._turn_away(waiting)
            return NO_ANSWERS
        self._settled = False
        leaving = len(due.answers)
        answers = replace(due.answers, ids=self._ids[:leaving])
        self._next += leaving
        self._ids = self._ids[leaving:]
        return answers

    def _turn_away(self, waiting: int) -> None:
        away = self._line.turn_away(waiting)
        if not away:
            return
        turned = Answers.concatenate(away)
        events = Events(keys_at(turned.entries, turned.starts), turned.events, turned.ids)
        together = Events.concatenate([self._away, events])
        self._away = together.take(np.argsort(together.ids))
        self._settled = False

    def _joined_again(self) -> Answers:
        """Offer what was turned away, as much as the line has room for."""
        away = self._away
        if not len(away):
            return NO_ANSWERS
        most = min(self._line.lets_in(self.engine.pending), len(away))
        offered = self.engine.offer(away.slice(0, most))
        rest = away.slice(offered.accepted, len(away))
        self._away = rest if len(rest) else NO_EVENTS
        return offered.answers
