"""The line: answers that stand in it until it is their turn to leave.

    within 2     17 │ 18 19 20 21 22 23     18 has no answer yet: 19 and 20 may leave,
              sent  │  ·  ▓  ▓  ·  ·  ▓     23 stays in line

1. An answer may leave while at most `within` numbers separate it from the oldest event
   without one. So no output is further from where its event stood (scrambling distance, SRJ §2.1):
   none gets ahead by more, and none falls behind by more, for no other gets past it. Within 0 is
   the very order.
2. A hit that has to stay keeps its entry, whatever the cache does meanwhile (SRJ's pinned tuple).
3. What may leave does so in the order of the numbers, slice by slice.

In the services the numbers (window.py) run over all slots of a node: between two events of one slot
they lie at least as far apart as the slot's own.

Memory: at most `room` bytes, an entry once for all events that came with it. A batch with hits
comes in if it finds room. Answers of the join come unasked, so no more events are let into it than
would find room with answers as large as usual. If they are larger after all, the step is undone
(`require_room`) or the last in line are joined once more (`turn_away`), and fewer are let in for a
while.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dovetail.errors import Unavailable
from dovetail.join.entry import each_once
from dovetail.join.exchange import Answers

if TYPE_CHECKING:
    from dovetail.join.columns import Bytes, Column, Flags, Ints

_GUESS = 512.0
"""Bytes of an answer, before any was seen."""
_WEIGHT = 1 / 8
"""Of what was seen last, in the mean."""
_SLICES = 8
"""What leaves at a time takes one part in so many of the room."""


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
    entries: Bytes
    starts: Ints
    cached: bool

    @classmethod
    def of(cls, answers: Answers, *, cached: bool) -> _Part:
        """Answers with no other entries than their own."""
        entries, starts = each_once(answers.entries, answers.starts)
        return cls(answers.ids, answers.events, entries, starts, cached)

    @property
    def first(self) -> int:
        return int(self.numbers.min())

    @property
    def answers(self) -> Answers:
        return Answers(self.events, self.numbers, self.entries, self.starts)

    @property
    def nbytes(self) -> int:
        return self.numbers.nbytes + self.events.nbytes + self.entries.nbytes + self.starts.nbytes

    def select(self, chosen: Flags) -> _Part:
        if chosen.all():
            return self
        return _Part.of(self.answers.take(np.flatnonzero(chosen)), cached=self.cached)


class Line:
    def __init__(self, within: int, room: int, caution: int = 1) -> None:
        """`caution` is for one whose forerunner was too crowded: so much fewer are let in."""
        self._within = within
        self._room = room
        self._parts: list[_Part] = []
        self._mean = self._cached_mean = _GUESS
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
        usual = max(self._mean, self._cached_mean) * self._caution
        room = int((self._room - self.nbytes) / usual) - pending
        return max(room, 0 if pending else 1)

    def stand(self, answers: Answers, *, cached: bool) -> None:
        """Take answers in; their ids are their events' numbers."""
        part = _Part.of(answers, cached=cached)
        self._parts.append(part)
        size = part.nbytes / len(answers)
        if cached:
            self._cached_mean += (size - self._cached_mean) * _WEIGHT
        else:
            self._mean += (size - self._mean) * _WEIGHT

    def due(self, waiting: Ints) -> Due | None:
        """Let go of answers whose turn it is, a slice of them; None if there are none.

        `waiting` are the numbers of all events whose answer has not been sent, in order.
        """
        first = min((part.first for part in self._parts), default=None)
        if first is None or first > int(waiting[0]) + self._within:
            return None
        last = self._last(waiting)
        turned = [part.select(part.numbers <= last) for part in self._parts]
        parts = [part.select(part.numbers > last) for part in self._parts]
        self._parts = [part for part in parts if len(part.numbers)]
        due = _sorted([part for part in turned if len(part.numbers)])
        self._calm(len(due.cached))
        return due

    def require_room(self, waiting: int) -> None:
        """Raise CrowdedError if those that stay, of so many, find no room: all is read again."""
        held = self.nbytes
        if held > self._room and not all(part.cached for part in self._parts):
            self._grow_cautious(waiting)
            raise CrowdedError(
                f"answers that wait for their turn take {held} bytes, and {self._room} are theirs:"
                " fewer events are let in at a time; more memory would let in more"
            )

    def turn_away(self, waiting: int) -> list[Answers]:
        """Let go of the last in line, in no order, until the others, of so many, find room."""
        away: list[Answers] = []
        while (held := self.nbytes) > self._room:
            if not away:
                self._grow_cautious(waiting)
            numbers = self._numbers()
            end = int(numbers[len(numbers) * self._room // held])
            away += [part.select(part.numbers >= end).answers for part in self._parts]
            parts = [part.select(part.numbers < end) for part in self._parts]
            self._parts = [part for part in parts if len(part.numbers)]
        return [answers for answers in away if len(answers)]

    def clear(self) -> None:
        self._parts.clear()

    def _numbers(self) -> Ints:
        return np.sort(np.concatenate([part.numbers for part in self._parts]), kind="stable")

    def _last(self, waiting: Ints) -> int:
        """The highest number that may leave with this slice."""
        answered = self._numbers()
        most = int(answered[min(len(answered), self._a_slice) - 1])
        # Both are in order and each answered one waits: where they part is one without an answer.
        unlike = np.flatnonzero(waiting[: len(answered)] != answered)
        oldest = int(unlike[0]) if len(unlike) else len(answered)
        return most if oldest == len(waiting) else min(most, int(waiting[oldest]) + self._within)

    @property
    def _a_slice(self) -> int:
        """Answers that leave together."""
        return max(1, len(self) * self._room // (_SLICES * self.nbytes))

    def _grow_cautious(self, waiting: int) -> None:
        self._caution *= 2
        self._stretch, self._sent = waiting, 0

    def _calm(self, sent: int) -> None:
        """Be less cautious once the stretch that was too large is past."""
        self._sent += sent
        if self._caution > 1 and self._sent > self._stretch:
            self._caution //= 2
            self._sent = 0


def _sorted(parts: list[_Part]) -> Due:
    together = Answers.concatenate([part.answers for part in parts])
    order = np.argsort(together.ids, kind="stable")
    cached = np.repeat([part.cached for part in parts], [len(part.numbers) for part in parts])
    return Due(together.take(order), cached[order])
