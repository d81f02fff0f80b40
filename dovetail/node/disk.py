"""The disk half: answers what the cache could not, by the link's algorithm.

    arrive ──► let_in ──► the join's pending events ──► read ──► answers

Events wait beyond the step in which they came: the window (window.py) knows which, the committed
offset of a slot stays below them, and what is answered above it is told by `record`.

Where the pipeline keeps an order, all events of a slot come here, those that the cache can answer
with their entries, and this half alone gives outputs:

    by key   a hit is answered at once; unless events of its key are pending: then it is joined
             as they are, and leaves with them, in the order in which they came
    within   all answers leave by the line (join/line.py)

Where both halves are one engine, whole batches come here, and the engine answers its hits as it
lets events in; there is no second look, and no entry has to travel.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail.contracts.progress_pb2 import Progress
from dovetail.errors import TooManyRowsError
from dovetail.join.emigration import Emigration
from dovetail.join.exchange import Answers as Joined
from dovetail.join.exchange import Events
from dovetail.node.step import (
    TOO_MANY_ROWS,
    Counted,
    Kind,
    Letters,
    Migrating,
    Missed,
    Progressed,
    counted,
)
from dovetail.stream import ledger as outcome
from dovetail.stream.batch import UNMAPPED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from dovetail.join.columns import Flags, Ints, SmallInts
    from dovetail.join.line import Line
    from dovetail.node.answers import Answers
    from dovetail.node.master import MasterJoin
    from dovetail.node.step import Part
    from dovetail.node.window import Answered, Window
    from dovetail.stream.batch import EventBatch


@dataclass(slots=True)
class _Arrival:
    """A batch that is not, or not wholly, let in yet."""

    slot: int
    offset: int
    batch: EventBatch | None
    """Until the window has room for it."""
    pieces: deque[EventBatch] = field(default_factory=deque)
    """What of it is to be joined, in its order, until the line has room for it."""
    events: Events | None = None
    """What of the first of them is to be joined, until the join has room for it."""

    @property
    def nbytes(self) -> int:
        whole = 0 if self.batch is None else self.batch.nbytes
        return whole + sum(piece.nbytes for piece in self.pieces)


class DiskHalf:
    def __init__(
        self,
        answers: Answers,
        join: MasterJoin,
        window: Window,
        line: Line | None = None,
        through: Callable[[int, EventBatch], Iterator[Part]] | None = None,
    ) -> None:
        """A line keeps the pipeline's order.

        Where both halves are one engine, a batch that is let in goes `through` the cache half
        first: what that does not answer, because a row is needed for it, it gives as missed.
        """
        self.answers = answers
        self.window = window
        self.line = line
        self._through = through
        self.join = join
        policy = join.engine.policy
        self._emigration = policy if isinstance(policy, Emigration) else None
        self._arrivals: deque[_Arrival] = deque()
        self._changed: set[int] = set()
        self._answered: dict[int, int] = {}
        """By partition, those of the step under way included."""
        self._begun: set[int] = set()
        """Partitions of which something was recorded."""

    # ── what is held ─────────────────────────────────────────────────────────────────────

    @property
    def pending(self) -> int:
        """Events that wait for R."""
        return self.join.pending

    @property
    def arrivals(self) -> int:
        """Batches that are not, or not wholly, let in: for want of room, or not yet."""
        return len(self._arrivals)

    @property
    def held_bytes(self) -> int:
        """Of the half's share of the budget."""
        return self.join.engine.allocated + self.window.nbytes + self.in_line + self.arrived_bytes

    @property
    def arrived_bytes(self) -> int:
        """Of batches that are not, or not wholly, let in."""
        return sum(arrival.nbytes for arrival in self._arrivals)

    @property
    def migrations(self) -> int:
        """Keys that were found worth a place in the cache."""
        return 0 if self._emigration is None else self._emigration.figures.kept

    @property
    def in_line(self) -> int:
        return 0 if self.line is None else self.line.nbytes

    def figures(self) -> dict[str, float]:
        """What is held, and how the join goes about it."""
        return {
            "component_bytes.window": self.window.nbytes,
            "component_bytes.line": self.in_line,
            "component_bytes.arrivals": self.arrived_bytes,
            "window_events": self.window.capacity - self.window.room,
            "window_capacity": self.window.capacity,
            "held_batches": self.arrivals,
            "migrations": self.migrations,
            **self.join.figures(),
        }

    def explained(self) -> dict[str, Any]:
        """Which algorithm runs, and why."""
        return self.join.explained()

    def keep(self, slots: Iterable[int]) -> None:
        """Let a scan bring the rows of these slots alone."""
        self.join.keep(slots)

    def open(self, partition: int, answered: int, progress: Progress | None) -> None:
        """Take a partition over: so many of its events are answered, these above its offset."""
        self._answered[partition] = answered
        (self._begun.add if answered else self._begun.discard)(partition)
        if progress is not None:
            self.window.recall(progress)

    def drop(self) -> None:
        """Forget all that waits: slots are opened anew, and handed in from there.

        What is cached, and what the join has learnt, stays.
        """
        self.join.forget()
        if self._emigration is not None:
            self._emigration.collected()
        self.window.clear()
        self._arrivals.clear()
        self._changed.clear()
        if self.line is not None:
            self.line.clear()

    # ── a step ───────────────────────────────────────────────────────────────────────────

    def arrive(self, slot: int, offset: int, batch: EventBatch) -> None:
        """Take a batch, which stands at this offset of its slot; `let_in` goes on with it."""
        self.window.expect(slot, offset, batch)
        self._arrivals.append(_Arrival(slot, offset, batch))

    def answered(self, partitions: SmallInts) -> None:
        """Note that other events of the source's partitions were answered, in this step."""
        self._note(UNMAPPED, partitions)

    def read_again(self, partitions: SmallInts) -> None:
        """Note that events of the source's partitions came that were answered before."""
        self._changed.update(np.unique(partitions).tolist())

    def let_in(self) -> Iterator[Part]:
        """Let in what has arrived, in its order, until something has no room."""
        while self._arrivals:
            arrival = self._arrivals[0]
            if arrival.batch is not None:
                if self.window.room < len(arrival.batch):
                    return
                yield from self._enter(arrival, arrival.batch)
            while arrival.pieces:
                piece = arrival.pieces[0]
                if arrival.events is None:
                    if self.line is not None and not self.line.takes(piece.nbytes):
                        return
                    yield from self._admit(arrival, piece)
                assert arrival.events is not None
                yield from self._offer(arrival, arrival.events)
                if len(arrival.events):
                    return
                arrival.events = None
                arrival.pieces.popleft()
            self._arrivals.popleft()

    def read(self) -> Iterator[Part] | None:
        """Read R once, and answer whom that completes; None if nothing waits for it.

        Raises Unavailable while R cannot be read: what waits goes on waiting.
        """
        try:
            answers = self.join.step()
        except TooManyRowsError as error:
            return self._set_aside(str(error))
        return None if answers is None else self._all_answered(answers)

    def migrating(self) -> Iterator[Migrating]:
        """The keys that are worth a place in the cache, since this was last asked."""
        if self._emigration is None:
            return
        leaving, since = self._emigration.collected(), self.join.rows_since()
        if len(leaving):
            yield Migrating(leaving.keys, leaving.entries, leaving.events, leaving.cycle, since)

    def record(self) -> Iterator[Part]:
        """What is answered above the offsets that this step commits."""
        self.window.advance()
        for partition in sorted(self._changed):
            number = self._answered.get(partition, 0)
            progress = self.window.progress(partition, number)
            message = self._written(partition, progress)
            yield Progressed(partition, number if progress else 0, message)

    def offsets(self, positions: dict[int, int]) -> dict[int, int]:
        """What to commit by partition: where its oldest event waits, or all that came."""
        found = {one: self.window.oldest(one) for one in self._changed}
        self._changed.clear()
        either = {one: positions.get(one) if at is None else at for one, at in found.items()}
        return {one: at for one, at in either.items() if at is not None}

    # ── in it ────────────────────────────────────────────────────────────────────────────

    def _enter(self, arrival: _Arrival, batch: EventBatch) -> Iterator[Part]:
        """Number a batch's events, and let the cache half answer what it can."""
        places, numbers = self.window.enter(arrival.slot, arrival.offset, batch)
        arrival.batch = None
        if len(places) < len(batch) or not len(batch):
            batch = batch.take(places)
            self._changed.add(arrival.slot)
        batch = replace(batch, numbers=numbers)
        if self._through is None:
            arrival.pieces.append(batch)
        else:
            yield from self._missed(arrival, numbers, self._through(arrival.slot, batch))

    def _missed(self, arrival: _Arrival, numbers: Ints, parts: Iterator[Part]) -> Iterator[Part]:
        """Keep what the cache half has missed; all else of the batch is answered."""
        here = np.ones(len(numbers), np.bool_)
        for part in parts:
            match part:
                case Missed(batch=piece):
                    assert piece.numbers is not None
                    here[np.searchsorted(numbers, piece.numbers)] = False
                    arrival.pieces.append(piece)
                case Counted(outcome=outcome.IN):
                    pass  # an event comes in when it is answered
                case _:
                    yield part
        for one in self.window.finish(numbers[here]):
            yield self._done(one)
        self.window.advance()

    def _admit(self, arrival: _Arrival, piece: EventBatch) -> Iterator[Part]:
        """Answer the hits that came with their entries; the others are to be joined."""
        numbers = piece.numbers
        assert numbers is not None
        if piece.entries is None:
            arrival.events = Events(piece.keys, piece.events, numbers)
            return
        hits = leading_hits(piece, self.join, self.line)
        rest = piece.take(np.flatnonzero(~hits))
        assert rest.numbers is not None
        arrival.events = Events(rest.keys, rest.events, rest.numbers)
        if len(answered := np.flatnonzero(hits)):
            starts, events = piece.entries.bounds[answered], piece.events.take(answered)
            hit = Joined(events, numbers[answered], piece.entries.data, starts)
            yield from self._answer(hit, cached=True)

    def _offer(self, arrival: _Arrival, events: Events) -> Iterator[Part]:
        """Let events in as far as there is room, and answer the hits of the engine's own cache."""
        while len(events):
            most = len(events) if self.line is None else self.line.lets_in(self.join.pending)
            if not most:
                return
            part = events.slice(0, min(most, len(events)))
            offered = self.join.offer(part)
            events = arrival.events = events.slice(offered.accepted, len(events))
            if len(offered.answers):
                yield from self._answer(offered.answers, cached=True)
                self.window.advance()
            if offered.accepted < len(part):
                return

    def _all_answered(self, answers: Joined) -> Iterator[Part]:
        yield from self._answer(answers)
        while self.join.answering:
            yield from self._answer(self.join.more())
        self.window.advance()

    def _answer(self, joined: Joined, *, cached: bool = False) -> Iterator[Part]:
        """Give answers, or let them stand in line."""
        if not len(joined):
            return
        if self.line is None:
            yield from self._give(joined, np.ones(len(joined), np.bool_) if cached else None)
        else:
            self.line.stand(joined, cached=cached)
            yield from self._due()

    def _due(self) -> Iterator[Part]:
        if self.line is None:
            return
        while (due := self.line.due(waiting := self.window.waiting())) is not None:
            yield from self._give(due.answers, due.cached)
        self.line.require_room(len(waiting))

    def _give(self, joined: Joined, cached: Flags | None) -> Iterator[Part]:
        found = self.window.finish(joined.ids)
        for one in found:
            whole = len(found) == 1
            events = joined.events if whole else joined.events.take(one.places)
            starts = joined.starts if whole else joined.starts[one.places]
            sourced = one.sourced(events)
            hits = cached if cached is None or whole else cached[one.places]
            yield self._done(one)
            if hits is not None:
                yield Counted(one.slot, outcome.HITS, one.partitions[hits])
            yield from self.answers.to(one.slot, sourced, joined.entries, starts, hits)

    def _set_aside(self, why: str) -> Iterator[Part]:
        """Park the events whose key has more rows than fit; the others go on."""
        left = self.join.engine.dismiss()
        for one in self.window.finish(left.ids):
            events = left.events.take(one.places)
            yield self._done(one)
            yield Letters(Kind.PARKED, one.slot, one.sourced(events), TOO_MANY_ROWS, why)
        yield from self._due()
        self.window.advance()

    def _done(self, one: Answered) -> Counted:
        """Count events as answered: those are all that this half ever says it had."""
        self._note(one.slot, one.partitions)
        return Counted(one.slot, outcome.IN, one.partitions)

    def _note(self, slot: int, partitions: SmallInts) -> None:
        for partition, events in counted(slot, partitions):
            if events:
                self._changed.add(partition)
                self._answered[partition] = self._answered.get(partition, 0) + events

    def _written(self, partition: int, progress: Progress | None) -> bytes | None:
        if progress is None and partition in self._begun:
            return None
        self._begun.add(partition)
        # Also where nothing is: so that it shows that the partition was begun, should its offset
        # be forgotten.
        return (progress or Progress(slot=partition)).SerializeToString()


def leading_hits(batch: EventBatch, join: MasterJoin, line: Line | None) -> Flags:
    """Which events have an answer already that no pending one of their key has to precede."""
    assert batch.entries is not None
    hits: Flags = np.diff(batch.entries.bounds) > 0
    if line is None:
        hits &= ~join.awaited(batch.keys)
        hits &= ~np.isin(batch.keys.values, batch.keys.values[~hits])
    return hits
