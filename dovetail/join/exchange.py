"""What goes into the join and what comes out of it, as columns.

Events ──► engine ──► Answers          Request ──► driver ──► Read ──► engine
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dovetail.join.columns import Column, JoinKeys

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dovetail.join.columns import Bytes, Ints
    from dovetail.join.entry import MasterRows


NOTES_A_ROW = 24
"""Bytes a master row that matching.py takes while it joins a read: owner, next row, key."""


@dataclass(frozen=True, slots=True)
class Events:
    """A batch of stream events: event i has the join key `keys[i]` and the bytes `data[i]`.

    An id is the caller's name for the event; the join only carries it along.
    """

    keys: JoinKeys
    data: Column
    ids: Ints

    def __len__(self) -> int:
        return len(self.ids)

    def slice(self, first: int, end: int) -> Events:
        return Events(self.keys.slice(first, end), self.data.slice(first, end), self.ids[first:end])

    def take(self, indices: Ints) -> Events:
        return Events(self.keys.take(indices), self.data.take(indices), self.ids[indices])

    @classmethod
    def concatenate(cls, parts: Sequence[Events]) -> Events:
        return cls(
            JoinKeys.concatenate([part.keys for part in parts]),
            Column.concatenate([part.data for part in parts]),
            np.concatenate([part.ids for part in parts]),
        )


@dataclass(frozen=True, slots=True)
class Answers:
    """Events that are done, each with the entry of its key: all its master rows, or none.

    `splice(kind, answers.events, answers.entries, answers.starts, no_row)` makes the output
    of any join kind. The buffers are the caller's: the join keeps no reference.
    """

    events: Column
    ids: Ints
    entries: Bytes
    starts: Ints
    """Where in `entries` each event's entry starts."""

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, indices: Ints) -> Answers:
        """The same of these events; their entries stay where they are."""
        events, starts = self.events.take(indices), self.starts[indices]
        return Answers(events, self.ids[indices], self.entries, starts)

    @classmethod
    def concatenate(cls, parts: Sequence[Answers]) -> Answers:
        if len(parts) == 1:
            return parts[0]
        shifts = np.cumsum([0, *(len(part.entries) for part in parts)]).tolist()
        starts = [part.starts + shift for part, shift in zip(parts, shifts, strict=False)]
        return Answers(
            Column.concatenate([part.events for part in parts]),
            np.concatenate([part.ids for part in parts]),
            np.concatenate([part.entries for part in parts]),
            np.concatenate(starts),
        )


_NOTHING = np.empty(0, np.int64)
NO_ANSWERS = Answers(Column.of([]), _NOTHING, np.empty(0, np.uint8), _NOTHING)


@dataclass(frozen=True, slots=True)
class Pages:
    """Read pages first, first + 1 … of R, which has `of` pages; behind the last comes page 0."""

    first: int
    count: int
    of: int
    place: int = 0
    """Where to go on in the first page, by the `Read` that was a part of it; 0 = at its start."""

    @property
    def goes_on(self) -> bool:
        """Whether something of the cycle was read before."""
        return bool(self.first or self.place)

    def numbers(self) -> list[int]:
        return [(self.first + i) % self.of for i in range(self.count)]

    def runs(self) -> list[tuple[int, int]]:
        """The pages as ranges without a turn: (first, end) pairs, end not included."""
        end = self.first + self.count
        if end <= self.of:
            return [(self.first, end)]
        return [(self.first, self.of), (0, end - self.of)]


NO_KEYS = JoinKeys.of_ints(np.empty(0, np.int64))
NO_EVENTS = Events(NO_KEYS, NO_ANSWERS.events, NO_ANSWERS.ids)


@dataclass(frozen=True, slots=True)
class Partition:
    """Read the partition of R that holds this one key, or would.

    All rows of every key in it, or the key is not in it: a partition ends between keys.
    """

    key: JoinKeys
    pages: int = 0
    """Its size; 0 = as the store has it."""
    then: JoinKeys = NO_KEYS
    """Keys whose partitions are wanted next, unless this one answers them: to read ahead."""


@dataclass(frozen=True, slots=True)
class Keys:
    """Read all rows of these distinct keys."""

    keys: JoinKeys


Request = Pages | Partition | Keys


@dataclass(frozen=True, slots=True)
class Read:
    """What a driver read for a request.

    It may cover less than was asked, but one page or key at least: the first `covers` pages
    or keys. `ends` says for each page after which row it ends; it is needed for pages only.

    A page that does not fit comes in parts, of a row at least. All but the last cover no page.
    """

    rows: MasterRows
    covers: int
    ends: Ints
    place: int = 0
    """Where the page goes on that this is a part of, in the store's own terms; 0 = nowhere."""

    @property
    def nbytes(self) -> int:
        """Bytes of the disk buffer that it takes, the join's own notes on each row included."""
        keys = self.rows.keys
        held = keys.values.nbytes + keys.texts.nbytes + self.rows.rows.nbytes + self.ends.nbytes
        return held + NOTES_A_ROW * len(self.rows)

    @classmethod
    def whole(cls, rows: MasterRows, covers: int = 1) -> Read:
        """Everything that was asked for, of a partition or of keys."""
        return cls(rows, covers, np.empty(0, np.int64))
