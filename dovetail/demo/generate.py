"""`dovetail generate`: send the benchmark's stream to Kafka, on schedule, and say how it went."""

from __future__ import annotations

import json
import math
import signal
import sys
import threading
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail.demo import timing
from dovetail.demo.catalogue import ROWS
from dovetail.demo.events import EventBatch, Kind, SalesEvents
from dovetail.demo.popularity import CATALOGUE_SEED
from dovetail.demo.sender import KafkaSender, Sender
from dovetail.demo.timing import Step
from dovetail.errors import ConfigError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator

MAX_RATE = math.inf
TIMINGS = ("steady", "bursty")
# At full speed there is no schedule to take times from; sales then follow each other this fast.
_SALES_PER_MILLISECOND = 1_000
# A step later than this is behind schedule; less is the operating system's waking time.
LATE_SECONDS = 0.1


@dataclass(frozen=True)
class GenerateSettings:
    rate: float = 10_000
    """Events a second on average; MAX_RATE for as many as Kafka takes."""
    timing: str = "steady"
    skew: float = 1.0
    seed: int = 1
    count: int | None = None
    """How many events; None goes on until stopped."""
    no_match: float = 0.02
    bad: float = 0.005
    keys: int = ROWS
    first: int = 1
    """The first sale_id."""
    started_at: datetime | None = None
    """When the first sale happens; None is now. Fixed, a run can be repeated byte for byte."""
    catalogue_seed: int = CATALOGUE_SEED

    def __post_init__(self) -> None:
        if not self.rate > 0:
            raise ConfigError(f"the rate must be above 0 events a second, not {self.rate}")
        if self.timing not in TIMINGS:
            raise ConfigError(f"the timing is steady or bursty, not {self.timing}")
        if self.timing == "bursty" and self.rate == MAX_RATE:
            raise ConfigError("bursty timing needs a mean rate: name one instead of max")
        if self.count is not None and self.count < 0:
            raise ConfigError(f"the count cannot be negative, but is {self.count}")
        if self.first < 0:
            raise ConfigError(f"the first sale_id cannot be negative, but is {self.first}")
        self.events()

    def events(self) -> SalesEvents:
        return SalesEvents(
            keys=self.keys,
            seed=self.seed,
            skew=self.skew,
            no_match=self.no_match,
            bad=self.bad,
            catalogue_seed=self.catalogue_seed,
        )

    def steps(self) -> Iterator[Step]:
        if self.rate == MAX_RATE:
            return timing.maximal()
        if self.timing == "bursty":
            return timing.bursty(self.rate, self.seed)
        return timing.steady(self.rate)


@dataclass(frozen=True)
class Summary:
    """What a run did; `events` are acknowledged by Kafka, `seconds` include waiting for that."""

    events: int
    seconds: float
    behind: float
    """The most seconds that any step was sent after it was due; 0 at full speed."""
    kinds: dict[str, int]
    """How many events of each kind: what a pipeline must answer for."""

    @property
    def rate(self) -> float:
        return self.events / self.seconds if self.seconds else 0.0

    def __str__(self) -> str:
        kinds = ", ".join(f"{name} {number:,}" for name, number in self.kinds.items() if number)
        late = f"; up to {self.behind:.2f} s behind schedule" if self.behind > LATE_SECONDS else ""
        return (
            f"{self.events:,} events in {self.seconds:.2f} s, {self.rate:,.0f} events/s{late}"
            f" ({kinds or 'none'})"
        )


def generate(
    settings: GenerateSettings,
    client_config: dict[str, Any],
    topic: str,
    report: Callable[[str], None],
    stop: threading.Event,
    *,
    sender: Sender | None = None,
) -> Summary:
    """Send events until the count is reached or `stop` is set, then wait for Kafka."""
    sender = sender or KafkaSender(client_config, topic)
    # Compiled before the clock starts, or the first second would be late.
    next(_batches(settings, Step(0.0, 1), 0, 0))
    counts = np.zeros(len(Kind), np.int64)
    sold_at = int((settings.started_at or datetime.now(UTC)).timestamp() * 1000)
    clock = _Clock(settings, report)
    sent = 0
    for step in settings.steps():
        if stop.is_set() or sent == settings.count or not clock.wait_for(step, stop):
            break
        for batch in _batches(settings, step, sent, sold_at):
            sender.send(batch)
            sent += len(batch)
            counts += np.bincount(batch.kinds, minlength=len(Kind))
        if clock.is_time_to_tell():
            sender.flush()
            clock.tell(sent)
    sender.flush()
    kinds = {kind.name.lower(): int(counts[kind]) for kind in Kind}
    return Summary(sent, clock.elapsed(), clock.most_late, kinds)


def _batches(
    settings: GenerateSettings, step: Step, sent: int, sold_at: int
) -> Iterator[EventBatch]:
    """Make a step's events, not beyond the count, in batches that a client's queue can take."""
    last = sent + step.events
    if settings.count is not None:
        last = min(last, settings.count)
    for start in range(sent, last, timing.MAXIMAL_BATCH):
        numbers = np.arange(start, min(start + timing.MAXIMAL_BATCH, last))
        if settings.rate == MAX_RATE:
            times = sold_at + numbers // _SALES_PER_MILLISECOND
        else:
            times = np.full(numbers.size, sold_at + int(step.offset * 1000))
        yield settings.events().batch(settings.first + start, times)


class _Clock:
    """Keeps the schedule, remembers when it could not, and reports once a second."""

    def __init__(self, settings: GenerateSettings, report: Callable[[str], None]) -> None:
        self._scheduled = settings.rate != MAX_RATE
        self._report = report
        self._started = time.monotonic()
        self._late = 0.0
        self.most_late = 0.0
        self._told_at, self._told = 0.0, 0

    def elapsed(self) -> float:
        return time.monotonic() - self._started

    def wait_for(self, step: Step, stop: threading.Event) -> bool:
        """Wait until the step is due; False if told to stop meanwhile."""
        if not self._scheduled:
            return True
        self._late = self.elapsed() - step.offset
        self.most_late = max(self.most_late, self._late)
        return self._late >= 0 or not stop.wait(-self._late)

    def is_time_to_tell(self) -> bool:
        return self.elapsed() - self._told_at >= 1.0

    def tell(self, acknowledged: int) -> None:
        """Report what is in Kafka, not what is only on its way there."""
        elapsed = self.elapsed()
        rate = (acknowledged - self._told) / (elapsed - self._told_at)
        late = f", {self._late:.2f} s behind schedule" if self._late > LATE_SECONDS else ""
        self._report(f"{acknowledged:,} events sent, {rate:,.0f} events/s{late}")
        self._told_at, self._told = elapsed, acknowledged


def add_arguments(parser: argparse.ArgumentParser) -> None:
    default = GenerateSettings()
    add = parser.add_argument
    add("--topic", default="sales", help="where to send (%(default)s)")
    add("--rate", type=_rate, default=default.rate, help="events a second, or max (%(default)s)")
    add("--timing", choices=TIMINGS, default=default.timing, help="(%(default)s)")
    add("--skew", type=float, default=default.skew, help="Zipf exponent of keys (%(default)s)")
    add("--seed", type=int, default=default.seed, help="of the events and bursts (%(default)s)")
    add("--count", type=int, help="how many events (until interrupted)")
    add("--no-match", type=float, default=default.no_match, help="share without a master row")
    add("--bad", type=float, default=default.bad, help="share of bad events (%(default)s)")
    add("--keys", type=int, default=default.keys, help="rows of the catalogue (%(default)s)")
    add("--first", type=int, default=default.first, help="first sale_id (%(default)s)")
    add("--started-at", type=_instant, help="time of the first sale, to repeat a run (now)")


def run(args: argparse.Namespace, client_config: dict[str, Any], *, as_json: bool = False) -> int:
    """Run until the count is reached or an interrupt comes; `as_json` sums up for a script."""
    names = ("rate", "timing", "skew", "seed", "count", "no_match", "bad", "keys", "first")
    settings = GenerateSettings(
        **{name: getattr(args, name) for name in names}, started_at=args.started_at
    )
    stop = threading.Event()
    for interrupt in (signal.SIGINT, signal.SIGTERM):
        signal.signal(interrupt, lambda *_: stop.set())
    if as_json:
        summary = generate(settings, client_config, args.topic, _tell, stop)
        _print(json.dumps({**asdict(summary), "rate": summary.rate}))
    else:
        _print(str(generate(settings, client_config, args.topic, _print, stop)))
    return 0


def _print(line: str) -> None:
    print(line, flush=True)


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _rate(text: str) -> float:
    return MAX_RATE if text == "max" else float(text)


def _instant(text: str) -> datetime:
    instant = datetime.fromisoformat(text)
    return instant if instant.tzinfo else instant.replace(tzinfo=UTC)
