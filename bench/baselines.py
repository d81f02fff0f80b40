"""What the pipeline is compared with, on the source topic of a trial that has ended.

From its backlog: the script with its LRU, the same tuple by tuple, and nobody: a copy. At a steady
rate: the script with a batch of whatever has arrived, and a bare transactional copy.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

from bench.broker_alone import pass_through
from bench.children import child, wait_for_end, wait_for_line
from bench.figures import Scripted
from bench.measure import LOOK_EVERY_S, Meter
from bench.ranges import group_at
from bench.sustained import Sustained, Watched
from dovetail.errors import ConservationError
from dovetail.stream.topics import admin_of, ends, ensure_topics
from dovetail.topology import Topic

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.measure import Deadline
    from bench.trial import Trial
    from deploy.local.stack import Stack

LRU_ROWS = 60_000
LRU_WARM_UP = 300_000
ONE_BY_ONE_WARM_UP = 1_000
COPY_WARM_UP = 20_000


def before(places: list[int], events: int) -> tuple[int, list[int]]:
    """Where to begin, and how many events it is to these places, the same on each partition.

    As many as asked for, or as there are.
    """
    each = min(events // len(places), *places)
    return each * len(places), [place - each for place in places]


class Baselines:
    def __init__(
        self, stack: Stack, of: Trial, deadline: Deadline, say: Callable[[str], None]
    ) -> None:
        self._stack = stack
        self._of = of
        self._deadline = deadline
        self._say = say
        self._admin = admin_of(of.settings)
        self._meter: Meter | None = None
        self._looked_at = 0.0

    # ── from a backlog ───────────────────────────────────────────────────────────────────

    def lru(self, events: int) -> Scripted:
        return self._script("lru", LRU_ROWS, LRU_WARM_UP, events)

    def one_by_one(self, events: int) -> Scripted:
        return self._script("tuple", 0, ONE_BY_ONE_WARM_UP, events)

    def _script(self, name: str, lru_rows: int, warm: int, events: int) -> Scripted:
        warm, starts = before(self._of.starts, warm)
        target = self._target(f"bench.{name}")
        self._say(f"{name}: {events:,} events of the same backlog, an LRU of {lru_rows:,} rows")
        arguments = [self._of.topology.source.name, target.name, json.dumps(starts)]
        arguments += [str(warm), str(events), str(lru_rows)]
        home, environment = self._stack.home, self._stack.environment()
        with child(home, name, "bench.lru_script", arguments, environment) as script:
            wait_for_line(script, "warm", self._tick)
            meter = self._meter = Meter(home)
            result: dict[str, float] = json.loads(wait_for_line(script, "{", self._tick))
            meter.sample()
            wait_for_end(script, self._tick)
        cpu_s = {**meter.cpu_s(), name: result["cpu_s"]}
        self._say(f"{name} does {result['events_per_s']:,.0f} events/s")
        return Scripted(result, cpu_s, meter.others_share(), meter.resident.get(name, 0))

    def broker_alone(self, events: int) -> float:
        rate = pass_through(
            self._of.settings,
            self._of.topology.source,
            self._target("bench.copy"),
            self._of.starts,
            events,
            self._deadline.check,
        )
        self._say(f"the broker alone does {rate:,.0f} events/s")
        return rate

    # ── at a steady rate ─────────────────────────────────────────────────────────────────

    def lru_at(self, rate: float, seconds: float) -> Sustained:
        events = round(rate * seconds)
        warm, starts = before(self._ends(), LRU_WARM_UP)
        arguments = [json.dumps(starts), str(warm), str(events), str(LRU_ROWS), "--arrived"]
        return self._sustain("lru", "bench.lru_script", arguments, rate, events)

    def copy_at(self, rate: float, seconds: float) -> Sustained:
        events = round(rate * seconds)
        warm, starts = before(self._ends(), COPY_WARM_UP)
        group = group_at(self._of.settings, self._of.topology.source.name, starts)
        arguments = [group, str(warm), str(events)]
        return self._sustain("copy", "bench.transactional_copy", arguments, rate, events)

    def _sustain(
        self, name: str, module: str, arguments: list[str], rate: float, events: int
    ) -> Sustained:
        """Have a contender warm up on what is there, then send it events at one rate."""
        source, target = self._of.topology.source, self._target(f"bench.{name}-at-rate")
        self._say(f"{name}: {rate:,.0f} events/s, a batch of what has arrived")
        home, environment = self._stack.home, self._stack.environment()
        arguments = [source.name, target.name, *arguments]
        with child(home, name, module, arguments, environment) as contender:
            wait_for_line(contender, "warm", self._tick)
            watched = Watched(self._stack, self._of.settings, source, target, self._tick)
            with watched.reading():
                meter = self._meter = Meter(home)
                sent = self._of.load.send(events, rate, watched.from_first(meter, self._tick))
                result = json.loads(wait_for_line(contender, "{", self._tick))
                meter.sample()
                others = meter.others_share()
            wait_for_end(contender, self._tick)
        cpu_s = {**meter.cpu_s(), name: result["cpu_s"]}
        latency = watched.latency(sent, self._deadline.check)
        if latency.outputs != result.get("joined", latency.outputs):
            raise ConservationError(
                f"{name} has sent {result['joined']:,} outputs, but {latency.outputs:,} arrived"
            )
        self._say(f"latency p50 {latency.p50_ms:,.0f} ms, p99 {latency.p99_ms:,.0f} ms")
        return Sustained(rate, None, sent, latency, cpu_s, others)

    def _ends(self) -> list[int]:
        return ends(self._admin, self._of.topology.source)

    def _target(self, name: str) -> Topic:
        target = Topic(name, self._of.topology.enriched.partitions)
        ensure_topics(self._of.settings, [target])
        return target

    def _tick(self) -> None:
        self._deadline.check()
        self._stack.check()
        if self._meter and time.monotonic() - self._looked_at >= LOOK_EVERY_S:
            self._looked_at = time.monotonic()
            self._meter.sample()
