"""The reduce side of `backfill`: one task is one node, with its slots' events of a portion.

A node's part that is undone because of outputs that are too large (backfill_join.py) says so, and
the portion is run once more with what it has found: the other nodes have nothing to do then.
"""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
from pyspark import TaskContext

from dovetail.stream.batch import EventBatch
from dovetail.stream.slot_state import SlotState
from dovetail.stream.whole import Identity  # noqa: TC001 - msgspec reads it
from dovetail.topology import Topology
from services.spark.backfill_commit import NodeTransaction
from services.spark.backfill_join import STILL, LateJoin, TooLarge, TooLargeError
from services.spark.backfill_source import NOTHING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from dovetail.pipeline.spec import Pipeline
    from dovetail.settings import Settings
    from services.spark.backfill_portions import Portion

log = logging.getLogger(__name__)

SCHEMA = "report binary"
STRANGE = "strange"
"""Messages that name no event of the source."""


@dataclass(frozen=True, slots=True)
class Job:
    """What a worker is told by the driver."""

    settings: Settings
    pipeline: Pipeline
    run: int
    portion: Portion
    too_large: TooLarge = field(default_factory=dict)


class Report(msgspec.Struct, frozen=True):
    """What became of a node's part of a portion."""

    counts: dict[str, int] = {}
    too_large: list[tuple[Identity, str]] = []
    """What it was undone for, if it was."""


def finish(job: Job, run: Callable[[Job], Iterable[Report]]) -> Counter[str]:
    """Let a portion be run, again where some of it was undone; count what became of it."""
    counts: Counter[str] = Counter()
    while True:
        reports = list(run(job))
        for report in reports:
            counts.update(report.counts)
        found = dict(one for report in reports for one in report.too_large)
        if not found:
            return counts
        log.warning("outputs too large for the sink: once more", extra={"events": len(found)})
        job = replace(job, too_large={**job.too_large, **found})


def complete(job: Job, parts: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Answer a node's events; `parts` have the rows that `batches` gives."""
    context = TaskContext.get()
    assert context is not None, "only Spark calls it"
    report = msgspec.json.encode(answer(job, context.partitionId(), parts))
    yield pa.record_batch({"report": pa.array([report], pa.binary())})


def report_of(text: bytes) -> Report:
    return msgspec.json.decode(text, type=Report)


def answer(job: Job, node: int, parts: Iterator[pa.RecordBatch]) -> Report:
    """Answer what the node's slots have not looked at yet, in one transaction."""
    topology = Topology(job.pipeline)
    transaction = NodeTransaction(job.settings, topology, node, job.run)
    slots = range(node, job.pipeline.slots, job.pipeline.nodes)
    states = {slot: transaction.late.slots.get(slot, SlotState()) for slot in slots}
    wanted = {slot: job.portion.inputs_for(state) for slot, state in states.items()}
    try:
        join = LateJoin(
            job.settings, job.pipeline, topology, transaction.producer, slots, job.too_large
        )
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
    except TooLargeError as error:
        transaction.drop()
        for _ in parts:
            pass  # Spark waits until they are taken
        return Report(too_large=list(error.events.items()))
    except BaseException:
        transaction.drop()
        raise
    return Report(sum(counts.values(), Counter({STRANGE: strange})))


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
    # Who has nothing to do has counted them before.
    return strange if any(wanted.values()) else 0


def _kept(counts: Counter[str]) -> Counter[str]:
    """The counts that stay: how many are still unmatched now is of this run alone."""
    return Counter({name: count for name, count in counts.items() if name != STILL})
