"""`make bench-spark`: `enrich` against Spark's own joins, on the same events and rows.

One broker; the events of the demo (Zipf, skew 1) in one topic; R as Parquet for Spark's joins and
as a snapshot for ours, both on this disk. Each contender has a process of its own, the same heap,
and writes JSON to a topic: in small batches, then in large ones. Each is warmed up for the same
time at either size, for a JVM compiles what it runs for a minute or more. Rate: events of the
batches behind that, by the time from trigger to commit that Spark itself tells. Memory: the peak of
JVM and Python together, shared pages counted once (PSS).
Behind them the job `frequency`, by the number of events (frequency.py).

The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from bench import frequency
from bench.peak import Peak
from bench.spark_data import pipeline_spec, prepare
from deploy.local.home import CHECKOUT, Home
from deploy.local.stack import Stack
from dovetail.demo.generate import MAX_RATE, GenerateSettings, generate
from dovetail.pipeline.load import load_pipeline
from dovetail.settings import Settings
from dovetail.stream.topics import admin_of, ensure_topics
from dovetail.topology import Topology

if TYPE_CHECKING:
    from collections.abc import Iterator

MIB = 1 << 20
MEMORY, NODES = "64MiB", 2
HEAP = "2g"
NAME = "bench-spark"
BY_HAND = ("tuned", "cached")


@dataclass(frozen=True)
class Plan:
    rows: int
    events: int
    """Enough for the fastest; else the last batches count, warm or not."""
    warm_s: float
    """Behind the first batch, until batches count."""
    batches: dict[int, int]
    """How many count, by their size."""
    contenders: tuple[str, ...]
    counted: tuple[int, ...]
    """Events of the job `frequency`, over as many rows."""


SMALL, LARGE = 50_000, 500_000
FULL = Plan(
    rows=5_000_000,
    events=12_000_000,
    warm_s=40,
    batches={SMALL: 8, LARGE: 4},
    contenders=("enrich", *BY_HAND, "default"),
    counted=(5_000_000, 20_000_000),
)
QUICK = Plan(
    rows=500_000,
    events=2_000_000,
    warm_s=0,
    batches={SMALL: 4, LARGE: 1},
    contenders=("enrich", "tuned", "default"),
    counted=(500_000,),
)


@dataclass(frozen=True)
class Outcome:
    contender: str
    batch: int
    rate: float
    seconds: float
    """Of a batch, the median."""
    memory: int
    """Of the contender, whatever the batch."""
    told: list[dict[str, Any]]

    def __str__(self) -> str:
        return (
            f"{self.contender:<8} batches of {self.batch:>7,}: {self.rate:>9,.0f} events/s, "
            f"{self.seconds:6.2f} s a batch, {self.memory / MIB:,.0f} MiB at most"
        )


def main() -> int:
    parser = argparse.ArgumentParser(prog="make bench-spark", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rows, batches, contenders")
    parser.add_argument("--only", nargs="+", help="these contenders alone")
    parser.add_argument("--batch", type=int, choices=(SMALL, LARGE), help="that size alone")
    parser.add_argument("--rows", type=int, help="of R")
    args = parser.parse_args()
    plan = QUICK if args.quick else FULL
    plan = replace(plan, rows=args.rows or plan.rows)
    if args.only:
        plan = replace(plan, contenders=tuple(args.only))
    if args.batch:
        plan = replace(plan, batches={args.batch: plan.batches[args.batch]})
    home = Home(CHECKOUT / ".dovetail" / "bench-spark", CHECKOUT / ".dovetail")
    environ = {**os.environ, "KAFKA_HEAP": "512m"}
    stack = Stack(home, report=print, environ=environ, usual_ports={})
    folder = home.folder / "data"
    print(f"making {plan.rows:,} rows", flush=True)
    spec = pipeline_spec(NAME, folder / f"snapshots-{plan.rows}", MEMORY, NODES)
    parquet, _ = prepare(folder, plan.rows, spec)
    with stack:
        file = Path(tempfile.mkdtemp()) / "pipeline.yaml"
        file.write_text(yaml.safe_dump(spec))
        outcomes = _contend(stack, plan, file, parquet, args)
        counted = [] if args.only else frequency.measure(stack, plan.counted, plan.rows)
    print(*counted, sep="\n", flush=True)
    _conclude(outcomes, counted)
    return 0


def _contend(
    stack: Stack, plan: Plan, file: Path, parquet: Path, args: argparse.Namespace
) -> dict[tuple[str, int], Outcome]:
    settings = Settings(stack.bootstrap, stack.database_url, file)
    topology = Topology(load_pipeline(file, {}))
    _wipe(settings, topology)
    ensure_topics(settings, topology.topics())
    load = GenerateSettings(
        rate=MAX_RATE, skew=1.0, count=plan.events, no_match=0.0, bad=0.0, keys=plan.rows
    )
    print(f"sending {plan.events:,} events", flush=True)
    generate(load, settings.client(), topology.source.name, lambda _: None, threading.Event())
    outcomes = {}
    for contender in plan.contenders:
        _wipe(settings, topology, but=topology.source.name)
        for outcome in _run(stack, contender, file, parquet, plan):
            outcomes[contender, outcome.batch] = outcome
            print(outcome, flush=True)
            if args.only:
                print(*outcome.told, sep="\n", flush=True)
    return outcomes


def _wipe(settings: Settings, topology: Topology, but: str = "") -> None:
    """Begin with empty topics, and with a source that nobody has read."""
    admin = admin_of(settings)
    there = set(admin.list_topics(timeout=30).topics)
    own = [one.name for one in topology.topics() if one.name in there and one.name != but]
    for deletion in admin.delete_topics(own).values() if own else ():
        deletion.result(30)
    groups = [topology.group("enrich")]
    for answer in admin.delete_consumer_groups(groups).values():
        answer.exception()
    time.sleep(1)
    if but:
        ensure_topics(settings, topology.topics())


def _run(stack: Stack, contender: str, file: Path, parquet: Path, plan: Plan) -> Iterator[Outcome]:
    command = [sys.executable, "-m", "bench.spark_run", contender, str(file), str(parquet)]
    command += ["--heats", *(f"{size}:{counted}" for size, counted in plan.batches.items())]
    command += ["--warm", str(plan.warm_s), "--events", str(plan.events)]
    environment = {
        **os.environ,
        **stack.environment(),
        "SPARK_DRIVER_MEMORY": HEAP,
        "NUMBA_CACHE_DIR": os.environ.get("NUMBA_CACHE_DIR", str(stack.home.cache / "numba")),
    }
    log = stack.home.logs / f"{contender}.log"
    with log.open("wb") as errors:
        child = subprocess.Popen(
            command, env=environment, cwd=CHECKOUT, stdout=subprocess.PIPE, stderr=errors
        )
        peak = Peak(child.pid)
        try:
            output, _ = child.communicate(timeout=1200)
        finally:
            child.kill()
            peak.stop()
    if child.returncode:
        raise SystemExit(f"{contender} failed: see {log}")
    told = [json.loads(line) for line in output.decode().splitlines() if line.startswith("{")]
    for size, counted in plan.batches.items():
        of_size = [one for one in told if one["batch"] == size]
        rows = [one["rows"] for one in of_size[-counted:]]
        seconds = [one["seconds"] for one in of_size[-counted:]]
        rate = sum(rows) / sum(seconds)
        yield Outcome(contender, size, rate, statistics.median(seconds), peak.most, of_size)


def _conclude(outcomes: dict[tuple[str, int], Outcome], counted: list[frequency.Outcome]) -> None:
    def over(other: str, batch: int) -> float | None:
        ours, theirs = outcomes.get(("enrich", batch)), outcomes.get((other, batch))
        return round(ours.rate / theirs.rate, 2) if ours and theirs else None

    tuned = [
        ratio
        for batch in (SMALL, LARGE)
        for other in BY_HAND
        if (ratio := over(other, batch)) is not None
    ]
    memory = {
        name: max((one.memory for key, one in outcomes.items() if key[0] == name), default=0)
        for name in ("enrich", "default")
    }
    whole = all(memory.values())
    print(
        json.dumps(
            {
                "enrich_over_default_50k": over("default", SMALL),
                "enrich_over_default_500k": over("default", LARGE),
                "enrich_over_tuned": min(tuned, default=None),
                "memory_over_default": round(memory["enrich"] / memory["default"], 2)
                if whole
                else None,
                "frequency_s_per_million": counted[-1].per_million if counted else None,
            }
        )
    )


if __name__ == "__main__":
    sys.exit(main())
