"""Which events wait, where a node reads the source itself: by their own offsets.

    partition 3   ████░███░░▒▒▒▒▒▒▒▒          █ answered   ░ waits   ▒ not read yet
                      ↑          ↑
                      committed  read up to

Of the source only what waits is in the window; all else that was read is answered, by the cache or
as a bad event. So progress is the complement: from the oldest event that waits to where the source
was read, every offset is answered but these.

A batch has no identity here: what is read again after a restart comes in other batches. What was
answered is known by its offset, and left out before it is decoded.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import numpy as np

from dovetail.contracts.progress_pb2 import Progress
from dovetail.node.window import Answered, Window, bits_of, flags_of
from dovetail.stream.batch import UNMAPPED

if TYPE_CHECKING:
    from dovetail.join.columns import Flags, Ints, SmallInts
    from dovetail.stream.batch import EventBatch


class SourceWindow(Window):
    def __init__(self, capacity: int, span: int = 1) -> None:
        super().__init__(capacity, span)
        self._read_to: dict[int, int] = {}
        """By partition, behind the last offset that was read."""
        self._before: dict[int, list[Progress.Answered]] = {}
        """What was answered before this process took a partition over, and may come again."""
        self._outside: deque[tuple[SmallInts, Ints]] = deque()
        """Partitions and offsets of the batches that are not let in yet."""

    def recall(self, progress: Progress) -> None:
        self._before[progress.slot] = list(progress.answered)

    def read(self, partitions: SmallInts, offsets: Ints) -> Flags | None:
        """Note that these events were read, in their order; say which are new, None if all are."""
        for partition in np.unique(partitions).tolist():
            last = offsets[partitions == partition][-1]
            self._read_to[partition] = int(last) + 1
        if not self._before:
            return None
        new = np.ones(len(offsets), np.bool_)
        for partition, runs in list(self._before.items()):
            places = np.flatnonzero(partitions == partition)
            for run in runs:
                within = offsets[places] - run.offset
                inside = (within >= 0) & (within < run.events)
                new[places[inside]] &= ~flags_of(run)[within[inside]]
            self._forget(partition)
        return new

    def expect(self, _slot: int, _offset: int, batch: EventBatch) -> None:
        self._outside.append((batch.partitions, batch.offsets))

    def enter(self, _slot: int, _offset: int, batch: EventBatch) -> tuple[Ints, Ints]:
        self._outside.popleft()
        assert batch.slots is not None, "they are of several slots"
        return np.arange(len(batch)), self._number(batch, batch.slots)

    def finish(self, numbers: Ints) -> list[Answered]:
        if not len(numbers):
            return []
        at = self._finished(numbers)
        columns = self._partitions[at], self._offsets[at], self._timestamps[at]
        return [Answered(UNMAPPED, np.arange(len(at)), *columns, self._slots[at])]

    def advance(self) -> None:
        waiting = self.waiting()
        self._begin_at(int(waiting[0]) if len(waiting) else self._next)

    def oldest(self, partition: int) -> int | None:
        """The offset of the partition's oldest event that waits; None if none does."""
        waiting = self._waiting_of(partition)
        return int(waiting.min()) if len(waiting) else None

    def progress(self, partition: int, number: int) -> Progress | None:
        """What of the partition is answered above its oldest event that waits; None if nothing."""
        answered = list(self._before.get(partition, ()))
        waiting = self._waiting_of(partition)
        if len(waiting):
            first = int(waiting.min())
            flags = np.ones(self._read_to[partition] - first, np.bool_)
            flags[waiting - first] = False
            if flags.any():
                own = Progress.Answered(offset=first, events=len(flags), bits=bits_of(flags))
                answered.append(own)
        if not answered:
            return None
        return Progress(slot=partition, number=number, answered=answered)

    def clear(self) -> None:
        super().clear()
        self._read_to.clear()
        self._before.clear()
        self._outside.clear()

    def _forget(self, partition: int) -> None:
        """Let go of what was answered before, once all of it has come again."""
        read_to = self._read_to.get(partition, 0)
        left = [one for one in self._before[partition] if one.offset + one.events > read_to]
        if left:
            self._before[partition] = left
        else:
            del self._before[partition]

    def _waiting_of(self, partition: int) -> Ints:
        """The offsets of the partition's events that wait, let in or not."""
        at = self._still()
        inside = self._offsets[at[self._partitions[at] == partition]]
        outside = [offsets[of == partition] for of, offsets in self._outside]
        return np.concatenate([inside, *outside])
