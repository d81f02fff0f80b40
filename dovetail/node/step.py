"""What a node has done, as values: the parts of a step, in the order in which they are written.

A part is bounded (splice.py), and may be forgotten once it is written: a step as a whole is not
bounded, as a key with m rows and n events has n · m outputs. So a half gives its parts one after
the other, and its driver writes one before it takes the next.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from dovetail.stream import ledger

if TYPE_CHECKING:
    from dovetail.join.columns import Column, Ints, JoinKeys, SmallInts
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


@dataclass(frozen=True, slots=True)
class SourcedEvents:
    events: Column
    partitions: SmallInts
    offsets: Ints
    timestamps: Ints

    @classmethod
    def of(cls, batch: Sourced, places: Ints) -> SourcedEvents:
        return cls(
            batch.events.take(places),
            batch.partitions[places],
            batch.offsets[places],
            batch.timestamps[places],
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
class Counted:
    """So many events of a slot had this outcome (ledger.py)."""

    slot: int
    outcome: str
    events: int


@dataclass(frozen=True, slots=True)
class Progressed:
    """What of a slot is answered above the offset that the step commits."""

    slot: int
    number: int
    """Of this progress, that stands beside the offset; 0 if nothing is answered above it."""
    message: bytes | None
    """None if there is nothing to write down."""


Part = Outputs | Letters | Missed | Migrating | Evicted | Counted | Progressed
