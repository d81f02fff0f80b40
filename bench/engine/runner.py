"""One join that is driven as fast as it goes: what it answers, and what that took."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from dovetail.join.engine import fed
from dovetail.join.kinds import JoinKind
from dovetail.join.splice import null_row, splice

if TYPE_CHECKING:
    from bench.engine.data import Stream
    from dovetail.join.engine import Figures, Offered
    from dovetail.join.exchange import Answers, Events, Read, Request
    from dovetail.join.tuning import ArrivalTuner

_BATCHES_A_STEP = 8
"""A cache that answers everything would never ask for a read."""
_NO_ROW = null_row([b'"v"'])


class Join(Protocol):
    """An engine, or auto."""

    @property
    def figures(self) -> Figures: ...
    @property
    def disk_buffer(self) -> int: ...
    @property
    def pending(self) -> int: ...
    def offer(self, events: Events) -> Offered: ...
    def wants(self) -> Request | None: ...
    def feed(self, read: Read) -> Answers: ...


class Source(Protocol):
    def read(self, request: Request, most: int) -> Read: ...
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of time that was measured."""

    seconds: float
    events: int
    """Answered: a cache that still grows lets nothing in for a while."""
    hits: int
    steps: int
    rows: int

    @property
    def rate(self) -> float:
        return self.events / self.seconds

    @property
    def step(self) -> float:
        """Seconds of one step: c_loop."""
        return self.seconds / max(1, self.steps)


class Runner:
    def __init__(
        self,
        name: str,
        join: Join,
        source: Source,
        stream: Stream,
        tuner: ArrivalTuner | None = None,
    ) -> None:
        self.name = name
        self.join = join
        self.source = source
        self._stream = stream
        self._tuner = tuner

    def step(self) -> None:
        """Offer until events are refused, then read once."""
        for _ in range(_BATCHES_A_STEP):
            events = self._stream.rest()
            offered = self.join.offer(events)
            self._stream.take(offered.accepted)
            if self._tuner is not None:
                self._tuner.arrived(len(events))
            self._put_out(offered.answers)
            if offered.accepted < len(events):
                break
        request = self.join.wants()
        if request is not None:
            read = self.source.read(request, self.join.disk_buffer)
            for answers in fed(self.join, read):
                self._put_out(answers)

    def run(self, seconds: float) -> Window:
        """Go on for so long, and for one step at least."""
        figures = self.join.figures
        before = figures.answered, figures.hits, figures.reads, figures.rows_read
        began = time.perf_counter()
        while True:
            self.step()
            taken = time.perf_counter() - began
            if taken >= seconds:
                break
        return Window(
            taken,
            figures.answered - before[0],
            figures.hits - before[1],
            figures.reads - before[2],
            figures.rows_read - before[3],
        )

    def close(self) -> None:
        self.source.close()

    def _put_out(self, answers: Answers) -> None:
        if len(answers):
            splice(JoinKind.INNER, answers.events, answers.entries, answers.starts, _NO_ROW)
