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

from dovetail.errors import Unavailable
from dovetail.join.mapper import groups
from dovetail.service.metrics import Latency, event_time_lag
from dovetail.stream import ledger as outcome
from dovetail.stream.batch import EventBatch
from dovetail.stream.ledger import Ledger, parse
from dovetail.stream.provenance import DETAIL, ORIGIN, REASON, origins
from dovetail.stream.slot_state import SlotState
from dovetail.stream.states import StatesReader
from dovetail.topology import Topology
from services.spark.enrich_chain import Chain
from services.spark.enrich_commit import NodeTransaction
from services.spark.enrich_decode import BAD, EVENTS, SHELVED, BadEvents
from services.spark.enrich_overload import NodeGuard
from services.spark.enrich_shelf import taken

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dovetail.join.columns import Bytes, Ints
    from dovetail.pipeline.spec import Pipeline
    from dovetail.settings import Settings
    from dovetail.stream.rdkafka import Producer
    from services.spark.enrich_join import TableJoin
    from services.spark.enrich_look import Question
    from services.spark.enrich_overload import Admission

SCHEMA = "report binary"
_ASKED_S = 0.05
"""So long a question takes at least: who has answered one must not be there for the next."""
_OF_THE_LAST = (outcome.ENRICHED, outcome.OUTPUTS)


@dataclass(frozen=True, slots=True)
class Job:
    """What a worker is told by the driver."""

    settings: Settings
    pipeline: Pipeline
    run: int
    start: dict[int, int]
    """From where on a slot reads that has not committed anything yet, by source partition."""
    caution: int = 1
    """Of lines of answers (join/line.py): more after one was too crowded."""
    admission: Admission | None = None
    """How much is to be shed of this batch."""
    settled: bool = False
    """Whether all nodes have committed a batch of this run, and none was tried since."""

    def state(self, committed: SlotState | None) -> SlotState:
        return committed or SlotState(positions=dict(self.start))


@dataclass(frozen=True, slots=True)
class Report:
    """What a node did in a batch."""

    node: int
    counts: Counter[str]
    latency: Latency
    lag: Latency
    """How late events were by their own time, where the pipeline says which that is."""
    seconds: float
    reading_s: float
    """Of those, for reading R."""
    seen: int
    missed: int
    """Where events may be shed: how many of the batch's were not cached, shed ones included."""
    reached: dict[int, int]
    """By source partition, how far it is answered."""
    taken: dict[int, int]
    """Events by slot."""
    carried_bytes: int
    """What came to the node."""
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
    settled = job.settled and not context.attemptNumber()
    report = _worker(job).work(context.partitionId(), parts, job.admission, settled=settled)
    yield pa.record_batch({"report": pa.array([report.message], pa.binary())})


def asked(
    job: Job, question: Question, parts: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Say what this worker has; `parts` are nothing but a task each."""
    for _ in parts:
        pass  # a worker that leaves anything unread is ended, and its cache with it
    time.sleep(_ASKED_S)
    said = question.asked_of(_worker(job).table(question.link))
    yield pa.record_batch({"report": pa.array([pickle.dumps(said)], pa.binary())})


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
        self._states = StatesReader(job.settings, self._topology.states)
        self._latency, self._lag = Latency(), event_time_lag()
        overload = job.pipeline.overload
        self._guard = NodeGuard(job.settings, job.pipeline, overload) if overload else None
        self._join = Chain(job.settings, self._topology, self._latency, self._guard, job.caution)
        self._transactions: dict[int, NodeTransaction] = {}

    def work(
        self,
        node: int,
        parts: Iterator[pa.RecordBatch],
        admission: Admission | None,
        *,
        settled: bool = False,
    ) -> Report:
        began = time.monotonic()
        if node not in self._transactions:
            self._transactions[node] = NodeTransaction(
                self.job.settings, self._topology, self._states, node
            )
        transaction = self._transactions[node]
        if self._guard:
            self._guard.begin(admission)
        try:
            found = transaction.begin(self.job.run, settled=settled)
            states = {slot: self.job.state(found.get(slot)) for slot in transaction.slots}
            batch = _Batch(self._topology, self._join, transaction.producer, states, self._lag)
            for part in parts:
                batch.take(part)
            transaction.commit(batch.finish())
        except BaseException:
            transaction.drop()
            raise
        finally:
            latency, lag = Latency(), event_time_lag()
            latency.take(self._latency)
            lag.take(self._lag)
        return Report(
            node,
            batch.counts,
            latency,
            lag,
            time.monotonic() - began,
            self._join.reading_s,
            self._guard.seen if self._guard else 0,
            self._guard.missed if self._guard else 0,
            batch.reached,
            batch.taken,
            batch.carried_bytes,
            self._join.held_bytes,
            self._join.cached_keys,
            self._join.algorithm,
            self._join.alarm,
        )

    def table(self, link: int) -> TableJoin:
        return self._join.tables[link - 1]

    def close(self) -> None:
        for transaction in self._transactions.values():
            transaction.drop()
        self._join.close()
        self._states.close()
        if self._guard:
            self._guard.close()


_kept: list[Worker] = []


class _Batch:
    """A node's part of one batch, from its first row to the states to commit."""

    def __init__(
        self,
        topology: Topology,
        join: Chain,
        producer: Producer,
        states: dict[int, SlotState],
        lag: Latency,
    ) -> None:
        self._topology = topology
        self._join = join
        self._producer = producer
        self._states = states
        self._lag = lag
        self._ledgers = [_opened(states, link.number) for link in topology.links]
        self._ledger = self._ledgers[0]
        self._done = {slot: self._positions(state) for slot, state in states.items()}
        self._last = {slot: at - 1 for slot, at in self._done.items()}
        """The offsets of the last events taken, by slot and source partition."""
        self.reached: dict[int, int] = {}
        self.taken: dict[int, int] = {}
        self.carried_bytes = 0
        self.counts: Counter[str] = Counter()
        join.begin(states, producer, self._ledgers)

    def take(self, part: pa.RecordBatch) -> None:
        names = ("slot", "kind", "partition", "reached")
        columns = (part.column(name).to_pylist() for name in names)
        payloads = part.column("payload")
        self.carried_bytes += payloads.nbytes
        for row, (slot, kind, partition, reached) in enumerate(zip(*columns, strict=True)):
            if kind == SHELVED:
                message = taken(payloads[row].as_py())
                self.carried_bytes += len(message)
                self._take_events(slot, message)
            elif kind == EVENTS:
                # Copied, for kernels want memory that is writable (columns.py).
                message = np.frombuffer(payloads[row].as_buffer(), np.uint8).copy()
                self._take_events(slot, message)
            elif kind == BAD:
                self._bury(slot, BadEvents.from_message(payloads[row].as_py()))
            else:
                self.reached[partition] = max(reached, self.reached.get(partition, 0))

    def _take_events(self, slot: int, message: Bytes) -> None:
        batch = EventBatch.from_message(message)
        new = np.flatnonzero(batch.offsets >= self._done[slot][batch.partitions])
        if len(new) < len(batch):
            batch = batch.take(new)
        if self._topology.pipeline.order.kept:
            self._require_order(slot, batch)
        if batch.event_times is not None:
            self._lag.observe(time.time_ns() // 1_000_000 - batch.event_times)
        self._join.take(slot, batch)

    def finish(self) -> dict[int, SlotState]:
        """Answer all that waits; return what the slots have behind them then."""
        self._join.finish()
        states = {}
        for slot, state in self._states.items():
            positions = dict(state.positions)
            for partition, reached in self.reached.items():
                positions[partition] = max(reached, state.position(partition))
            counts, *further = (parse(ledger.text(slot)) for ledger in self._ledgers)
            states[slot] = SlotState(counts, positions, tuple(further))
            self.taken[slot] = counts[outcome.IN] - state.counts[outcome.IN]
        self.counts = _told([ledger.commit() for ledger in self._ledgers])
        return states

    def _require_order(self, slot: int, batch: EventBatch) -> None:
        """Raise unless events come in their partition's order, as Spark's shuffle leaves them."""
        last = self._last[slot]
        for partition, rows in groups(batch.partitions):
            offsets = np.concatenate([last[partition : partition + 1], batch.offsets[rows]])
            if (np.diff(offsets) <= 0).any():
                raise Unavailable(
                    f"events of partition {partition} came in another order than they stand there, "
                    f"and the pipeline keeps order: {self._topology.pipeline.order}"
                )
            last[partition] = offsets[-1]

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


def _opened(states: dict[int, SlotState], link: int) -> Ledger:
    """A ledger of one table's counts, by the slots of the first one's keys."""
    ledger = Ledger()
    for slot, state in states.items():
        ledger.open(slot, SlotState(state.of_link(link).counts).text)
    return ledger


def _told(by_table: list[Counter[str]]) -> Counter[str]:
    """What became of the batch's events; outputs of a chain's tables but the last are none."""
    first, last = by_table[0], by_table[-1]
    told = sum(by_table, Counter())
    return Counter(
        {**told, outcome.IN: first[outcome.IN], **{name: last[name] for name in _OF_THE_LAST}}
    )
