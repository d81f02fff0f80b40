"""The line: answers that stand in it until it is their turn to leave.

    within 2     17 │ 18 19 20 21 22 23     18 has no answer yet: 19 and 20 may leave,
              sent  │  ·  ▓  ▓  ·  ·  ▓     23 stays in line

1. An answer may leave while at most `within` numbers (window.py) separate it from the oldest event
   without one. So no output is further from where its event stood (scrambling distance, SRJ §2.1):
   none gets ahead by more, and none falls behind by more, for no other gets past it. Within 0 is
   the very order.
2. A hit that has to stay keeps its entry, whatever the cache does meanwhile (SRJ's pinned tuple).
3. What may leave does so in the order of the numbers.

The numbers run over all slots of a node: between two events of one slot they lie at least as far
apart as the slot's own.

Memory: at most `room` bytes. A batch with hits comes in if it finds room. Answers of the join come
unasked, so no more events are let into it than would find room with answers as large as usual. If
they are larger after all, the step is undone, and fewer are let in for a while.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dovetail.errors import Unavailable
from dovetail.join.columns import Column
from dovetail.join.entry import entries_at
from dovetail.join.exchange import Answers

if TYPE_CHECKING:
    from dovetail.join.columns import Flags, Ints

_GUESS = 512.0
"""Bytes of an answer, before any was seen."""
_WEIGHT = 1 / 8
"""Of what was seen last, in the mean."""


class CrowdedError(Unavailable):
    """Answers do not find room in the line: all has to be read again, and fewer are let in."""


@dataclass(frozen=True, slots=True)
class Due:
    answers: Answers
    cached: Flags
    """Which of them are the cache's."""


@dataclass(frozen=True, slots=True)
class _Part:
    """Answers that came together, from the cache or from the join."""

    numbers: Ints
    events: Column
    entries: Column
    """One an event."""
    cached: bool

    @property
    def nbytes(self) -> int:
        return self.numbers.nbytes + self.events.nbytes + self.entries.nbytes

    def select(self, chosen: Flags) -> _Part:
        if chosen.all():
            return self
        places = np.flatnonzero(chosen)
        return _Part(
            self.numbers[places], self.events.take(places), self.entries.take(places), self.cached
        )


class Line:
    def __init__(self, within: int, room: int, caution: int = 1) -> None:
        """`caution` is for one whose forerunner was too crowded: so much fewer are let in."""
        self._within = within
        self._room = room
        self._parts: list[_Part] = []
        self._mean = _GUESS
        self._caution = caution
        self._stretch = int(room / _GUESS) if caution > 1 else 0
        """Events that waited when the room did not do: for so many the caution lasts."""
        self._sent = 0

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self._parts)

    def __len__(self) -> int:
        return sum(len(part.numbers) for part in self._parts)

    def takes(self, nbytes: int) -> bool:
        """Whether a batch of this size may come in; if the line is empty, any may."""
        return not self._parts or self.nbytes + nbytes <= self._room

    def lets_in(self, pending: int) -> int:
        """How many events may join those that are pending, by the room for their answers.

        One in any case if none is: it is the oldest, and its answer will not stay.
        """
        usual = self._mean * self._caution
        room = int((self._room - self.nbytes) / usual) - pending
        return max(room, 0 if pending else 1)

    def stand(self, answers: Answers, *, cached: bool) -> None:
        """Take answers in; their ids are their events' numbers."""
        entries = entries_at(answers.entries, answers.starts)
        part = _Part(answers.ids, answers.events, entries, cached)
        self._parts.append(part)
        if not cached:
            self._mean += (part.nbytes / len(answers) - self._mean) * _WEIGHT

    def due(self, waiting: Ints) -> Due | None:
        """Let go of the answers whose turn it is; None if there are none.

        `waiting` are the numbers of all events whose answer has not been sent, in order. Raises
        CrowdedError if the others do not find room: then all has to be read again.
        """
        if not self._parts:
            return None
        last = self._last(waiting)
        turned = [part.select(part.numbers <= last) for part in self._parts]
        parts = [part.select(part.numbers > last) for part in self._parts]
        self._parts = [part for part in parts if len(part.numbers)]
        self._require_room(len(waiting))
        turned = [part for part in turned if len(part.numbers)]
        if not turned:
            return None
        due = _sorted(turned)
        self._calm(len(due.cached))
        return due

    def clear(self) -> None:
        self._parts.clear()

    def _last(self, waiting: Ints) -> int:
        """The highest number that may leave."""
        answered = np.sort(np.concatenate([part.numbers for part in self._parts]))
        # Both are in order and each answered one waits: where they part is one without an answer.
        unlike = np.flatnonzero(waiting[: len(answered)] != answered)
        oldest = int(unlike[0]) if len(unlike) else len(answered)
        if oldest == len(waiting):
            return int(answered[-1])
        return int(waiting[oldest]) + self._within

    def _require_room(self, waiting: int) -> None:
        held = self.nbytes
        if held > self._room and not all(part.cached for part in self._parts):
            self._caution *= 2
            self._stretch, self._sent = waiting, 0
            raise CrowdedError(
                f"answers that wait for their turn take {held} bytes, and {self._room} are theirs:"
                " fewer events are let in at a time; more memory would let in more"
            )

    def _calm(self, sent: int) -> None:
        """Be less cautious once the stretch that was too large is past."""
        self._sent += sent
        if self._caution > 1 and self._sent > self._stretch:
            self._caution //= 2
            self._sent = 0


def _sorted(parts: list[_Part]) -> Due:
    numbers = np.concatenate([part.numbers for part in parts])
    order = np.argsort(numbers)
    entries = Column.concatenate([part.entries for part in parts])
    cached = np.repeat([part.cached for part in parts], [len(part.numbers) for part in parts])
    events = Column.concatenate([part.events for part in parts]).take(order)
    answers = Answers(events, numbers[order], entries.data, entries.bounds[order])
    return Due(answers, cached[order])
