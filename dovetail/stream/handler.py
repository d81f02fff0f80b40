"""What a stage brings to the loop (loop.py): a handler, and how large its steps are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dovetail.stream.ledger import Ledger
    from dovetail.stream.rdkafka import Producer, Records

A_LOT = 4 << 20
"""Bytes in one step: some hundred thousand events a second."""


class Handler(ABC):
    """What a stage does with a batch; everything around it is the loop's."""

    @abstractmethod
    def handle(self, records: Records, producer: Producer, ledger: Ledger) -> None:
        """Send the output of these records, and enter into the ledger what became of them."""

    def assign(self, partitions: list[int]) -> None:
        """These partitions are this process's from now on."""

    def open(self, partition: int, ledger: Ledger) -> None:
        """A partition is read from its committed offset on; the ledger has what stands there."""

    def answered_below(self, partition: int, offset: int, ledger: Ledger) -> int:  # noqa: ARG002
        """How many events of the partition between its committed offset and this one are."""
        return 0

    def revoke(self, partitions: list[int]) -> None:
        """These partitions are another's now; called between steps only."""

    def between_steps(self) -> None:
        """Called at every turn, also when nothing arrives."""

    def behind(self, records: int) -> None:
        """Told after every turn how many records are left to read, as of the last fetch."""

    @property
    def waits(self) -> bool:
        """Whether it holds records that are not answered, be it for want of something else."""
        return False

    @property
    def holds(self) -> bool:
        """Whether it keeps records beyond their step, and `drop` has to be called."""
        return False

    @property
    def busy(self) -> bool:
        """Whether there is work without new records."""
        return False

    @property
    def full(self) -> bool:
        """Whether no more records can be taken now."""
        return False

    @property
    def hungry(self) -> bool:
        """Whether it would take more records in the same step."""
        return False

    def offsets(self, positions: dict[int, int], touched: set[int]) -> dict[int, int]:
        """What to commit, by partition: here all that was read of those with new records."""
        return {partition: positions[partition] for partition in touched}

    def drop(self) -> None:
        """Forget all that is held: it will be read again from what is committed."""

    def waiting_for(self) -> str:
        """Why it is not ready, beyond the loop's own reasons; empty when it is."""
        return ""

    def alarm(self) -> str:
        """What somebody should look at although it works; empty if nothing is."""
        return ""

    def figures(self) -> dict[str, float]:
        """Figures of this moment, by name: bytes held, budget, …."""
        return {}

    def close(self) -> None:
        """Let go of what it holds."""


@dataclass(frozen=True, slots=True)
class Move:
    """An order to read on from other offsets, by partition; each number is obeyed once."""

    number: int
    offsets: dict[int, int]


@dataclass(frozen=True, slots=True)
class Step:
    """How much a step takes at most, and how often a stage makes one (decision 42)."""

    max_records: int
    max_bytes: int
    linger_s: float
    """How far apart steps start at most while little comes, and for how long one goes on taking."""
    share: float = 0.05
    """The most of an idle stage's time that its transactions may take."""

    def longest(self, taken: int) -> float:
        """For a step that took so many bytes: up to three times as long, the more it took."""
        return self.linger_s * (1 + 2 * min(1.0, taken / A_LOT))

    def pause(self, pace: Pace) -> float:
        """From the start of the last step to that of the next, if all has been taken."""
        idle = 1 - pace.busy
        longest = self.longest(pace.taken)
        return min(longest, pace.overhead_s / (self.share * idle**2)) if idle > 0 else longest

    def is_full(self, records: Records) -> bool:
        """Whether a step that takes these is about as large as one can be."""
        return len(records) >= self.max_records or len(records.data) > self.max_bytes * 3 // 4


@dataclass(slots=True)
class Pace:
    """What a stage's steps are like, as of the last ones."""

    overhead_s: float = 0.0
    """What a step takes beside its work: the transaction. It grows as the machine gets busy."""
    busy: float = 0.0
    """The share of the time from the end of one step to the end of the next that was work."""
    taken: int = 0
    """Bytes that the last one took."""

    def note(self, taken: int, worked_s: float, step_s: float, since_last_s: float) -> None:
        """Enter a step: its work, all of it, and all since the end of the one before."""
        self.taken = taken
        self.busy = worked_s / since_last_s
        self.overhead_s += (step_s - worked_s - self.overhead_s) / 4
