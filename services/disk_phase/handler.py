"""Answers what the cache could not, and migrates the keys worth it (node/disk.py).

A step takes what has arrived as far as there is room, then reads R and answers for a while; all of
it, the progress above the committed offsets included, in the step's transaction. While R is away
what waits goes on waiting, and R is tried again after pauses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from dovetail.node.answers import VIA_DISK, Answers
from dovetail.node.disk import DiskHalf
from dovetail.node.reading import Reading
from dovetail.service.questions import Questions
from dovetail.stream import ledger as outcome
from dovetail.stream.handler import Handler
from dovetail.stream.reader import BatchReader
from dovetail.stream.writing import PartWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dovetail.contracts.progress_pb2 import Progress
    from dovetail.join.line import Line
    from dovetail.node.master import MasterJoin
    from dovetail.node.step import Part
    from dovetail.node.window import Window
    from dovetail.service.metrics import Latency
    from dovetail.stream.ledger import Ledger
    from dovetail.stream.rdkafka import Producer, Records
    from dovetail.topology import Topology

STEP_S = 0.1
"""For so long a step goes on reading and answering: a transaction costs the same for one answer
as for thousands."""


class SlotProgress(Protocol):
    """Where a slot's last owner has written what it answered; `ProgressReader` over Kafka."""

    def read(self, slot: int, number: int) -> Progress: ...

    def close(self) -> None: ...


class DiskHandler(Handler):
    def __init__(
        self,
        topology: Topology,
        join: MasterJoin,
        window: Window,
        progress: SlotProgress,
        budget: int,
        latency: Latency,
        sink_takes: Callable[[], int],
        clock: Callable[[], float],
        line: Line | None = None,
        questions: Questions | None = None,
    ) -> None:
        """A line keeps the pipeline's order.

        `questions` about the join are answered between steps.
        """
        self._questions = questions or Questions()
        self._reader = BatchReader(topology, topology.missed)
        self._writer = PartWriter(topology, latency)
        answers = Answers.of(topology, VIA_DISK, sink_takes)
        self.half = DiskHalf(answers, join, window, line)
        self._progress = progress
        self._budget = budget
        self._clock = clock
        self._slots: set[int] = set()
        self._reading = Reading(self.half, clock)

    # ── what the loop asks ───────────────────────────────────────────────────────────────

    @property
    def holds(self) -> bool:
        return True

    @property
    def busy(self) -> bool:
        waiting = self.half.arrivals or self.half.pending
        return bool(waiting) and self._reading.due

    @property
    def full(self) -> bool:
        return bool(self.half.arrivals)

    @property
    def hungry(self) -> bool:
        return not (self.half.arrivals or self._reading.trouble or self.half.join.slow)

    def between_steps(self) -> None:
        self._questions.answer()

    def waiting_for(self) -> str:
        return self._reading.trouble

    def assign(self, partitions: list[int]) -> None:
        self._slots.update(partitions)
        self.half.keep(self._slots)

    def revoke(self, partitions: list[int]) -> None:
        self._slots.difference_update(partitions)
        self.half.keep(self._slots)

    def alarm(self) -> str:
        return self.half.join.slow or self.half.answers.matches.alarm

    def open(self, partition: int, ledger: Ledger) -> None:
        """Learn what the slot's last owner has answered above the committed offset."""
        number = ledger.progress(partition)
        progress = self._progress.read(partition, number) if number else None
        self.half.open(partition, ledger.count(partition, outcome.IN), progress)

    def drop(self) -> None:
        self.half.drop()
        self._reading.forget()

    def offsets(self, positions: dict[int, int], _touched: set[int]) -> dict[int, int]:
        return self.half.offsets(positions)

    def handle(self, records: Records, producer: Producer, ledger: Ledger) -> None:
        self._writer.write(self._step(records, producer), producer, ledger)

    def close(self) -> None:
        self.half.join.close()
        self._progress.close()

    # ── a step ───────────────────────────────────────────────────────────────────────────

    def _step(self, records: Records, producer: Producer) -> Iterator[Part]:
        slow = bool(self.half.join.slow)
        if slow and self._reading.due:
            # First and once: a transaction's time begins with what is sent in it.
            yield from self._reading.read() or ()
        offsets = records.offsets.tolist()
        batches = self._reader.read(records, producer)
        for (slot, batch), offset in zip(batches, offsets, strict=True):
            self.half.arrive(slot, offset, batch)
        until = self._clock() + STEP_S
        while self._clock() < until and self._reading.due:
            yield from self.half.let_in()
            if slow or (answered := self._reading.read()) is None:
                break
            yield from answered
        yield from self.half.record()
        yield from self.half.migrating()

    # ── what it shows ────────────────────────────────────────────────────────────────────

    def explained(self) -> dict[str, Any]:
        """Which algorithm runs, and why."""
        return self.half.join.explained()

    def figures(self) -> dict[str, float]:
        return {
            "budget_bytes": self._budget,
            "held_bytes": self.half.held_bytes,
            "refused_messages": self._reader.refused,
            **self.half.answers.matches.figures(),
            **self.half.figures(),
        }
