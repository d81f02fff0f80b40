"""The reduce side of `enrich`: one task is one node, with all of its slots' events of a batch.

What a Python worker keeps from batch to batch (cache, connections, producers) hangs on this
imported module; a function that Spark pickles would start with nothing each time.
"""

from __future__ import annotations

import pickle
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from dovetail.service.metrics import Latency
from dovetail.stream import ledger as outcome
from dovetail.stream.batch import EventBatch
from dovetail.stream.ledger import Ledger
from dovetail.stream.provenance import DETAIL, ORIGIN, REASON, origins
from dovetail.stream.slot_state import SlotState
from dovetail.topology import Topology
from services.spark.enrich_commit import NodeTransaction, States
from services.spark.enrich_decode import BAD, EVENTS, BadEvents
from services.spark.enrich_join import NodeJoin

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dovetail.join.columns import Ints
    from dovetail.pipeline.spec import Pipeline
    from dovetail.settings import Settings
    from dovetail.stream.rdkafka import Producer

SCHEMA = "report binary"


@dataclass(frozen=True, slots=True)
class Job:
    """What a worker is told by the driver."""

    settings: Settings
    pipeline: Pipeline
    run: int
    start: dict[int, int]
    """From where on a slot reads that has not committed anything yet, by source partition."""

    def state(self, committed: SlotState | None) -> SlotState:
        return committed or SlotState(positions=dict(self.start))


@dataclass(frozen=True, slots=True)
class Report:
    """What a node did in a batch."""

    node: int
    counts: Counter[str]
    latency: Latency
    seconds: float
    held_bytes: int
    cached_keys: int
    algorithm: str
    alarm: str

    @property
    def message(self) -> bytes:
        return pickle.dumps(self)

    @staticmethod
    def of(message: bytes) -> Report:
        """Read what one of our own workers wrote."""
        report: Report = pickle.loads(message)  # noqa: S301
        return report


def enrich(job: Job, parts: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Answer a node's events; `parts` have the rows that `decode` gives."""
    context = TaskContext.get()
    assert context is not None, "only Spark calls it"
    report = _worker(job).work(context.partitionId(), parts)
    yield pa.record_batch({"report": pa.array([report.message], pa.binary())})


def _worker(job: Job) -> Worker:
    """The worker process's own; another run's is closed first."""
    if not (_kept and _kept[0].job.run == job.run and _kept[0].job.pipeline == job.pipeline):
        while _kept:
            _kept.pop().close()
        _kept.append(Worker(job))
    return _kept[0]


class Worker:
    def __init__(self, job: Job) -> None:
        self.job = job
        self._topology = Topology(job.pipeline)
        self._states = States(job.settings, self._topology)
        self._latency = Latency()
        self._join = NodeJoin(job.settings, job.pipeline, self._topology, self._latency)
        self._transactions: dict[int, NodeTransaction] = {}

    def work(self, node: int, parts: Iterator[pa.RecordBatch]) -> Report:
        began = time.monotonic()
        if node not in self._transactions:
            self._transactions[node] = NodeTransaction(
                self.job.settings, self._topology, self._states, node
            )
        transaction = self._transactions[node]
        try:
            found = transaction.begin(self.job.run)
            states = {slot: self.job.state(found.get(slot)) for slot in transaction.slots}
            batch = _Batch(self._topology, self._join, transaction.producer, states)
            for part in parts:
                batch.take(part)
            transaction.commit(batch.finish())
        except BaseException:
            transaction.drop()
            raise
        finally:
            latency = Latency()
            latency.take(self._latency)
        return Report(
            node,
            batch.counts,
            latency,
            time.monotonic() - began,
            self._join.held_bytes,
            self._join.cached_keys,
            self._join.algorithm,
            self._join.alarm,
        )

    def close(self) -> None:
        for transaction in self._transactions.values():
            transaction.drop()
        self._join.close()
        self._states.close()


_kept: list[Worker] = []


class _Batch:
    """A node's part of one batch, from its first row to the states to commit."""

    def __init__(
        self, topology: Topology, join: NodeJoin, producer: Producer, states: dict[int, SlotState]
    ) -> None:
        self._topology = topology
        self._join = join
        self._producer = producer
        self._states = states
        self._ledger = Ledger()
        for slot, state in states.items():
            self._ledger.open(slot, SlotState(state.counts).text)
        self._done = {slot: self._positions(state) for slot, state in states.items()}
        self._reached: dict[int, int] = {}
        self.counts: Counter[str] = Counter()
        join.begin(states)

    def take(self, part: pa.RecordBatch) -> None:
        names = ("slot", "kind", "partition", "reached")
        columns = (part.column(name).to_pylist() for name in names)
        payloads = part.column("payload")
        for row, (slot, kind, partition, reached) in enumerate(zip(*columns, strict=True)):
            if kind == EVENTS:
                batch = EventBatch.from_message(payloads[row].as_py())
                new = np.flatnonzero(batch.offsets >= self._done[slot][batch.partitions])
                if len(new) < len(batch):
                    batch = batch.take(new)
                self._join.take(slot, batch, self._producer, self._ledger)
            elif kind == BAD:
                self._bury(slot, BadEvents.from_message(payloads[row].as_py()))
            else:
                self._reached[partition] = max(reached, self._reached.get(partition, 0))

    def finish(self) -> dict[int, SlotState]:
        """Answer all that waits; return what the slots have behind them then."""
        self._join.finish(self._producer, self._ledger)
        states = {}
        for slot, state in self._states.items():
            positions = dict(state.positions)
            for partition, reached in self._reached.items():
                positions[partition] = max(reached, state.position(partition))
            states[slot] = SlotState(SlotState.parse(self._ledger.text(slot)).counts, positions)
        self.counts = self._ledger.commit()
        return states

    def _positions(self, state: SlotState) -> Ints:
        """By source partition."""
        partitions = range(self._topology.source.partitions)
        return np.array([state.position(partition) for partition in partitions], np.int64)

    def _bury(self, slot: int, bad: BadEvents) -> None:
        """Send bad events on with their original bytes, reason and origin, as ingest does."""
        identity = origins(self._topology.source.name, bad.partitions, bad.offsets)
        done = self._done[slot]
        for i, partition in enumerate(bad.partitions.tolist()):
            if bad.offsets[i] < done[partition]:
                continue
            self._ledger.add(slot, outcome.IN, 1)
            self._ledger.add(slot, outcome.dead(bad.reasons[i]), 1)
            self._producer.send(
                self._topology.dead_letter.name,
                bad.values[i],
                0,
                headers=(
                    (ORIGIN, identity[i]),
                    (REASON, bad.reasons[i].encode()),
                    (DETAIL, bad.details[i].encode()),
                ),
            )
