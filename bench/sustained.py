"""How old outputs are when a reader has them, while events come at one rate for a while."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.arrivals import latency_of, sent_times
from bench.children import child, wait_for_line
from bench.ranges import group_at
from dovetail.stream.topics import admin_of, ends

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from bench.arrivals import Latency
    from bench.children import Sent
    from bench.measure import Meter
    from deploy.local.stack import Stack
    from dovetail.settings import Settings
    from dovetail.topology import Topic

LOW, HIGH = 1_000, 20_000
"""Events a second at which everything is compared, however fast the machine."""
HALF = 0.5
_NAMES = {LOW: "1k", HIGH: "20k"}
_BESIDE = frozenset({"generator", "reader"})
"""Processes that are not part of what is measured."""


@dataclass
class Sustained:
    asked: float
    """The rate that was asked for; `sent` says what became of it."""
    share: float | None
    """What share that is of the rate that it can do; None if it is the same for everything."""
    sent: Sent
    latency: Latency
    cpu_s: dict[str, float]
    others: float

    @property
    def name(self) -> str:
        """What the benchmark's last line calls it."""
        if self.share is None:
            return _NAMES.get(round(self.asked), f"{self.asked:.0f}")
        return "half" if self.share == HALF else f"{self.share:.0%}"

    @property
    def cpu_s_per_million(self) -> float:
        """Broker and database included, generator and reader not."""
        used = sum(seconds for name, seconds in self.cpu_s.items() if name not in _BESIDE)
        return used / self.sent.events * 1e6


class Watched:
    """Events on their way from a source topic to a reader of another one.

    Make it before the events are sent; `latency` is for when `reading` is over.
    """

    def __init__(
        self,
        stack: Stack,
        settings: Settings,
        source: Topic,
        target: Topic,
        tick: Callable[[], None],
    ) -> None:
        self._stack = stack
        self._settings = settings
        self._source = source
        self._target = target
        self._tick = tick
        self._admin = admin_of(settings)
        self._file = stack.home.folder / "arrivals.npz"
        self.starts = ends(self._admin, source)
        """Where what is sent from now on begins on the source."""

    @contextlib.contextmanager
    def reading(self) -> Iterator[Path]:
        """Have a reader note arrivals; its file is whole when the `with` is left."""
        group = group_at(self._settings, self._target.name, ends(self._admin, self._target))
        arguments = [self._target.name, group, str(self._file)]
        environment = self._stack.environment()
        self._file.unlink(missing_ok=True)
        with child(self._stack.home, "reader", "bench.arrivals", arguments, environment) as reader:
            wait_for_line(reader, "ready", self._tick)
            yield self._file

    def from_first(self, meter: Meter, tick: Callable[[], None]) -> Callable[[], None]:
        """Tick, and have the meter begin with the first event: a generator takes its time to start.

        At 1,000 events/s what the services do until then would be most of what is counted.
        """
        begun = False

        def look() -> None:
            nonlocal begun
            tick()
            if not begun and sum(ends(self._admin, self._source)) > sum(self.starts):
                begun = True
                meter.restart()

        return look

    def latency(self, sent: Sent, check: Callable[[], None]) -> Latency:
        sent_ms = sent_times(
            self._settings, self._source.name, self.starts, sent.first, sent.events, check
        )
        return latency_of(self._file, sent_ms, sent.first)
