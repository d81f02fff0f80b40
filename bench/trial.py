"""One pipeline under test: warmed up, drained, sent to at a steady rate, and measured meanwhile.

Its rate is how fast a preloaded backlog is drained: from the moment when whoever takes events in
is told to go on, to the last answer, so that a stage that runs ahead of the others flatters
nothing. A pipeline that cannot keep up even with the warm-up is not waited for: its rate is then
that of its disk phase over the share of the events that miss, which is the most it could keep up
for long.
"""

from __future__ import annotations

import contextlib
import math
import time
import urllib.request
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import yaml

from bench.arrivals import first_arrival
from bench.children import Load
from bench.measure import LOOK_EVERY_S, Meter, Progress, resident_now
from bench.sustained import Sustained, Watched
from deploy.local.files import write_atomically
from deploy.local.live import fetch
from deploy.local.ports import Ports
from deploy.local.services import Services
from dovetail.audit import Audit, Auditor
from dovetail.cli.client import Client
from dovetail.errors import ConservationError, StackError
from dovetail.pipeline.load import load_pipeline
from dovetail.service.metrics import figures_of
from dovetail.settings import Settings
from dovetail.stream import ledger
from dovetail.stream.topics import admin_of, ends, ensure_topics
from dovetail.topology import CACHE_PHASE, Topology
from dovetail.verify import verify

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path
    from typing import Any

    from bench.measure import Deadline, Resident
    from deploy.local.stack import Stack
    from dovetail.pipeline.spec import Pipeline

_STUCK_S = 60.0
_TICK_S = 0.2


@dataclass(frozen=True)
class Size:
    backlog: int
    warm_up: int
    """Events of one round of warming up."""
    warm_rounds: int
    """Rounds at most."""
    patience_s: float
    """A round that takes longer ends the warm-up: the pipeline is too slow to be drained."""
    window_s: float
    """For so long one that is too slow is measured."""
    sustained_s: float

    @property
    def first(self) -> int:
        """The first sale_id of the backlog: the same for every pipeline."""
        return self.warm_up * self.warm_rounds + 1


@dataclass
class Drained:
    """What was measured of a pipeline while it worked on events."""

    rate: float = 0.0
    middle_rate: float = 0.0
    events: int = 0
    hit_rate: float = 0.0
    missed: int = 0
    """Events that the disk phase answered."""
    cpu_s: dict[str, float] = field(default_factory=dict)
    others: float = 0.0
    figures: dict[str, float] = field(default_factory=dict)
    """By how much the services' figures grew, all nodes together: reads, rows_read, …."""
    estimated: bool = False
    """Whether it was too slow to be drained, and the rate is its disk phase's."""

    @property
    def cpu_s_per_event(self) -> float:
        """Broker and database included."""
        return sum(self.cpu_s.values()) / max(1, self.events)


class Trial:
    """A running pipeline, and what is measured of it."""

    def __init__(
        self,
        stack: Stack,
        services: Services,
        settings: Settings,
        pipeline: Pipeline,
        size: Size,
        deadline: Deadline,
        say: Callable[[str], None],
    ) -> None:
        self.topology = Topology(pipeline)
        self.settings = settings
        self.sustained: list[Sustained] = []
        self.resident: dict[str, int] = {}
        self.held: dict[str, tuple[float, float]] = {}
        """Most bytes held, and the budget, by process."""
        self.preload_rate = 0.0
        self.start_s = 0.0
        """From starting the services to the first output, where events were waiting."""
        self.starts: list[int] = []
        """Where the backlog begins on the source topic."""
        self.load = Load(stack.home, self.topology.source.name, stack.environment())
        self._say = say
        self._stack = stack
        self._home = stack.home
        self.services = services
        self._size = size
        self._admin = admin_of(settings)
        self._auditor = Auditor(settings, self.topology)
        self._deadline = deadline
        self._meter: Meter | None = None
        self._looked_at = 0.0

    @property
    def restarts(self) -> int:
        return sum(service.restarts for service in self.services.all)

    @property
    def control_url(self) -> str:
        return self.services.control_url

    def close(self) -> None:
        self._auditor.close()

    # ── starting ─────────────────────────────────────────────────────────────────────────

    def start(self) -> None:
        self.services.start()
        self.services.wait_until_ready()

    def start_with_waiting(self, events: int) -> None:
        """Start with so many events on the source: when does a reader have the first output?"""
        seen = self.audit()
        watched = self._watched()
        self.load.send(events, math.inf, self.tick)
        with watched.reading() as arrived:
            began_ms = time.time_ns() / 1e6
            self.start()
            self.drain(seen)
        self.start_s = (first_arrival(arrived) - began_ms) / 1000
        self._say(f"the first output came {self.start_s:.1f} s after the start")

    # ── measuring ────────────────────────────────────────────────────────────────────────

    def measure(self) -> Drained:
        """Warm up, then drain the backlog; or say what it would do if it cannot."""
        return self.drain_backlog() if self.warm_up() else self._estimate()

    def warm_up(self) -> bool:
        """Send rounds of events until the hit rate stops climbing; tell whether it keeps up."""
        before = -1.0
        for _ in range(self._size.warm_rounds):
            seen = self.audit()
            self.load.send(self._size.warm_up, math.inf, self.tick)
            now = self.drain(seen, within_s=self._size.patience_s)
            hit_rate = _hit_rate(seen, now)
            if not now.drained:
                self._say(f"too slow to be drained; {hit_rate:.1%} hits so far")
                return False
            self._say(f"warming up: {hit_rate:.1%} hits")
            if hit_rate - before < 0.01:
                break
            before = hit_rate
        return True

    def drain_backlog(self) -> Drained:
        self._tell("pause")
        seen = self.audit()
        self.starts = ends(self._admin, self.topology.source)
        self.load.skip_to(self._size.first)
        sent = self.load.send(self._size.backlog, math.inf, self.tick)
        self.preload_rate = sent.rate
        self._say(f"{self._size.backlog:,} events preloaded at {sent.rate:,.0f} a second; draining")
        figures = self._figures()
        progress = Progress(time.monotonic())
        meter = self._meter = Meter(self._home)
        self._tell("resume")
        now = self.drain(seen, progress)
        meter.sample()
        found = Drained(
            rate=progress.rate(),
            middle_rate=progress.middle_rate(),
            events=sent.events,
            hit_rate=_hit_rate(seen, now),
            missed=_missed(seen, now),
            cpu_s=meter.cpu_s(),
            others=meter.others_share(),
            figures=self._figures_since(figures),
        )
        self._keep_memory(meter)
        self._say(f"drained at {found.rate:,.0f} events/s, {found.hit_rate:.1%} hits")
        return found

    def _estimate(self) -> Drained:
        seen, figures = self.audit(), self._figures()
        meter = self._meter = Meter(self._home)
        began = time.monotonic()
        while time.monotonic() < began + self._size.window_s:
            self.tick()
            time.sleep(_TICK_S)
        now = self.audit()
        seconds = time.monotonic() - began
        meter.sample()
        answered = _missed(seen, now)
        # Not of the answers, where that can be told: what waits has missed, too. A node cannot.
        taken = _count(now, CACHE_PHASE, ledger.IN)
        missed = _count(now, CACHE_PHASE, ledger.MISSED)
        miss_share = missed / taken if taken else 1 - _hit_rate(seen, now)
        found = Drained(
            rate=answered / seconds / miss_share if miss_share else math.inf,
            events=round(answered / miss_share) if miss_share else 0,
            hit_rate=1 - miss_share,
            missed=answered,
            cpu_s=meter.cpu_s(),
            others=meter.others_share(),
            figures=self._figures_since(figures),
            estimated=True,
        )
        self._say(f"its disk phase could keep up with {found.rate:,.0f} events/s")
        return found

    def sustain(self, rate: float, share: float | None = None) -> None:
        """Send at one rate, and see how old events are when a reader has their output."""
        events = round(rate * self._size.sustained_s)
        self._say(f"sending {rate:,.0f} events/s for {self._size.sustained_s:.0f} s")
        seen = self.audit()
        watched = self._watched()
        with watched.reading():
            meter = self._meter = Meter(self._home)
            sent = self.load.send(events, rate, watched.from_first(meter, self.tick))
            now = self.drain(seen)
            meter.sample()
            others = meter.others_share()
        latency = watched.latency(sent, self._deadline.check)
        if latency.outputs != now.outputs - seen.outputs:
            raise ConservationError(
                f"the ledgers say {now.outputs - seen.outputs:,} outputs, "
                f"but {latency.outputs:,} arrived"
            )
        self._keep_memory(meter)
        self.sustained.append(Sustained(rate, share, sent, latency, meter.cpu_s(), others))
        self._say(f"latency p50 {latency.p50_ms:,.0f} ms, p99 {latency.p99_ms:,.0f} ms")

    def resident_now(self) -> dict[str, Resident]:
        """The memory of each of the pipeline's processes at this moment, control's included."""
        return resident_now(self._home, [service.name for service in self.services.all])

    def check(self, *, against_sql: bool = False) -> None:
        """Raise unless every event sent is accounted for."""
        now = self.audit()
        self._say(f"conservation  {now.equation()}")
        problems = list(now.problems)
        if not now.drained:
            problems.append(f"{now.waiting:,} events wait and {now.in_flight:,} are in flight")
        if against_sql:
            verdict = verify(self.settings, self.topology.pipeline, self.topology, self._say)
            problems += verdict.differences
            self._say(f"SQL expects {verdict.expected:,} outputs, found {verdict.outputs:,}")
        if problems:
            raise ConservationError("; ".join(problems))

    # ── watching ─────────────────────────────────────────────────────────────────────────

    def audit(self) -> Audit:
        return self._auditor.audit_of(self.load.sent)

    def waiting(self, seen: Audit) -> int:
        """Events on the source topic that ingest has not taken: its sender uses no transactions."""
        return max(0, sum(ends(self._admin, self.topology.source)) - seen.taken)

    def tick(self) -> None:
        self._deadline.check()
        self._stack.check()
        self.services.watch()
        if time.monotonic() - self._looked_at >= LOOK_EVERY_S:
            self._looked_at = time.monotonic()
            if self._meter:
                self._meter.sample()
            self._look_at_budgets()

    def _watched(self) -> Watched:
        source, enriched = self.topology.source, self.topology.enriched
        return Watched(self._stack, self.settings, source, enriched, self.tick)

    def _look_at_budgets(self) -> None:
        stats = fetch(self.services.control_url) if self._meter else None
        for service in stats["services"] if stats else ():
            figures = service["figures"]
            if "budget_bytes" in figures:
                name = f"{service['service']}-{service['node']}"
                held = figures.get("held_most_bytes", figures.get("held_bytes", 0.0))
                most = max(held, self.held.get(name, (0.0, 0.0))[0])
                self.held[name] = (most, figures["budget_bytes"])

    def _figures(self) -> dict[str, float]:
        """Every figure of the stages at this moment, added up over them and their nodes."""
        total: dict[str, float] = {}
        for _, shown in metrics_of(self.services):
            for name, value in figures_of(shown).items():
                total[name] = total.get(name, 0.0) + value
        return total

    def _figures_since(self, before: dict[str, float]) -> dict[str, float]:
        return {name: value - before.get(name, 0.0) for name, value in self._figures().items()}

    def _keep_memory(self, meter: Meter) -> None:
        for name, resident in meter.resident.items():
            self.resident[name] = max(resident, self.resident.get(name, 0))

    def _tell(self, what: str) -> None:
        """Have the service that takes the events in pause or resume: its cache stays as it is."""
        client = Client(self.control_url)
        path = client.pipeline(self.topology.pipeline.name)
        order = {"service": self.topology.commanded[0], "why": "the benchmark's backlog"}
        job = client.post(f"{path}/{what}", order)
        while job["state"] == "running":
            self.tick()
            job = client.get(f"/v1/jobs/{job['id']}", wait=1)
        if job["state"] != "done":
            raise StackError(f"{what} was not obeyed: {job}")

    def drain(
        self, since: Audit, progress: Progress | None = None, within_s: float = math.inf
    ) -> Audit:
        """Wait until everything sent is answered, or for so long."""
        began = moved = time.monotonic()
        before = since
        base = _answered(since)
        while True:
            at = time.monotonic()
            now = self.audit()
            if progress:
                progress.note(at, _answered(now) - base)
            if now.off:
                raise ConservationError("; ".join(now.problems))
            if now.drained or at - began > within_s:
                return now
            if now.stages != before.stages:
                moved = at
            elif at - moved > _STUCK_S:
                raise StackError(
                    f"nothing has moved for {_STUCK_S:.0f} s with {now.waiting:,} events waiting "
                    f"and {now.in_flight:,} in flight; see {self._home.logs}"
                )
            before = now
            self.tick()
            time.sleep(_TICK_S)


@contextlib.contextmanager
def trial(
    stack: Stack,
    pipeline_file: Path,
    size: Size,
    deadline: Deadline,
    say: Callable[[str], None],
    *,
    waiting: int = 0,
) -> Iterator[Trial]:
    """Run the pipeline of a file for as long as the `with` lasts.

    With events `waiting`, its start is measured.
    """
    pipeline = load_pipeline(pipeline_file)
    settings = Settings(stack.bootstrap, stack.database_url, pipeline_file)
    ensure_topics(settings, Topology(pipeline).topics())
    services = Services(
        stack.home, pipeline, pipeline_file, stack.environment(), Ports(stack.home), say
    )
    try:
        running = Trial(stack, services, settings, pipeline, size, deadline, say)
        with contextlib.closing(running):
            if waiting:
                running.start_with_waiting(waiting)
            else:
                running.start()
            yield running
    finally:
        services.stop()


def variant(
    pipeline_file: Path,
    folder: Path,
    label: str,
    changes: Mapping[str, Any],
    snapshot: Path | None = None,
) -> Path:
    """Write the same pipeline with other settings, and with topics of its own.

    It reads R from the `snapshot`, where one is named, and else from the database.
    """
    settings = yaml.safe_load(pipeline_file.read_text())
    name = f"{settings['name']}-{label}"
    settings |= {**changes, "name": name}
    settings["source"].pop("topic", None)
    settings.pop("sink", None)
    if snapshot:
        settings["master"]["snapshot"] = str(snapshot)
    file = folder / f"{name}.yaml"
    write_atomically(file, yaml.safe_dump(settings, sort_keys=False))
    return file


def metrics_of(services: Services) -> Iterator[tuple[str, str]]:
    """What each process shows; control shows nothing."""
    for service in services.all:
        with contextlib.suppress(OSError):
            yield service.name, _text(f"{service.url}/metrics")


def _text(url: str) -> str:
    with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310 - our own
        return str(answer.read().decode())


def _answered(seen: Audit) -> int:
    return seen.enriched + seen.unmatched + seen.dead_lettered


def _count(seen: Audit, service: str, outcome: str) -> int:
    return seen.stages[service][outcome]


def _answers(seen: Audit) -> int:
    """Given by either phase."""
    return seen.enriched + seen.unmatched


def _missed(before: Audit, after: Audit) -> int:
    """Events answered meanwhile that no cache had the rows of."""
    return _answers(after) - _answers(before) - (after.hits - before.hits)


def _hit_rate(before: Audit, after: Audit) -> float:
    answered = _answers(after) - _answers(before)
    return (after.hits - before.hits) / answered if answered else 0.0
