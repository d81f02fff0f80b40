"""The reduce side of `backfill`: one task is one node, with its slots' events of a portion."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import TaskContext

from dovetail.stream import ledger
from dovetail.stream.batch import EventBatch
from dovetail.stream.slot_state import SlotState
from dovetail.topology import Topology
from services.spark.backfill_commit import NodeTransaction
from services.spark.backfill_join import STILL, LateJoin
from services.spark.backfill_source import NOTHING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dovetail.pipeline.spec import Pipeline
    from dovetail.settings import Settings
    from services.spark.backfill_portions import Portion

SCHEMA = "report string"
STRANGE = "strange"
"""Messages that name no event of the source."""


@dataclass(frozen=True, slots=True)
class Job:
    """What a worker is told by the driver."""

    settings: Settings
    pipeline: Pipeline
    run: int
    portion: Portion


def complete(job: Job, parts: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Answer a node's events; `parts` have the rows that `batches` gives."""
    context = TaskContext.get()
    assert context is not None, "only Spark calls it"
    counts = answer(job, context.partitionId(), parts)
    report = ",".join(f"{name}={count}" for name, count in counts.items())
    yield pa.record_batch({"report": pa.array([report], pa.string())})


def report_of(text: str) -> Counter[str]:
    return ledger.parse(text)


def answer(job: Job, node: int, parts: Iterator[pa.RecordBatch]) -> Counter[str]:
    """Answer what the node's slots have not looked at yet, in one transaction; count it."""
    topology = Topology(job.pipeline)
    transaction = NodeTransaction(job.settings, topology, node, job.run)
    slots = range(node, job.pipeline.slots, job.pipeline.nodes)
    states = {slot: transaction.late.slots.get(slot, SlotState()) for slot in slots}
    wanted = {slot: job.portion.inputs_for(state) for slot, state in states.items()}
    try:
        join = LateJoin(job.settings, job.pipeline, topology, transaction.producer, slots)
        try:
            strange = _take(join, wanted, parts)
            join.finish()
        finally:
            join.close()
        counts = {slot: join.counts(slot) for slot in slots}
        transaction.commit(
            {
                slot: SlotState(state.counts + _kept(counts[slot]), job.portion.passed(state))
                for slot, state in states.items()
                if wanted[slot]
            }
        )
    except BaseException:
        transaction.drop()
        raise
    return sum(counts.values(), Counter({STRANGE: strange}))


def _take(
    join: LateJoin, wanted: dict[int, frozenset[int]], parts: Iterator[pa.RecordBatch]
) -> int:
    strange = 0
    for part in parts:
        names = ("slot", "input", "strange")
        columns = (part.column(name).to_pylist() for name in names)
        payloads = part.column("payload")
        for row, (slot, number, of_others) in enumerate(zip(*columns, strict=True)):
            strange += of_others
            if slot != NOTHING and number in wanted[slot]:
                join.take(number, slot, EventBatch.from_message(payloads[row].as_py()))
    return strange


def _kept(counts: Counter[str]) -> Counter[str]:
    """The counts that stay: how many are still unmatched now is of this run alone."""
    return Counter({name: count for name, count in counts.items() if name != STILL})
