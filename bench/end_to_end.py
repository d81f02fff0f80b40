"""`make bench`: the whole pipeline, the script it has to beat, and the broker alone, in one run.

1. Start a stack of its own in `.dovetail/bench`, with the demo's catalogue of 1 M rows.
2. Warm up until the hit rate stops climbing (not measured).
3. Stop ingest, preload a backlog, start ingest: how fast is it drained?
4. Send at 50 % and 80 % of that rate: how old are events when a reader has their output?
5. Stop the services and give the same backlog to `lru_script.py`, then to nobody: a copy of it.
6. Check the conservation sum (`--verify`: compare all outputs with SQL's, too).

All on the same broker, table and stream of events. `events_per_s` counts from the moment when
ingest is ready to the last answer, so a stage that runs ahead of the others flatters nothing;
`middle_events_per_s` is between 10 % and 90 % of the answers. CPU seconds are those of the
drain, generator's and reader's those of the last sustained rate. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.arrivals import latency_of, sent_times
from bench.broker_alone import pass_through
from bench.children import Load, child, wait_for_end, wait_for_line
from bench.figures import Figures, Sustained, summary, table
from bench.measure import Deadline, Meter, Progress
from bench.ranges import group_at
from deploy.local.files import write_atomically
from deploy.local.home import CHECKOUT, Home
from deploy.local.live import fetch
from deploy.local.ports import Ports
from deploy.local.processes import reap_leftovers, sole_supervisor
from deploy.local.services import Services, is_ready
from deploy.local.stack import Stack
from dovetail.audit import Audit, Auditor
from dovetail.demo.catalogue import load_catalogue
from dovetail.errors import ConservationError, DovetailError, StackError
from dovetail.pipeline.load import load_pipeline
from dovetail.settings import Settings
from dovetail.stream.topics import admin_of, ends, ensure_topics
from dovetail.topology import INGEST, Topic, Topology
from dovetail.verify import verify

if TYPE_CHECKING:
    from collections.abc import Callable

    from deploy.local.services import Service
    from dovetail.pipeline.spec import Pipeline

SHARES = (0.5, 0.8)
_STUCK_S = 60.0
_TICK_S = 0.1
_STATS_EVERY_S = 1.0


@dataclass(frozen=True)
class Size:
    backlog: int
    baseline: int
    """Events of the backlog that the script is given: its rate does not change with more."""
    warm_up: int
    """Events of one round of warming up."""
    warm_rounds: int
    """Rounds at most."""
    sustained_s: float
    limit_s: float
    """When to give up. A quiet machine needs a third of it."""


QUICK = Size(1_000_000, 500_000, 250_000, 5, 8.0, 480.0)
FULL = Size(4_000_000, 2_000_000, 500_000, 10, 30.0, 1_800.0)
BASELINE_WARM_UP = 300_000


class Bench:
    """The running pipeline, and what is measured of it."""

    def __init__(
        self, stack: Stack, services: Services, settings: Settings, pipeline: Pipeline, size: Size
    ) -> None:
        self.figures = Figures()
        self.topology = Topology(pipeline)
        self.settings = settings
        self._stack = stack
        self._home = stack.home
        self._services = services
        self._size = size
        self._admin = admin_of(settings)
        self._auditor = Auditor(settings, self.topology)
        self._deadline = Deadline(size.limit_s)
        self._load = Load(stack.home, self.topology.source.name, stack.environment())
        self._meter: Meter | None = None
        self._stats_at = 0.0

    # ── the pipeline ─────────────────────────────────────────────────────────────────────

    def warm_up(self) -> None:
        before = -1.0
        for _ in range(self._size.warm_rounds):
            seen = self.audit()
            self._load.send(self._size.warm_up, math.inf, self.tick)
            now = self._drain(seen)
            hit_rate = _hit_rate(seen, now)
            _say(f"warming up: {hit_rate:.1%} hits")
            if hit_rate - before < 0.01:
                return
            before = hit_rate

    def drain_backlog(self) -> None:
        ingest = self._ingest()
        ingest.process.stop()
        seen = self.audit()
        _say(f"preloading {self._size.backlog:,} events")
        self._starts = ends(self._admin, self.topology.source)
        sent = self._load.send(self._size.backlog, math.inf, self.tick)
        _say(f"preloaded at {sent.rate:,.0f} events/s; draining")
        figures = self.figures
        figures.preload_rate, figures.events = sent.rate, sent.events
        meter = self._meter = Meter(self._home)
        ingest.process.start()
        figures.progress = Progress(self._await_ingest(ingest, seen))
        meter.restart(INGEST)
        now = self._drain(seen, figures.progress)
        meter.sample()
        figures.cpu_s = meter.cpu_s()
        figures.others = meter.others_share()
        figures.hit_rate = _hit_rate(seen, now)
        _say(f"drained at {figures.progress.rate():,.0f} events/s")

    def sustain(self, share: float) -> None:
        rate = round(share * self.figures.progress.rate())
        events = round(rate * self._size.sustained_s)
        _say(f"sending {rate:,} events/s for {self._size.sustained_s:.0f} s")
        seen = self.audit()
        source, enriched = self.topology.source, self.topology.enriched
        starts = ends(self._admin, source)
        group = group_at(self.settings, enriched.name, ends(self._admin, enriched))
        arrived = self._home.folder / "arrivals.npz"
        arguments = [enriched.name, group, str(arrived)]
        environment = self._stack.environment()
        with child(self._home, "reader", "bench.arrivals", arguments, environment) as reader:
            wait_for_line(reader, "ready", self.tick)
            meter = self._meter = Meter(self._home)
            sent = self._load.send(events, rate, self._tick_until_sent(meter, sum(starts)))
            now = self._drain(seen)
            meter.sample()
            others = meter.others_share()
        sent_ms = sent_times(
            self.settings, source.name, starts, sent.first, events, self._deadline.check
        )
        latency = latency_of(arrived, sent_ms, sent.first)
        arrived.unlink()
        if latency.outputs != now.outputs - seen.outputs:
            raise ConservationError(
                f"the ledgers say {now.outputs - seen.outputs:,} outputs, "
                f"but {latency.outputs:,} arrived"
            )
        self._keep_memory(meter)
        self.figures.sustained.append(Sustained(share, sent, latency, meter.cpu_s(), others))
        _say(f"latency p50 {latency.p50_ms:,.0f} ms, p99 {latency.p99_ms:,.0f} ms")

    def check(self, *, against_sql: bool) -> None:
        """Raise unless every event sent is accounted for."""
        now = self.audit()
        _say(f"conservation  {now.equation()}")
        problems = list(now.problems)
        if not now.drained:
            problems.append(f"{now.waiting:,} events wait and {now.in_flight:,} are in flight")
        if against_sql:
            verdict = verify(self.settings, self.topology.pipeline, self.topology, _say)
            problems += verdict.differences
            _say(f"SQL expects {verdict.expected:,} outputs, found {verdict.outputs:,}")
        if problems:
            raise ConservationError("; ".join(problems))

    def stop_services(self) -> None:
        self.figures.restarts = sum(service.restarts for service in self._services.all)
        if self._meter:
            self._keep_memory(self._meter)
        self._services.stop()

    # ── what it is compared with ─────────────────────────────────────────────────────────

    def run_baseline(self) -> None:
        target = Topic("bench.baseline", self.topology.enriched.partitions)
        ensure_topics(self.settings, [target])
        source = self.topology.source
        warm = min(BASELINE_WARM_UP, sum(self._starts))
        events = self._size.baseline
        starts = [at - warm // source.partitions for at in self._starts]
        _say(f"the script: {events:,} events of the same backlog")
        arguments = [source.name, target.name, json.dumps(starts), str(warm), str(events)]
        environment = self._stack.environment()
        with child(self._home, "baseline", "bench.lru_script", arguments, environment) as script:
            wait_for_line(script, "warm", self.tick)
            meter = self._meter = Meter(self._home)
            result: dict[str, float] = json.loads(wait_for_line(script, "{", self.tick))
            meter.sample()
            wait_for_end(script, self.tick)
        figures = self.figures
        figures.baseline, figures.baseline_cpu_s = result, meter.cpu_s()
        figures.baseline_cpu_s["baseline"] = result["cpu_s"]
        figures.baseline_others = meter.others_share()
        figures.resident["baseline"] = meter.resident.get("baseline", 0)
        _say(f"the script does {result['events_per_s']:,.0f} events/s")

    def run_broker_alone(self) -> None:
        target = Topic("bench.copy", self.topology.enriched.partitions)
        ensure_topics(self.settings, [target])
        self.figures.broker_rate = pass_through(
            self.settings,
            self.topology.source,
            target,
            self._starts,
            self._size.backlog,
            self._deadline.check,
        )
        _say(f"the broker alone does {self.figures.broker_rate:,.0f} events/s")

    # ── watching ─────────────────────────────────────────────────────────────────────────

    def audit(self) -> Audit:
        return self._auditor.audit()

    def tick(self) -> None:
        self._deadline.check()
        self._stack.check()
        self._services.watch()
        if self._meter:
            self._meter.sample()
        if time.monotonic() - self._stats_at >= _STATS_EVERY_S:
            self._stats_at = time.monotonic()
            self._look_at_budgets()

    def _tick_until_sent(self, meter: Meter, before: int) -> Callable[[], None]:
        """Tick, and count the generator's work from its first event on."""
        sending = False

        def tick() -> None:
            nonlocal sending
            self.tick()
            if not sending and sum(ends(self._admin, self.topology.source)) > before:
                sending = True
                meter.restart("generator")

        return tick

    def _look_at_budgets(self) -> None:
        stats = fetch(self._services.control_url) if self._meter else None
        for service in stats["services"] if stats else ():
            figures = service["figures"]
            if "budget_bytes" in figures:
                name = f"{service['service']}-{service['node']}"
                held = figures.get("held_most_bytes", figures.get("held_bytes", 0.0))
                most = max(held, self.figures.held.get(name, (0.0, 0.0))[0])
                self.figures.held[name] = (most, figures["budget_bytes"])

    def _keep_memory(self, meter: Meter) -> None:
        for name, resident in meter.resident.items():
            self.figures.resident[name] = max(resident, self.figures.resident.get(name, 0))

    def _ingest(self) -> Service:
        return next(service for service in self._services.all if service.name == INGEST)

    def _await_ingest(self, ingest: Service, seen: Audit) -> float:
        """Return when ingest could take the first event."""
        while True:
            now = time.monotonic()
            if is_ready(ingest.url) or self.audit().taken > seen.taken:
                self.tick()
                return now
            self.tick()
            time.sleep(0.02)

    def _drain(self, since: Audit, progress: Progress | None = None) -> Audit:
        """Wait until everything sent is answered."""
        moved, before = time.monotonic(), since
        base = _answered(since)
        while True:
            at = time.monotonic()
            now = self.audit()
            if progress:
                progress.note(at, _answered(now) - base)
            if now.off:
                raise ConservationError("; ".join(now.problems))
            if now.drained:
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


def _answered(seen: Audit) -> int:
    return seen.enriched + seen.unmatched + seen.dead_lettered


def _hit_rate(before: Audit, after: Audit) -> float:
    answered = after.enriched + after.unmatched - before.enriched - before.unmatched
    return (after.hits - before.hits) / answered if answered else 0.0


_STARTED = time.monotonic()


def _say(line: str) -> None:
    print(f"{time.monotonic() - _STARTED:6.1f} s  {line}", flush=True)


# ── running ──────────────────────────────────────────────────────────────────────────────


def bench(pipeline_file: Path, size: Size, *, against_sql: bool) -> dict[str, Any]:
    main_home = Home.of_checkout()
    home = Home(main_home.folder / "bench", downloads=main_home.folder)
    pipeline = load_pipeline(pipeline_file)
    # Always a stack of its own: the topics of a running pipeline are not for a benchmark.
    environ = {
        name: value
        for name, value in os.environ.items()
        if name not in ("KAFKA_BOOTSTRAP", "DATABASE_URL")
    }
    _forget_topics(home)
    try:
        with Stack(home, environ=environ, report=_say) as stack:
            load_catalogue(stack.database_url, report=_say)
            settings = Settings(stack.bootstrap, stack.database_url, pipeline_file)
            ensure_topics(settings, Topology(pipeline).topics())
            services = Services(
                home, pipeline, pipeline_file, stack.environment(), Ports(home), _say
            )
            try:
                _say("starting the services")
                services.start()
                services.wait_until_ready()
                running = Bench(stack, services, settings, pipeline, size)
                _measure(running, against_sql=against_sql)
            finally:
                services.stop()
    finally:
        _forget_topics(home)
    result = summary(running.figures)
    write_atomically(home.folder / "last.json", json.dumps(result, indent=1) + "\n")
    return result


def _measure(running: Bench, *, against_sql: bool) -> None:
    running.warm_up()
    running.drain_backlog()
    for share in SHARES:
        running.sustain(share)
    running.check(against_sql=against_sql)
    running.stop_services()
    running.run_baseline()
    running.run_broker_alone()


def _forget_topics(home: Home) -> None:
    """Begin with an empty broker, and leave no gigabytes; the catalogue stays."""
    with sole_supervisor(home):
        reap_leftovers(home)
        shutil.rmtree(home.data / "kafka", ignore_errors=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="make bench", description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "--quick", action="store_true", help="under five minutes, a smaller backlog"
    )
    parser.add_argument("--verify", action="store_true", help="compare all outputs with SQL's")
    parser.add_argument("--pipeline", type=Path, default=CHECKOUT / "pipeline.yaml")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        result = bench(asked.pipeline, QUICK if asked.quick else FULL, against_sql=asked.verify)
    except DovetailError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped; nothing is left running", file=sys.stderr)
        return 130
    print(table(result))
    print()
    print(json.dumps(result), flush=True)
    return 0


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
