"""`make soak`: the pipeline at full rate for some minutes; what must not grow does not.

1. Drain a backlog: that is the rate it can do. Then, for MINUTES, never let the source run dry:
   whenever less than a second and a half's worth of events waits there, send three seconds' worth.
2. Once a second, look at what every process has resident, what every stage says that it holds, and
   how many events wait or are in flight.
3. When all is drained, check the conservation sum.

It fails unless

    resident   of every service, from the fourth minute to the last, grows by at most 5 % and
               8 MiB, median against median
    lag        from the second minute on is never more than ten seconds' worth of events, half of
               which the sender makes
    budget     is kept at every heartbeat
    sum        is zero, and no service was started again

The last line is JSON; the samples are in `.dovetail/bench/soak.json`.
"""

from __future__ import annotations

import argparse
import json
import math
import signal
import statistics
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from bench.end_to_end import QUICK, bench_stack, say
from bench.measure import MIB, Deadline, running
from bench.trial import Trial, trial
from deploy.local.files import write_atomically
from deploy.local.home import CHECKOUT
from deploy.local.live import fetch
from dovetail.errors import DovetailError

if TYPE_CHECKING:
    from deploy.local.home import Home

LOW_S, PORTION_S = 1.5, 3.0
"""When to send more, and how much, in seconds of the rate that it can do."""
GROWTH, SLACK = 0.05, 8 * MIB
"""How much more a service may have resident in the last minute than in the fourth: until then it
meets its largest steps, whose memory the allocator keeps."""
LAG_S = 10.0
LOOK_EVERY_S = 1.0
_PAUSE_S = 0.1
MINUTE_S = 60.0
WARM_S = 3 * MINUTE_S
NOT_OURS = ("kafka", "postgres", "generator")
"""Shown, but not judged: a JVM takes its heap when it likes."""


@dataclass
class Sample:
    """How things stood so many seconds after the first event."""

    at_s: float
    resident: dict[str, int]
    held: dict[str, tuple[float, float]]
    """Bytes and budget, by process."""
    lag: int


@dataclass
class Soaked:
    rate: float
    """Events a second, drained from a backlog."""
    minutes: float
    taken: int = 0
    """Events that were taken in while it was kept busy."""
    samples: list[Sample] = field(default_factory=list)
    restarts: int = 0
    equation: str = ""
    conserved: bool = False

    def between(self, first_s: float, end_s: float) -> list[Sample]:
        return [sample for sample in self.samples if first_s <= sample.at_s < end_s]

    @property
    def lags(self) -> list[int]:
        """From the second minute on: the first is for warming up."""
        return [sample.lag for sample in self.between(MINUTE_S, self.minutes * MINUTE_S)]

    def resident_from(self, first_s: float) -> dict[str, int]:
        """What every process had in the minute that begins there, the median."""
        samples = self.between(first_s, first_s + MINUTE_S)
        names = {name for sample in samples for name in sample.resident}
        return {
            name: int(statistics.median(s.resident[name] for s in samples if name in s.resident))
            for name in sorted(names)
        }

    def problems(self) -> list[str]:
        early = self.resident_from(WARM_S)
        late = self.resident_from((self.minutes - 1) * MINUTE_S)
        found = [
            f"{name} grew from {early[name] / MIB:,.1f} to {late[name] / MIB:,.1f} MiB"
            for name in early
            if name in late
            and name not in NOT_OURS
            and late[name] > early[name] * (1 + GROWTH) + SLACK
        ]
        over = {
            name
            for sample in self.samples
            for name, (held, budget) in sample.held.items()
            if held > budget
        }
        found += [f"{name} held more than its budget" for name in sorted(over)]
        worst = max(self.lags, default=0)
        if worst > LAG_S * self.rate:
            found.append(f"{worst:,} events were behind, more than {LAG_S:.0f} s of them")
        if not self.conserved:
            found.append(f"the sum is off: {self.equation}")
        if self.restarts:
            found.append(f"services were started again {self.restarts} times")
        return found

    def report(self) -> dict[str, Any]:
        held: dict[str, tuple[float, float]] = {}
        for sample in self.samples:
            for name, (bytes_held, budget) in sample.held.items():
                held[name] = (max(bytes_held, held.get(name, (0.0, 0.0))[0]), budget)
        lags = self.lags
        return {
            "minutes": self.minutes,
            "drained_per_s": round(self.rate),
            "events_per_s": round(self.taken / (self.minutes * MINUTE_S)),
            "rss_mb_second_minute": _mib(self.resident_from(MINUTE_S)),
            "rss_mb_fourth_minute": _mib(self.resident_from(WARM_S)),
            "rss_mb_last_minute": _mib(self.resident_from((self.minutes - 1) * MINUTE_S)),
            "held_mb": {
                name: [round(most / MIB, 2), round(budget / MIB, 2)]
                for name, (most, budget) in sorted(held.items())
            },
            "lag_median": round(statistics.median(lags)) if lags else 0,
            "lag_most": max(lags, default=0),
            "conservation": self.equation,
            "restarts": self.restarts,
            "problems": self.problems(),
        }


def _mib(resident: dict[str, int]) -> dict[str, float]:
    return {name: round(size / MIB, 1) for name, size in resident.items()}


def soak(pipeline_file: Path, minutes: float) -> Soaked:
    deadline = Deadline(minutes * MINUTE_S + 600)
    with (
        bench_stack(pipeline_file) as stack,
        trial(stack, pipeline_file, QUICK.size, deadline, say) as run,
    ):
        run.warm_up()
        soaked = Soaked(run.drain_backlog().rate, minutes)
        say(f"kept busy for {minutes:g} minutes")
        _Watch(run, stack.home, soaked).keep_busy()
        end = run.drain(run.audit())
        soaked.equation = end.equation()
        soaked.conserved = end.drained and not end.problems
        soaked.restarts = run.restarts
        result = {**soaked.report(), "samples": [vars(sample) for sample in soaked.samples]}
        write_atomically(stack.home.folder / "soak.json", json.dumps(result) + "\n")
    return soaked


class _Watch:
    """Keeps the pipeline busy, and takes a sample about once a second."""

    def __init__(self, run: Trial, home: Home, soaked: Soaked) -> None:
        self._run = run
        self._home = home
        self._soaked = soaked
        self._began = time.monotonic()
        self._last = 0.0
        self._waiting = 0
        self._told = 0.0

    def keep_busy(self) -> None:
        before = self._run.audit().taken
        rate = self._soaked.rate
        while time.monotonic() - self._began < self._soaked.minutes * MINUTE_S:
            if self._waiting < LOW_S * rate:
                self._run.load.send(round(PORTION_S * rate), math.inf, self.look)
                self._last = 0.0
            else:
                time.sleep(_PAUSE_S)
            self.look()
        self._soaked.taken = self._run.audit().taken - before

    def look(self) -> None:
        self._run.tick()
        now = time.monotonic()
        if now - self._last < LOOK_EVERY_S:
            return
        self._last = now
        seen = self._run.audit()
        held = _held(self._run.control_url)
        self._waiting = self._run.waiting(seen)
        lag = self._waiting + seen.in_flight
        sample = Sample(now - self._began, _resident(self._home), held, lag)
        self._soaked.samples.append(sample)
        if now - self._told >= MINUTE_S / 2:
            self._told = now
            ours = sum(b for name, b in sample.resident.items() if name not in NOT_OURS)
            say(f"{lag:,} events behind, services have {ours / MIB:,.0f} MiB resident")


def _resident(home: Home) -> dict[str, int]:
    found = {}
    for name, pid in running(home).items():
        try:
            found[name] = int(psutil.Process(pid).memory_info().rss)
        except psutil.NoSuchProcess:
            continue
    return found


def _held(control_url: str) -> dict[str, tuple[float, float]]:
    stats = fetch(control_url)
    found = {}
    for service in stats["services"] if stats else ():
        figures = service["figures"]
        if "budget_bytes" in figures:
            name = f"{service['service']}-{service['node']}"
            found[name] = (figures["held_bytes"], figures["budget_bytes"])
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="make soak", description=(__doc__ or "").split("\n", maxsplit=1)[0]
    )
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--pipeline", type=Path, default=CHECKOUT / "pipeline.yaml")
    asked = parser.parse_args()
    if asked.minutes < 5:
        parser.error("give it five minutes at least: the fourth is compared with the last")
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        soaked = soak(asked.pipeline, asked.minutes)
    except DovetailError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped; nothing is left running", file=sys.stderr)
        return 130
    report = soaked.report()
    for problem in report["problems"]:
        print(f"problem: {problem}")
    print(json.dumps(report), flush=True)
    return 1 if report["problems"] else 0


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
