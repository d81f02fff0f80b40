"""Drives both halves of a node as one: joins and answers in one step.

    source ──► intake ──┬──► cache half ──hits───────────────────► outputs
                 │bad   │       │misses      ▲ migrations
                 ▼      │       ▼            │
            dead-letter │    disk half ◄── reads of R ───────────► outputs
                        │
    mapped ─────────────┘  from the other nodes, where there are several; or from the table before

One node reads the source itself, and nothing passes a topic on its way. Several have one hop: each
maps its share of the source's partitions (mapping.py), and joins the slots that are its own.

Both halves are one engine over one budget: it answers hits as it lets events in, caches the keys
that are worth it as they are answered, and moves memory between the two. `migrations` has the plan
that Spark makes, and is only read.

What waits for R beyond its step is read again by whoever takes the partition over.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from dovetail.join.mapper import Mapper
from dovetail.node.reading import Reading
from dovetail.pipeline.spec import KeyType
from dovetail.service.questions import Questions
from dovetail.stream import ledger as outcome
from dovetail.stream.batch import PIECE_BYTES, UNMAPPED
from dovetail.stream.handler import Handler
from dovetail.stream.reader import BatchReader
from dovetail.stream.writing import PartWriter
from services.mapper.skew import Skew

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dovetail.contracts.progress_pb2 import Progress
    from dovetail.node.cache import CacheHalf, Migrations
    from dovetail.node.disk import DiskHalf
    from dovetail.node.intake import Intake
    from dovetail.node.source_window import SourceWindow
    from dovetail.node.step import Part
    from dovetail.service.metrics import Latency
    from dovetail.stream.ledger import Ledger
    from dovetail.stream.rdkafka import Producer, Records
    from dovetail.topology import Topology

STEP_S = 0.1
"""For so long a step goes on reading and answering."""


@dataclass(frozen=True, slots=True)
class Around:
    """What a node works with: its halves, and what they need of the world."""

    topology: Topology
    """Seen from the node's link."""
    cache: CacheHalf
    disk: DiskHalf
    migrations: Migrations
    progress: Callable[[int, int], Progress]
    """Reads what a partition's last owner has answered above its offset."""
    latency: Latency
    require_ours: Callable[[], None] = lambda: None
    """Raises if another engine or layout has taken the pipeline over."""
    questions: Questions = field(default_factory=Questions)
    clock: Callable[[], float] = time.monotonic


class NodeHandler(Handler):
    """What both have in common: `MappedNode` reads slots, `SourceNode` the source."""

    def __init__(self, around: Around) -> None:
        topology = around.topology
        self.cache = around.cache
        self.disk = around.disk
        self._migrations = around.migrations
        self._progress = around.progress
        self._require_ours = around.require_ours
        self._ours = False
        self._questions = around.questions
        self._clock = around.clock
        self._writer = PartWriter(topology, around.latency)
        self._reading = Reading(self.disk, self._clock)
        self._memory = topology.pipeline.link(topology.number).memory
        # One share of events that find a row, whichever half has answered them.
        self.disk.answers.matches = self.cache.answers.matches

    @abstractmethod
    def arrive(self, records: Records, producer: Producer) -> Iterator[Part]:
        """Hand what was read to the disk half."""

    # ── what the loop asks ───────────────────────────────────────────────────────────────

    @property
    def holds(self) -> bool:
        return True

    @property
    def busy(self) -> bool:
        return bool(self.disk.arrivals or self.disk.pending) and self._reading.due

    @property
    def full(self) -> bool:
        return bool(self.disk.arrivals)

    @property
    def hungry(self) -> bool:
        return not (self.disk.arrivals or self._reading.trouble or self.disk.join.slow)

    def between_steps(self) -> None:
        """Apply what the plan has brought; let go of what is too old."""
        for change in self._migrations.changes():
            self.cache.apply(change)
        self.cache.expire()
        self._questions.answer()

    def waiting_for(self) -> str:
        return self._migrations.waiting_for() or self._reading.trouble

    def alarm(self) -> str:
        return self.disk.join.slow or self.cache.answers.matches.alarm

    def assign(self, partitions: list[int]) -> None:  # noqa: ARG002 - who reads slots needs them
        self._ours = False  # it may have been away for long

    def open(self, partition: int, ledger: Ledger) -> None:
        """Learn what the partition's last owner has answered above the committed offset."""
        if not self._ours:
            self._require_ours()
            self._ours = True
        number = ledger.progress(partition)
        progress = self._progress(partition, number) if number else None
        self.disk.open(partition, ledger.count(partition, outcome.IN), progress)

    def drop(self) -> None:
        self._ours = False
        self.disk.drop()
        self._reading.forget()

    def offsets(self, positions: dict[int, int], _touched: set[int]) -> dict[int, int]:
        return self.disk.offsets(positions)

    def handle(self, records: Records, producer: Producer, ledger: Ledger) -> None:
        self._writer.write(self._step(records, producer), producer, ledger)

    def close(self) -> None:
        self.disk.join.close()
        self._migrations.close()

    # ── a step ───────────────────────────────────────────────────────────────────────────

    def _step(self, records: Records, producer: Producer) -> Iterator[Part]:
        slow = bool(self.disk.join.slow)
        if slow and self._reading.due:
            # First and once: a transaction's time begins with what is sent in it.
            yield from self._reading.read() or ()
        if len(records):
            yield from self.arrive(records, producer)
        until = self._clock() + STEP_S
        yield from self.disk.let_in()
        while self._clock() < until and self._reading.due:
            if slow or (answered := self._reading.read()) is None:
                break
            yield from answered
            yield from self.disk.let_in()
        yield from self.disk.record()

    # ── what it shows ────────────────────────────────────────────────────────────────────

    def figures(self) -> dict[str, float]:
        return {
            "budget_bytes": self._memory,
            "held_bytes": self.disk.held_bytes,
            "cache_loaded": self._migrations.loaded,
            **self.cache.answers.matches.figures(),
            **self.cache.figures(),
            **self.disk.figures(),
        }


class MappedNode(NodeHandler):
    """Joins the slots that are its own."""

    def __init__(self, around: Around) -> None:
        super().__init__(around)
        self._reader = BatchReader(around.topology, around.topology.mapped)
        self._slots: set[int] = set()

    def assign(self, partitions: list[int]) -> None:
        super().assign(partitions)
        self._slots.update(partitions)
        self._migrations.follow(partitions)
        self.disk.keep(self._slots)

    def revoke(self, partitions: list[int]) -> None:
        self._slots.difference_update(partitions)
        self._migrations.forget(partitions)
        self.cache.forget(partitions)
        self.disk.keep(self._slots)

    def arrive(self, records: Records, producer: Producer) -> Iterator[Part]:
        batches = self._reader.read(records, producer)
        for (slot, batch), offset in zip(batches, records.offsets.tolist(), strict=True):
            self.disk.arrive(slot, offset, batch)
        yield from ()

    def figures(self) -> dict[str, float]:
        return {**super().figures(), "refused_messages": self._reader.refused}


class SourceNode(NodeHandler):
    """The only node: it decodes the events that it joins."""

    def __init__(self, around: Around, window: SourceWindow, intake: Intake) -> None:
        """`window` is the disk half's."""
        super().__init__(around)
        pipeline = around.topology.pipeline
        self._window = window
        self._intake = intake
        self._mapper = Mapper(pipeline.slots, int_key=pipeline.key_type is KeyType.INT)
        self._skew = Skew(pipeline.slots, self._clock())
        every_slot = list(range(pipeline.slots))
        self._migrations.follow(every_slot)
        self.disk.keep(every_slot)

    def arrive(self, records: Records, _producer: Producer) -> Iterator[Part]:
        rows = np.arange(len(records))
        if (new := self._window.read(records.partitions, records.offsets)) is not None:
            rows = np.flatnonzero(new)
            self.disk.read_again(records.partitions[~new])
        taken = self._intake.take(records)
        valid = taken.valid[rows]
        if not valid.all():
            bad = taken.bad(rows[~valid])
            yield bad
            self.disk.answered(bad.partitions)
            rows = rows[valid]
        if len(rows):
            batch = self._intake.good(taken, rows)
            slots = self._mapper.slots(batch.keys)
            self._skew.add(np.bincount(slots, minlength=self._mapper.count), self._clock())
            for piece in replace(batch, slots=slots).pieces(PIECE_BYTES):
                self.disk.arrive(UNMAPPED, 0, piece)

    def figures(self) -> dict[str, float]:
        return {**super().figures(), **self._skew.figures()}
