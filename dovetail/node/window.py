"""What the disk phase has taken from its slots and not wholly answered: the window.

    slot 0   batch 17  ██░█████     committed offset: 17, the oldest batch with an event that waits
             batch 18  ████████     answered above it: 18 whole, 17 and 19 in part
             batch 19  ░░░█░░░░
    slot 1   batch  4  ░░░░░░░░     committed offset: 4

An event that is let in gets the next number of all; the join knows it by that. The window says
what its number stands for (slot, origin), which offset each slot may commit, and, as bits, what is
answered at and above it. A batch whose last event was answered leaves with those before it.

Memory: for each event that can wait what it is known by, and for each from the oldest batch that
waits to the newest whether it is answered, in a ring: all of it is allocated once. Where the cache
answers what the window numbers, many more are between the two than wait: `span` is by how many
times.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dovetail.contracts.progress_pb2 import Progress
from dovetail.node.step import SourcedEvents
from dovetail.stream.batch import PIECE_EVENTS

if TYPE_CHECKING:
    from dovetail.join.columns import Column, Flags, Ints, SmallInts
    from dovetail.stream.batch import EventBatch

_KNOWN_BY = 8 + 4 + 4 + 8 + 8
BYTES_AN_EVENT = _KNOWN_BY + 1
SPAN = 8
"""Events that a node's window numbers for each that can wait in it: seven of eight may be hits."""
SPANNING_BYTES_AN_EVENT = _KNOWN_BY + SPAN
LEAST = 2 * PIECE_EVENTS
"""The smallest capacity: any batch has to fit, while another one waits."""


@dataclass(frozen=True, slots=True)
class Answered:
    """Events of one slot that are done, with what they were known by at their source."""

    slot: int
    places: Ints
    """Where they stand among those that were asked for."""
    partitions: SmallInts
    offsets: Ints
    timestamps: Ints
    slots: SmallInts | None = None
    """Of each, where they are of several."""

    def sourced(self, events: Column) -> SourcedEvents:
        """The same with their bytes."""
        return SourcedEvents(events, self.partitions, self.offsets, self.timestamps, self.slots)


@dataclass(slots=True)
class _Batch:
    offset: int
    first: int
    """The number of its first event."""
    events: int


class Window:
    def __init__(self, capacity: int, span: int = 1) -> None:
        self._numbers: Ints = np.zeros(capacity, np.int64)
        self._slots: SmallInts = np.zeros(capacity, np.int32)
        self._partitions: SmallInts = np.zeros(capacity, np.int32)
        self._offsets: Ints = np.zeros(capacity, np.int64)
        self._timestamps: Ints = np.zeros(capacity, np.int64)
        self._done: Flags = np.zeros(capacity * span, np.bool_)
        self._expected: deque[tuple[int, int]] = deque()
        """Slot and offset of each batch that is not let in yet."""
        self._open: dict[int, deque[_Batch]] = {}
        self._recalled: dict[int, dict[int, Progress.Answered]] = {}
        self._first = self._next = 0
        self._count = self._waiting = 0
        """Places that are taken, and how many of them by events that wait."""

    @property
    def nbytes(self) -> int:
        return self.capacity * _KNOWN_BY + len(self._done)

    @property
    def capacity(self) -> int:
        return len(self._numbers)

    @property
    def room(self) -> int:
        """How many more events can be let in."""
        spanned = self._next - self._first
        return min(self.capacity - self._waiting, len(self._done) - spanned)

    def recall(self, progress: Progress) -> None:
        """Take over what a slot's last owner had answered: of batches that are still to come."""
        self._recalled[progress.slot] = {one.offset: one for one in progress.answered}

    def expect(self, slot: int, offset: int, _batch: EventBatch) -> None:
        """A batch has come that is not let in yet; they are let in as they come."""
        self._expected.append((slot, offset))

    def enter(self, slot: int, offset: int, batch: EventBatch) -> tuple[Ints, Ints]:
        """Let the next whole batch in; return the events to answer: their places, their numbers."""
        self._expected.popleft()
        first = self._next
        numbers = self._number(batch, slot)
        recalled = self._recalled.get(slot, {}).pop(offset, None)
        if recalled is not None:
            done = flags_of(recalled)
            self._done[numbers % len(self._done)] = done
            self._waiting -= int(done.sum())
        self._open.setdefault(slot, deque()).append(_Batch(offset, first, len(batch)))
        places = np.flatnonzero(~self._done[numbers % len(self._done)])
        return places, numbers[places]

    def _number(self, batch: EventBatch, slots: int | SmallInts) -> Ints:
        """Give all events of a batch a number and a place; none of them is answered."""
        first = self._next
        numbers = np.arange(first, first + len(batch))
        self._next += len(batch)
        self._done[numbers % len(self._done)] = False
        if self._count + len(batch) > self.capacity:
            self._close_up()
        at = slice(self._count, self._count + len(batch))
        self._numbers[at] = numbers
        self._slots[at] = slots
        self._partitions[at] = batch.partitions
        self._offsets[at] = batch.offsets
        self._timestamps[at] = batch.timestamps
        self._count += len(batch)
        self._waiting += len(batch)
        return numbers

    def _close_up(self) -> None:
        """Give the places of events that are answered to others."""
        taken = slice(0, self._count)
        waiting = ~self._done[self._numbers[taken] % len(self._done)]
        # Behind the window's start the ring may say of another event that it waits.
        waiting &= self._numbers[taken] >= self._first
        self._count = int(waiting.sum())
        columns = self._numbers, self._slots, self._partitions, self._offsets, self._timestamps
        for column in columns:
            column[: self._count] = column[taken][waiting]

    def _places(self, numbers: Ints) -> Ints:
        """Where the events with these numbers are."""
        first, last = self._numbers[0], self._numbers[self._count - 1]
        if last - first == self._count - 1:
            places: Ints = numbers - first
        else:
            places = np.searchsorted(self._numbers[: self._count], numbers)
        return places

    def finish(self, numbers: Ints) -> list[Answered]:
        """Count these events as answered; say what each was, by slot."""
        if not len(numbers):
            return []
        at = self._finished(numbers)
        slots = self._slots[at]
        found = []
        for slot in np.unique(slots).tolist():
            places = np.flatnonzero(slots == slot)
            chosen = at[places]
            found.append(
                Answered(
                    slot,
                    places,
                    self._partitions[chosen],
                    self._offsets[chosen],
                    self._timestamps[chosen],
                )
            )
        return found

    def _finished(self, numbers: Ints) -> Ints:
        """Count these events as answered; say where they are."""
        self._done[numbers % len(self._done)] = True
        self._waiting -= len(numbers)
        return self._places(numbers)

    def waiting(self) -> Ints:
        """The numbers of the events that are not answered, the oldest first."""
        numbers: Ints = self._numbers[self._still()]
        return numbers

    def _still(self) -> Ints:
        """Where the events are that are not answered."""
        numbers = self._numbers[: self._count]
        waits = ~self._done[numbers % len(self._done)] & (numbers >= self._first)
        return np.flatnonzero(waits)

    def advance(self) -> None:
        """Let go of the batches at each slot's start that are done."""
        oldest = self._next
        for batches in self._open.values():
            while batches and self._flags(batches[0]).all():
                batches.popleft()
            if batches:
                oldest = min(oldest, batches[0].first)
        self._begin_at(oldest)

    def _begin_at(self, first: int) -> None:
        self._first = first
        if not self._waiting:
            self._count = 0

    def oldest(self, slot: int) -> int | None:
        """The offset of the slot's oldest batch with an event that waits; None if there is none."""
        if batches := self._open.get(slot):
            return batches[0].offset
        return next((offset for one, offset in self._expected if one == slot), None)

    def progress(self, slot: int, number: int) -> Progress | None:
        """What of the slot is answered at and above its committed offset; None if nothing is."""
        answered = [
            Progress.Answered(
                offset=batch.offset,
                events=batch.events,
                bits=bits_of(flags),
            )
            for batch in self._open.get(slot, ())
            if (flags := self._flags(batch)).any()
        ]
        answered += self._recalled.get(slot, {}).values()
        if not answered:
            return None
        return Progress(slot=slot, number=number, answered=answered)

    def clear(self) -> None:
        self._expected.clear()
        self._open.clear()
        self._recalled.clear()
        self._waiting = 0
        self._begin_at(self._next)

    def _flags(self, batch: _Batch) -> Flags:
        return self._done[np.arange(batch.first, batch.first + batch.events) % len(self._done)]


def bits_of(flags: Flags) -> bytes:
    return np.packbits(flags, bitorder="little").tobytes()


def flags_of(answered: Progress.Answered) -> Flags:
    """Which events of a batch are answered."""
    bits = np.frombuffer(answered.bits, np.uint8)
    return np.unpackbits(bits, count=answered.events, bitorder="little").astype(np.bool_)
