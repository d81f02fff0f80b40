"""`make bench-e2e`: `auto`, what it is compared with, and the broker alone, in one run.

1. Start a stack of its own in `.dovetail/bench`, with the demo's catalogue of 1 M rows. The memory
   is 5 % of R's bytes: of all its rows as they are encoded for the output.
2. `auto`: warm up until the hit rate stops climbing, drain a backlog, then send at 50 % and 80 % of
   that rate: how old are events when a reader has their output?
3. Stop the services and give the same backlog to `lru_script.py` with an LRU of 60,000 rows, a part
   of it to the same script tuple by tuple, and all of it to nobody: a copy.
4. Every fixed algorithm (QUICK: the usual three) on the same events, as in 2, without the rates.
5. Check each conservation sum (`--verify`: compare all outputs of `auto` with SQL's, too).

CPU seconds are those of the drain, generator's and reader's those of the last sustained rate.
ingest_us, mapper_us and cache_us are their processes' CPU over all events, disk_us over those that
missed. Queries are the reads of the disk phase, and those that the scripts count. The last line is
JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql

from bench.broker_alone import pass_through
from bench.children import child, wait_for_end, wait_for_line
from bench.figures import AUTO, Figures, Scripted, summary, table
from bench.measure import Deadline, Meter
from bench.trial import Size, Trial, trial, variant
from deploy.local.files import write_atomically
from deploy.local.home import CHECKOUT, Home
from deploy.local.kernels import compiling
from deploy.local.processes import reap_leftovers, sole_supervisor
from deploy.local.stack import Stack
from dovetail.demo.catalogue import load_catalogue
from dovetail.errors import DovetailError
from dovetail.master.table.json_rows import JSON_SETTINGS, json_row
from dovetail.pipeline.load import load_pipeline
from dovetail.pipeline.spec import Algorithm
from dovetail.stream.topics import ensure_topics
from dovetail.topology import Topic

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dovetail.pipeline.spec import Pipeline

SHARES = (0.5, 0.8)
OF_R = 0.05
NODES = 1
"""On two cores, which broker, database and all stages share, a second node adds processes only."""
USUAL = (Algorithm.SRJ, Algorithm.SSBJ, Algorithm.CACHEJOIN)
LRU_ROWS = 60_000
SCRIPT_WARM_UP = 300_000


@dataclass(frozen=True)
class Plan:
    size: Size
    fixed: tuple[Algorithm, ...]
    scripted: int
    """Events of the backlog that the LRU script is given: its rate does not change with more."""
    one_by_one: int
    limit_s: float
    """When to give up. A quiet machine needs half of it."""


QUICK = Plan(Size(2_000_000, 250_000, 4, 12.0, 6.0, 6.0), USUAL, 500_000, 15_000, 560.0)
FULL = Plan(
    Size(4_000_000, 500_000, 8, 30.0, 20.0, 30.0),
    tuple(algorithm for algorithm in Algorithm if algorithm is not Algorithm.AUTO),
    2_000_000,
    100_000,
    3_600.0,
)

_STARTED = time.monotonic()


def say(line: str) -> None:
    print(f"{time.monotonic() - _STARTED:6.1f} s  {line}", flush=True)


def bench(
    pipeline_file: Path, plan: Plan, algorithms: tuple[Algorithm, ...], *, against_sql: bool
) -> dict[str, Any]:
    figures = Figures(nodes=NODES)
    deadline = Deadline(plan.limit_s)
    with bench_stack(pipeline_file) as stack:
        figures.relation_bytes = encoded_bytes(stack.database_url, load_pipeline(pipeline_file))
        figures.memory = int(OF_R * figures.relation_bytes)
        say(f"R is {figures.relation_bytes:,} bytes, the memory {figures.memory:,}")
        folder = stack.home.folder

        def of(algorithm: str) -> Path:
            return variant(pipeline_file, folder, algorithm, figures.memory, NODES)

        say("auto")
        with trial(stack, of(AUTO), plan.size, deadline, say) as running:
            _measure_auto(running, figures, against_sql=against_sql)
        scripts = Scripts(stack, running, deadline)
        figures.lru = scripts.run(LRU_ROWS, SCRIPT_WARM_UP, plan.scripted)
        figures.one_by_one = scripts.run(0, 1_000, plan.one_by_one)
        figures.broker_rate = scripts.broker_alone(plan.size.backlog)
        for algorithm in algorithms:
            say(algorithm)
            with trial(stack, of(algorithm), plan.size, deadline, say) as running:
                found = figures.pipelines[algorithm] = running.measure()
                figures.restarts += running.restarts
                if not found.estimated:
                    running.check()
        result = summary(figures)
        write_atomically(folder / "last.json", json.dumps(result, indent=1) + "\n")
    return result


def _measure_auto(running: Trial, figures: Figures, *, against_sql: bool) -> None:
    running.warm_up()
    drained = figures.pipelines[AUTO] = running.drain_backlog()
    for share in SHARES:
        running.sustain(share, drained.rate)
    running.check(against_sql=against_sql)
    figures.sustained, figures.preload_rate = running.sustained, running.preload_rate
    figures.resident, figures.held = running.resident, running.held
    figures.restarts += running.restarts


class Scripts:
    """What the pipeline is compared with, on the source topic of a trial that has ended."""

    def __init__(self, stack: Stack, of: Trial, deadline: Deadline) -> None:
        self._stack = stack
        self._of = of
        self._deadline = deadline

    def run(self, lru_rows: int, warm: int, events: int) -> Scripted:
        source = self._of.topology.source
        name = "lru" if lru_rows else "tuple"
        target = self._target(f"bench.{name}")
        warm = min(warm, sum(self._of.starts))
        starts = [at - warm // source.partitions for at in self._of.starts]
        say(f"{name}: {events:,} events of the same backlog, an LRU of {lru_rows:,} rows")
        arguments = [source.name, target.name, json.dumps(starts), str(warm), str(events)]
        arguments.append(str(lru_rows))
        home, environment = self._stack.home, self._stack.environment()
        with child(home, name, "bench.lru_script", arguments, environment) as script:
            wait_for_line(script, "warm", self._tick)
            meter = self._meter = Meter(home)
            result: dict[str, float] = json.loads(wait_for_line(script, "{", self._tick))
            meter.sample()
            wait_for_end(script, self._tick)
        cpu_s = {**meter.cpu_s(), name: result["cpu_s"]}
        say(f"{name} does {result['events_per_s']:,.0f} events/s")
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
        say(f"the broker alone does {rate:,.0f} events/s")
        return rate

    def _target(self, name: str) -> Topic:
        target = Topic(name, self._of.topology.enriched.partitions)
        ensure_topics(self._of.settings, [target])
        return target

    _meter: Meter | None = None

    def _tick(self) -> None:
        self._deadline.check()
        self._stack.check()
        if self._meter:
            self._meter.sample()


@contextlib.contextmanager
def bench_stack(pipeline_file: Path) -> Iterator[Stack]:
    """Run a stack with the demo's catalogue and no topics, and leave no gigabytes behind.

    Always one of its own: the topics of a running pipeline are not for a benchmark. The pipeline's
    kernels are compiled when it is there: no service has to.
    """
    main_home = Home.of_checkout()
    home = Home(main_home.folder / "bench", downloads=main_home.folder)
    environ = {
        name: value
        for name, value in os.environ.items()
        if name not in ("KAFKA_BOOTSTRAP", "DATABASE_URL")
    }
    _forget_topics(home)
    try:
        with (
            compiling(home, pipeline_file, say) as compiled,
            Stack(home, environ=environ, report=say) as stack,
        ):
            load_catalogue(stack.database_url, report=say)
            compiled()
            yield stack
    finally:
        _forget_topics(home)


def encoded_bytes(database_url: str, pipeline: Pipeline) -> int:
    """R's bytes: of all its rows, as they are encoded for the output."""
    question = sql.SQL("SELECT sum(octet_length({})) FROM {} r").format(
        json_row(pipeline.master.columns), sql.Identifier(*pipeline.master.table.split("."))
    )
    with psycopg.connect(database_url, autocommit=True) as connection:
        for setting in JSON_SETTINGS:
            connection.execute(setting)
        row = connection.execute(question).fetchone()
    return int(row[0]) if row and row[0] else 0


def _forget_topics(home: Home) -> None:
    """Begin with an empty broker; the catalogue stays."""
    with sole_supervisor(home):
        reap_leftovers(home)
        shutil.rmtree(home.data / "kafka", ignore_errors=True)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="make bench-e2e", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument(
        "--quick", action="store_true", help="under five minutes, a smaller backlog"
    )
    parser.add_argument("--verify", action="store_true", help="compare auto's outputs with SQL's")
    parser.add_argument("--pipeline", type=Path, default=CHECKOUT / "pipeline.yaml")
    parser.add_argument("--against", help="fixed algorithms, by commas; default: as QUICK says")
    asked = parser.parse_args()
    plan = QUICK if asked.quick else FULL
    algorithms = (
        plan.fixed
        if asked.against is None
        else tuple(Algorithm(name) for name in asked.against.split(",") if name)
    )
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        result = bench(asked.pipeline, plan, algorithms, against_sql=asked.verify)
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
