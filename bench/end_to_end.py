"""`make bench-e2e`: `auto`, what it is compared with, and the broker alone, in one run.

1. Start a stack of its own in `.dovetail/bench`, with the demo's catalogue of 1 M rows. The memory
   is 5 % of R's bytes: of all its rows as they are encoded for the output.
2. `auto`: warm up until the hit rate stops climbing, drain a backlog, then send at 1,000 and 20,000
   events/s and at 50 % and 80 % of the rate that it can do: how old are events when a reader has
   their output?
3. `auto` anew, its memory 32 MiB and events waiting: how long from its start until a reader has the
   first output? And after 20,000 events/s: what does each process have in memory?
4. The fused layout once more, R from snapshot files: warm up, drain the backlog.
5. Stop the services and give the same backlog to `lru_script.py` with an LRU of 60,000 rows, a part
   of it to the same script tuple by tuple, and all of it to nobody: a copy. At 1,000 and 20,000
   events/s: the script with a batch of whatever has arrived; at 20,000: a bare transactional copy.
6. Every fixed algorithm (QUICK: the usual three) on the same events, as in 2, without the rates.
7. Check each conservation sum (`--verify`: compare all outputs of `auto` with SQL's, too).

2 and 3 are for each of the layouts in `layouts.py`. CPU seconds are those of the drain, generator's
and reader's those of the last sustained rate. ingest_us, mapper_us and cache_us are their
processes' CPU over all events, disk_us over those that missed. Queries are the reads of the disk
phase, and those that the scripts count. The last line is JSON (docs/benchmark-stream.md).
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

from bench.baselines import Baselines
from bench.figures import AUTO, Figures, summary, table
from bench.layouts import FUSED, LAYOUTS, Measured
from bench.measure import MIB, Deadline
from bench.snapshot import write_snapshot_of
from bench.sustained import HALF, HIGH, LOW
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

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.layouts import Layout
    from dovetail.pipeline.spec import Pipeline

SHARES = (HALF, 0.8)
OF_R = 0.05
RESIDENT_AT = 32 * MIB
"""The budget with which the processes' memory is looked at: the one of `pipeline.yaml`."""
WAITING = 100
"""Events on the source when the start is measured; a single one might be bad or unmatched."""
NODES = 1
"""On two cores, which broker, database and all stages share, a second node adds processes only."""
USUAL = (Algorithm.SRJ, Algorithm.SSBJ, Algorithm.CACHEJOIN)


@dataclass(frozen=True)
class Plan:
    size: Size
    fixed: tuple[Algorithm, ...]
    scripted: int
    """Events of the backlog that the LRU script is given: its rate does not change with more."""
    one_by_one: int
    limit_s: float
    """When to give up. A quiet machine needs half of it."""


QUICK = Plan(Size(2_000_000, 250_000, 4, 12.0, 6.0, 6.0), USUAL, 500_000, 15_000, 1_500.0)
FULL = Plan(
    Size(4_000_000, 500_000, 8, 30.0, 20.0, 30.0),
    tuple(algorithm for algorithm in Algorithm if algorithm is not Algorithm.AUTO),
    2_000_000,
    100_000,
    7_200.0,
)

_STARTED = time.monotonic()


def say(line: str) -> None:
    print(f"{time.monotonic() - _STARTED:6.1f} s  {line}", flush=True)


def bench(
    pipeline_file: Path, plan: Plan, algorithms: tuple[Algorithm, ...], *, against_sql: bool
) -> dict[str, Any]:
    deadline = Deadline(plan.limit_s)
    with bench_stack(pipeline_file) as stack:
        running = Bench(stack, pipeline_file, plan, deadline)
        first, *_ = [running.auto(layout, against_sql=against_sql) for layout in LAYOUTS]
        running.over_snapshot(FUSED)
        running.baselines(first)
        for algorithm in algorithms:
            running.fixed(algorithm)
        result = summary(running.figures)
        write_atomically(stack.home.folder / "last.json", json.dumps(result, indent=1) + "\n")
    return result


class Bench:
    """The parts of a run, on a stack that is up."""

    def __init__(self, stack: Stack, pipeline_file: Path, plan: Plan, deadline: Deadline) -> None:
        relation_bytes = encoded_bytes(stack.database_url, load_pipeline(pipeline_file))
        self.figures = Figures(
            relation_bytes=relation_bytes,
            memory=int(OF_R * relation_bytes),
            resident_memory=RESIDENT_AT,
            nodes=NODES,
        )
        self._stack = stack
        self._pipeline_file = pipeline_file
        self._plan = plan
        self._deadline = deadline
        say(f"R is {relation_bytes:,} bytes, the memory {self.figures.memory:,}")

    def auto(self, layout: Layout, *, against_sql: bool) -> Trial:
        """Measure `auto` in a layout; gives the trial, ended, whose events are still there."""
        figures = self.figures
        with self._trial(AUTO, layout, figures.memory) as running:
            running.warm_up()
            drained = running.drain_backlog()
            for rate in (LOW, HIGH):
                running.sustain(rate)
            for share in SHARES:
                running.sustain(share * drained.rate, share)
            running.check(against_sql=against_sql)
        with self._trial(AUTO, layout, RESIDENT_AT, WAITING) as second:
            second.warm_up()
            second.sustain(HIGH)
            resident = second.resident_now()
            second.check()
        figures.layouts[layout.name] = Measured(
            drained, running.sustained, second.start_s, resident
        )
        figures.restarts += running.restarts + second.restarts
        if layout is LAYOUTS[0]:
            figures.pipelines[AUTO], figures.preload_rate = drained, running.preload_rate
            figures.resident, figures.held = running.resident, running.held
        return running

    def over_snapshot(self, layout: Layout) -> None:
        """The same backlog once more, R from files."""
        folder = self._stack.home.folder / "snapshots"
        with self._trial(AUTO, layout, self.figures.memory, snapshot=folder) as running:
            found = self.figures.layouts[layout.name].snapshot = running.measure()
            self.figures.restarts += running.restarts
            if not found.estimated:
                running.check()

    def baselines(self, of: Trial) -> None:
        figures, plan = self.figures, self._plan
        baselines = Baselines(self._stack, of, self._deadline, say)
        figures.lru = baselines.lru(plan.scripted)
        figures.one_by_one = baselines.one_by_one(plan.one_by_one)
        figures.broker_rate = baselines.broker_alone(plan.size.backlog)
        for rate in (LOW, HIGH):
            figures.lru_sustained.append(baselines.lru_at(rate, plan.size.sustained_s))
        figures.copy_sustained.append(baselines.copy_at(HIGH, plan.size.sustained_s))

    def fixed(self, algorithm: Algorithm) -> None:
        with self._trial(algorithm, LAYOUTS[0], self.figures.memory) as running:
            found = self.figures.pipelines[algorithm] = running.measure()
            self.figures.restarts += running.restarts
            if not found.estimated:
                running.check()

    @contextlib.contextmanager
    def _trial(
        self,
        algorithm: str,
        layout: Layout,
        memory: int,
        waiting: int = 0,
        snapshot: Path | None = None,
    ) -> Iterator[Trial]:
        """R comes from the database, or from a `snapshot` that is made in this folder."""
        label = f"{algorithm}-{layout.name}-{memory // MIB}mib{'-files' if snapshot else ''}"
        say(f"{algorithm}, {layout.name}, {memory / MIB:,.2f} MiB{', files' if snapshot else ''}")
        changes = {"algorithm": str(algorithm), "memory": memory // NODES, "nodes": NODES}
        changes |= layout.settings
        file = variant(self._pipeline_file, self._stack.home.folder, label, changes, snapshot)
        if snapshot:
            write_snapshot_of(self._stack.database_url, load_pipeline(file))
        size, deadline = self._plan.size, self._deadline
        try:
            with trial(self._stack, file, size, deadline, say, waiting=waiting) as running:
                yield running
        finally:
            if snapshot:
                shutil.rmtree(snapshot)


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
    parser.add_argument("--quick", action="store_true", help="about ten minutes, a smaller backlog")
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
    signal.signal(signal.SIGTERM, interrupt)
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


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
