"""Answers what the cache could not, by the pipeline's algorithm, and migrates the keys worth it.

A step takes what has arrived as far as there is room, then reads R and answers for a while. Events
wait beyond their step: the window knows which, the committed offset stays below them, and what is
answered above it goes to the progress topic, all in the step's transaction.

Where the pipeline keeps an order, all events of a slot come here, those that the cache can answer
with their entries, and this phase alone writes to the sink:

    by key   a hit is answered at once; unless events of its key are pending: then it is joined
             as they are, and leaves with them, in the order in which they came
    within   all answers leave by the line (line.py)
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from dovetail.contracts.progress_pb2 import Progress
from dovetail.errors import TooManyRowsError, Unavailable
from dovetail.join.exchange import Answers as Joined
from dovetail.join.exchange import Events
from dovetail.join.mapper import Mapper
from dovetail.pipeline.spec import KeyType
from dovetail.service.questions import Questions
from dovetail.stream import ledger as outcome
from dovetail.stream.answer import Answers, SourcedEvents
from dovetail.stream.handler import Handler
from dovetail.stream.migrations import send_migrations
from dovetail.stream.parking import TOO_MANY_ROWS, park
from dovetail.stream.reader import BatchReader

if TYPE_CHECKING:
    from collections.abc import Callable

    from dovetail.join.columns import Flags, Ints
    from dovetail.join.emigration import Emigration
    from dovetail.join.line import Line
    from dovetail.pipeline.spec import Pipeline
    from dovetail.service.metrics import Latency
    from dovetail.stream.batch import EventBatch
    from dovetail.stream.ledger import Ledger
    from dovetail.stream.rdkafka import Producer, Records
    from dovetail.stream.window import Window
    from dovetail.topology import Topology
    from services.disk_phase.join import MasterJoin

    MakeJoin = Callable[[], tuple[MasterJoin, Emigration]]

log = logging.getLogger(__name__)

VIA_DISK = b"disk"
STEP_S = 0.1
"""For so long a step goes on reading and answering: a transaction costs the same for one answer
as for thousands."""
_PAUSES_S = (0.1, 0.5, 1.0, 2.0, 5.0)


class SlotProgress(Protocol):
    """Where a slot's last owner has written what it answered; `ProgressReader` over Kafka."""

    def read(self, slot: int, number: int) -> Progress: ...

    def close(self) -> None: ...


@dataclass(slots=True)
class _Arrival:
    """A batch that is not, or not wholly, let in yet."""

    slot: int
    offset: int
    events: Events | None = None
    batch: EventBatch | None = None
    """Until the window has room for it."""


class DiskHandler(Handler):
    def __init__(
        self,
        pipeline: Pipeline,
        topology: Topology,
        make_join: MakeJoin,
        window: Window,
        progress: SlotProgress,
        budget: int,
        latency: Latency,
        sink_takes: Callable[[], int],
        clock: Callable[[], float],
        line: Line | None = None,
        questions: Questions | None = None,
    ) -> None:
        """`make_join` starts a join with nothing in it; a line keeps the pipeline's order.

        `questions` about the join are answered between steps.
        """
        self._questions = questions or Questions()
        self._int_key = pipeline.key_type is KeyType.INT
        self._topology = topology
        self._reader = BatchReader(topology, topology.missed)
        self._mapper = Mapper(pipeline.slots, int_key=self._int_key)
        self._make_join = make_join
        self._join, self._emigration = make_join()
        self._window = window
        self._progress = progress
        self._budget = budget
        self._answers = Answers(pipeline, topology, VIA_DISK, latency, sink_takes)
        self._clock = clock
        self._line = line
        self._slots: set[int] = set()
        self._arrivals: deque[_Arrival] = deque()
        self._changed: set[int] = set()
        self._trouble = ""
        self._failures = 0
        self._retry_at = 0.0

    # ── what the loop asks ───────────────────────────────────────────────────────────────

    @property
    def holds(self) -> bool:
        return True

    @property
    def busy(self) -> bool:
        return bool(self._arrivals or self._join.pending) and self._clock() >= self._retry_at

    @property
    def full(self) -> bool:
        return bool(self._arrivals)

    @property
    def hungry(self) -> bool:
        return not (self._arrivals or self._trouble or self._join.slow)

    def between_steps(self) -> None:
        self._questions.answer()

    def waiting_for(self) -> str:
        return self._trouble

    def assign(self, partitions: list[int]) -> None:
        self._slots.update(partitions)
        self._join.keep(self._slots)

    def revoke(self, partitions: list[int]) -> None:
        self._slots.difference_update(partitions)
        self._join.keep(self._slots)

    def alarm(self) -> str:
        return self._join.slow or self._answers.matches.alarm

    def open(self, partition: int, ledger: Ledger) -> None:
        """Learn what the slot's last owner has answered above the committed offset."""
        number = ledger.progress(partition)
        if number:
            self._window.recall(self._progress.read(partition, number))

    def drop(self) -> None:
        slow = self._join.slow
        self._join, self._emigration = self._make_join()
        self._join.slow = slow
        self._window.clear()
        self._arrivals.clear()
        self._changed.clear()
        # What waited for R is read again, perhaps by another node.
        self._trouble, self._failures, self._retry_at = "", 0, 0.0
        if self._line is not None:
            self._line.clear()

    def offsets(self, positions: dict[int, int], _touched: set[int]) -> dict[int, int]:
        """The oldest batch of a slot that still waits, or all that was read."""
        found = {}
        for slot in self._changed:
            offset = self._oldest(slot)
            if offset is None:
                offset = positions.get(slot)
            if offset is not None:
                found[slot] = offset
        self._changed.clear()
        return found

    def handle(self, records: Records, producer: Producer, ledger: Ledger) -> None:
        slow = bool(self._join.slow)
        if slow and self._retry_at <= self._clock():
            # First and once: a transaction's time begins with what is sent in it.
            self._read_and_answer(producer, ledger)
        self._take(records, producer)
        until = self._clock() + STEP_S
        while self._clock() < until and self._retry_at <= self._clock():
            self._let_in(producer, ledger)
            if slow or not self._read_and_answer(producer, ledger):
                break
        self._record(producer, ledger)
        self._migrate(producer)

    def close(self) -> None:
        self._join.close()
        self._progress.close()

    # ── a step ───────────────────────────────────────────────────────────────────────────

    def _take(self, records: Records, producer: Producer) -> None:
        offsets = records.offsets.tolist()
        batches = self._reader.read(records, producer)
        for (slot, batch), offset in zip(batches, offsets, strict=True):
            self._arrivals.append(_Arrival(slot, offset, batch=batch))

    def _let_in(self, producer: Producer, ledger: Ledger) -> None:
        """Offer what has arrived, in its order, until something has no room."""
        while self._arrivals:
            arrival = self._arrivals[0]
            if arrival.events is None and not self._enter(arrival, producer, ledger):
                return
            events = arrival.events
            assert events is not None
            accepted = self._offer(events) if len(events) else 0
            if accepted < len(events):
                arrival.events = events.slice(accepted, len(events))
                return
            self._arrivals.popleft()

    def _offer(self, events: Events) -> int:
        if self._line is None:
            return self._join.offer(events)
        most = self._line.lets_in(self._join.pending)
        return self._join.offer(events.slice(0, min(most, len(events)))) if most else 0

    def _enter(self, arrival: _Arrival, producer: Producer, ledger: Ledger) -> bool:
        """Number a batch's events, where there is room; answer hits, keep those to be joined."""
        batch, slot = arrival.batch, arrival.slot
        assert batch is not None
        if self._window.room < len(batch):
            return False
        if self._line is not None and not self._line.takes(batch.nbytes):
            return False
        places, numbers = self._window.enter(slot, arrival.offset, batch)
        arrival.batch = None
        if len(places) < len(batch) or not len(batch):
            batch = batch.take(places)
            self._changed.add(slot)
        if batch.entries is not None:
            hits = leading_hits(batch, self._join, self._line)
            self._answer_hits(batch, numbers, np.flatnonzero(hits), producer, ledger)
            batch, numbers = batch.take(np.flatnonzero(~hits)), numbers[~hits]
        arrival.events = Events(batch.keys, batch.events, numbers)
        return True

    def _answer_hits(
        self, batch: EventBatch, numbers: Ints, places: Ints, producer: Producer, ledger: Ledger
    ) -> None:
        if len(places):
            entries = batch.entries
            assert entries is not None
            starts = entries.bounds[places]
            hits = Joined(batch.events.take(places), numbers[places], entries.data, starts)
            self._answer(hits, producer, ledger, cached=True)

    def _read_and_answer(self, producer: Producer, ledger: Ledger) -> bool:
        """Read R once, and answer whom that completes; tell whether anything waited for it."""
        try:
            answers = self._read()
        except TooManyRowsError as error:
            self._park(str(error), producer, ledger)
            return True
        if answers is None:
            return False
        self._answer(answers, producer, ledger)
        while self._join.answering:
            self._answer(self._join.more(), producer, ledger)
        return True

    def _read(self) -> Joined | None:
        """Read R once; while it is away, what waits goes on waiting."""
        try:
            answers = self._join.step()
        except Unavailable as error:
            pause = _PAUSES_S[min(self._failures, len(_PAUSES_S) - 1)]
            self._failures += 1
            self._retry_at = self._clock() + pause
            if str(error) != self._trouble:
                log.warning("master data away, trying again", extra={"reason": str(error)})
            self._trouble = str(error)
            return None
        self._failures, self._trouble = 0, ""
        return answers

    def _answer(
        self, joined: Joined, producer: Producer, ledger: Ledger, *, cached: bool = False
    ) -> None:
        """Send answers, or let them stand in line."""
        if not len(joined):
            return
        if self._line is None:
            by_cache = np.ones(len(joined), np.bool_) if cached else None
            self._send(joined, by_cache, producer, ledger)
        else:
            self._line.stand(joined, cached=cached)
            self._send_due(producer, ledger)

    def _send_due(self, producer: Producer, ledger: Ledger) -> None:
        if self._line is None:
            return
        while (due := self._line.due(waiting := self._window.waiting())) is not None:
            self._send(due.answers, due.cached, producer, ledger)
        self._line.require_room(len(waiting))

    def _send(
        self, joined: Joined, cached: Flags | None, producer: Producer, ledger: Ledger
    ) -> None:
        found = self._window.finish(joined.ids)
        for one in found:
            whole = len(found) == 1
            events = joined.events if whole else joined.events.take(one.places)
            starts = joined.starts if whole else joined.starts[one.places]
            sourced = SourcedEvents(events, one.partitions, one.offsets, one.timestamps)
            ledger.add(one.slot, outcome.IN, len(events))
            hits = cached if cached is None or whole else cached[one.places]
            if hits is not None:
                ledger.add(one.slot, outcome.HITS, int(hits.sum()))
            self._answers.send(producer, ledger, one.slot, sourced, joined.entries, starts, hits)
            self._changed.add(one.slot)

    def _park(self, why: str, producer: Producer, ledger: Ledger) -> None:
        """Set the events aside whose key has more rows than fit; the others go on."""
        left = self._join.engine.dismiss()
        for one in self._window.finish(left.ids):
            events = left.events.take(one.places)
            ledger.add(one.slot, outcome.IN, len(events))
            sourced = SourcedEvents(events, one.partitions, one.offsets, one.timestamps)
            park(producer, self._topology, ledger, one.slot, sourced, TOO_MANY_ROWS, why)
            self._changed.add(one.slot)
        self._send_due(producer, ledger)

    def _record(self, producer: Producer, ledger: Ledger) -> None:
        """Write down what is answered above the offsets that this step commits."""
        self._window.advance()
        for slot in self._changed:
            number = ledger.count(slot, outcome.IN)
            progress = self._window.progress(slot, number)
            ledger.set_progress(slot, number if progress else 0)
            if progress is None and not ledger.has_begun(slot):
                # So that it shows that the slot was begun, should its offset be forgotten.
                progress = Progress(slot=slot)
            if progress:
                producer.send(
                    self._topology.progress.name,
                    progress.SerializeToString(),
                    slot,
                    key=b"%d" % slot,
                )

    def _migrate(self, producer: Producer) -> None:
        leaving, since = self._emigration.collected(), self._join.rows_since()
        if len(leaving.keys):
            send_migrations(
                producer,
                self._topology.migrations,
                self._mapper,
                leaving.keys,
                leaving.entries,
                leaving.events,
                leaving.cycle,
                int_key=self._int_key,
                read_at_ms=int(since * 1000),
            )

    def _oldest(self, slot: int) -> int | None:
        """The offset of the slot's oldest batch that is not wholly answered."""
        oldest = self._window.oldest(slot)
        if oldest is not None:
            return oldest
        return next((one.offset for one in self._arrivals if one.slot == slot), None)

    @property
    def _in_line(self) -> int:
        return 0 if self._line is None else self._line.nbytes

    def explained(self) -> dict[str, Any]:
        """Which algorithm runs, and why."""
        return self._join.explained()

    def figures(self) -> dict[str, float]:
        return {
            "budget_bytes": self._budget,
            "held_bytes": self._join.engine.allocated + self._window.nbytes + self._in_line,
            "component_bytes.window": self._window.nbytes,
            "component_bytes.line": self._in_line,
            "refused_messages": self._reader.refused,
            "window_events": self._window.capacity - self._window.room,
            "window_capacity": self._window.capacity,
            "held_batches": len(self._arrivals),
            "migrations": self._emigration.figures.kept,
            **self._answers.matches.figures(),
            **self._join.figures(),
        }


def leading_hits(batch: EventBatch, join: MasterJoin, line: Line | None) -> Flags:
    """Which events have an answer already that no pending one of their key has to precede."""
    assert batch.entries is not None
    hits: Flags = np.diff(batch.entries.bounds) > 0
    if line is None:
        hits &= ~join.awaited(batch.keys)
        hits &= ~np.isin(batch.keys.values, batch.keys.values[~hits])
    return hits
