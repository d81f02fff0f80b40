"""What a node has done, as values: the parts of a step, in the order in which they are written.

A part is bounded (splice.py), and may be forgotten once it is written: a step as a whole is not
bounded, as a key with m rows and n events has n · m outputs. So a half gives its parts one after
the other, and its driver writes one before it takes the next.

A part is of one slot, and is counted in that slot's ledger. Where the driver reads the source
itself, a part is of `UNMAPPED`: each of its events has a slot of its own, and is counted in the
ledger of its source partition.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Protocol

import numpy as np

from dovetail.stream import ledger
from dovetail.stream.batch import UNMAPPED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from dovetail.join.columns import Column, Flags, Ints, JoinKeys, SmallInts
    from dovetail.join.entry import Entries
    from dovetail.stream.batch import EventBatch


TOO_MANY_ROWS, UNFIT_KEY, TOO_LARGE = b"too-many-rows", b"unfit-key", b"output-too-large"
"""Why events are parked."""


class Sourced(Protocol):
    """Events with what they were known by at their source; an `EventBatch` is one."""

    @property
    def events(self) -> Column: ...
    @property
    def partitions(self) -> SmallInts: ...
    @property
    def offsets(self) -> Ints: ...
    @property
    def timestamps(self) -> Ints: ...
    @property
    def slots(self) -> SmallInts | None:
        """Of each event its key's, where they are of several."""
        ...


@dataclass(frozen=True, slots=True)
class SourcedEvents:
    events: Column
    partitions: SmallInts
    offsets: Ints
    timestamps: Ints
    slots: SmallInts | None = None

    @classmethod
    def of(cls, batch: Sourced, places: Ints) -> SourcedEvents:
        return cls(
            batch.events.take(places),
            batch.partitions[places],
            batch.offsets[places],
            batch.timestamps[places],
            None if batch.slots is None else batch.slots[places],
        )


@dataclass(frozen=True, slots=True)
class Outputs:
    """Events continued by master rows."""

    slot: int
    outputs: Column
    events: Ints
    """For each output the position of its event in the batch."""
    of: Sourced
    via: bytes | Column
    """Who answered: all of them, or one by one."""

    @property
    def slots(self) -> int | SmallInts:
        """Where the outputs go: all of them, or one by one."""
        return self.slot if self.of.slots is None else self.of.slots[self.events]


class Kind(Enum):
    """Which letters these are: where they are sent."""

    UNMATCHED = "unmatched"
    PARKED = "parked"
    SHED = "shed"


@dataclass(frozen=True, slots=True)
class Letters:
    """Events that are set aside as they came, with the reason."""

    kind: Kind
    slot: int
    of: Sourced
    reason: bytes
    detail: str = ""
    strategy: str = ""
    """By which they were shed."""

    @property
    def outcome(self) -> str:
        """What they count as in the ledger."""
        return ledger.shed(self.strategy) if self.kind is Kind.SHED else self.kind.value


@dataclass(frozen=True, slots=True)
class Missed:
    """Events that the disk half owns now; those with an entry are the cache's hits, kept in order.

    A batch of these is no larger than a message.
    """

    slot: int
    batch: EventBatch


@dataclass(frozen=True, slots=True)
class Migrating:
    """Keys on their way into the cache, each with all its master rows."""

    keys: JoinKeys
    entries: Entries
    events: Ints
    """How many events had waited for each."""
    cycle: int
    """The disk half's cycle in which the last of them was answered."""
    read_at: float
    """As of when their rows are, or later, by R's clock."""


@dataclass(frozen=True, slots=True)
class Evicted:
    """Keys that the cache has let go of."""

    keys: JoinKeys


@dataclass(frozen=True, slots=True)
class Bad:
    """Events that cannot be joined, byte for byte, with what is wrong with each."""

    events: Column
    partitions: SmallInts
    offsets: Ints
    tombstones: Flags
    reasons: NDArray[np.uint8]
    """Codes of Reason."""
    details: Column


@dataclass(frozen=True, slots=True)
class Counted:
    """Events had this outcome (ledger.py)."""

    slot: int
    outcome: str
    partitions: SmallInts
    """Of each of the events that at the source."""


@dataclass(frozen=True, slots=True)
class Progressed:
    """What of a partition is answered above the offset that the step commits."""

    partition: int
    """Of what the driver reads: a slot, or a partition of the source."""
    number: int
    """Of this progress, that stands beside the offset; 0 if nothing is answered above it."""
    message: bytes | None
    """None if there is nothing to write down."""


Part = Outputs | Letters | Bad | Missed | Migrating | Evicted | Counted | Progressed


def counted(slot: int, partitions: SmallInts) -> Iterator[tuple[int, int]]:
    """How many of these events are of each partition that their driver reads."""
    if slot != UNMAPPED:
        yield slot, len(partitions)
    else:
        yield from enumerate(np.bincount(partitions).tolist())
