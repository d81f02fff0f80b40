"""A run: load, faults, drain, and then the output has to be SQL's.

1. Start a broker, a PostgreSQL and the pipeline of their own; load the master data.
2. Send events at a bounded rate. When the first are answered, the schedule begins.
3. At its end make good what is still down, and stop the load.
4. Drain, and compare: output with SQL's, the conservation sum with zero.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
import traceback
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import psycopg
import yaml

from deploy.local.files import write_atomically
from deploy.local.home import CHECKOUT, Home
from deploy.local.kernels import compiling
from deploy.local.processes import reap_leftovers, sole_supervisor
from deploy.local.stack import Stack
from dovetail.demo.catalogue import load_catalogue
from dovetail.errors import DovetailError, StackError
from dovetail.testing.pipeline import RunningPipeline
from tests.chaos.flow import Flow
from tests.chaos.load import Load
from tests.chaos.report import Outcome
from tests.chaos.saboteur import Saboteur
from tests.chaos.schedule import NODES, Runner, lead_s, schedule

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from dovetail.audit import Audit
    from tests.chaos.schedule import Fault, Kind

DOVETAIL = CHECKOUT / ".dovetail"
KEYS = 50_000
RATE = 3_000.0
_STUCK_S = 150.0
"""A lost node's transaction holds its readers up until the broker aborts it, after a minute."""
_OFF_S = 10.0
"""A sum that is off for so long is off."""
_LOGS_KEPT = 200

# A seventh of the keys has two rows: an answer that came twice could hide behind one row.
_MASTER = """
CREATE TABLE offers AS
    SELECT product_id, name, vendor, price, updated_at FROM products
    UNION ALL
    SELECT product_id, name, vendor || ' (second)', price + 1, updated_at FROM products
    WHERE product_id % 7 = 0;
CREATE INDEX ON offers (product_id);
ANALYZE offers;
"""


RUNNER = Runner(os.environ.get("DOVETAIL_TESTED_LAYOUT") or Runner.SPLIT)
"""Unless a run says otherwise; tests/recovery and tests/upgrade run this pipeline, too."""


def spec(algorithm: str, runner: Runner = RUNNER) -> dict[str, Any]:
    # The default is not written: the release that upgrades begin with knows no layouts.
    by = {Runner.SPLIT: {}, Runner.FUSED: {"layout": "fused"}, Runner.SPARK: {"engine": "spark"}}
    return {
        "name": "chaos",
        **by[runner],
        "source": {
            "partitions": 4,
            "fields": {
                "sale_id": "int",
                "product_id": "int",
                "customer_id": "int?",
                "quantity": "int",
                "amount": "decimal",
                "channel": "text",
                "sold_at": "timestamp",
            },
        },
        "key": "product_id",
        "master": {"table": "offers", "columns": ["name", "vendor", "price", "updated_at"]},
        "algorithm": algorithm,
        "memory": "16MiB",
        "slots": 8,
        "nodes": NODES,
    }


@dataclass(frozen=True)
class Run:
    seed: int
    seconds: float
    algorithm: str = "srj"
    rate: float = RATE
    runner: Runner = RUNNER
    large: tuple[Kind, ...] | None = None
    """The kinds of large faults, and how many kills; None takes as many as the time is long."""
    kills: int | None = None

    @property
    def name(self) -> str:
        return f"seed {self.seed}, {self.seconds:g} s, {self.algorithm}, {self.runner}"

    @property
    def command(self) -> str:
        if self.large is not None:
            return "make test TESTS='-k chaos'"
        minutes = f"{self.seconds / 60:g}"
        by = "ENGINE" if self.runner is Runner.SPARK else "LAYOUT"
        what = f"ALGORITHM={self.algorithm} {by}={self.runner}"
        return f"make chaos SEED={self.seed} MINUTES={minutes} {what}"

    @property
    def faults(self) -> list[Fault]:
        return schedule(self.seed, self.seconds, self.large, self.kills, self.runner)

    @property
    def lasts_s(self) -> float:
        """With the single kills, which a run has whose kills are not given."""
        return self.seconds + (lead_s(self.runner) if self.kills is None else 0.0)


def run(
    wanted: Run,
    folder: Path,
    report: Callable[[str], None] = print,
    environ: Mapping[str, str] = os.environ,
) -> Outcome:
    """Do a run in a folder that is emptied before; whatever goes wrong is in the outcome."""
    home = Home(folder, DOVETAIL, logs_kept=_LOGS_KEPT)
    _empty(home)
    outcome = Outcome(wanted.name, wanted.command, folder)
    try:
        _run(wanted, home, outcome, report, environ)
    except DovetailError as error:
        outcome.problems.append(str(error))
    except Exception:  # noqa: BLE001 - the run's own defect is told like any other, with its report
        outcome.problems.append(f"the run itself broke:\n{traceback.format_exc()}")
    text = "\n".join(outcome.lines()) + "\n"
    write_atomically(folder / "report.txt", text, durable=False)
    if outcome.passed:
        shutil.rmtree(home.data, ignore_errors=True)
    return outcome


def _empty(home: Home) -> None:
    with sole_supervisor(home):
        reap_leftovers(home)
    shutil.rmtree(home.folder)


def _run(
    wanted: Run,
    home: Home,
    outcome: Outcome,
    report: Callable[[str], None],
    environ: Mapping[str, str],
) -> None:
    own = {n: v for n, v in environ.items() if n not in ("KAFKA_BOOTSTRAP", "DATABASE_URL")}
    content = spec(wanted.algorithm, wanted.runner)
    file = home.run / "kernels.yaml"
    file.write_text(yaml.safe_dump(content))
    with (
        compiling(home, file, report) as wait_for_kernels,
        Stack(home, environ=own, usual_ports={}, report=report) as stack,
    ):
        load_master(stack.database_url)
        wait_for_kernels()
        # The stack's processes have their records in its own folder.
        services = Home(home.folder / "services", DOVETAIL, _LOGS_KEPT)
        pipeline = RunningPipeline(services, stack.bootstrap, stack.database_url, content)
        with pipeline:
            _suffer(wanted, stack, pipeline, outcome, report)


def load_master(database_url: str) -> None:
    """Make the table `offers`, of `KEYS` products."""
    load_catalogue(database_url, rows=KEYS, report=lambda _: None)
    with psycopg.connect(database_url) as connection:
        connection.execute(_MASTER)


def _suffer(
    wanted: Run,
    stack: Stack,
    pipeline: RunningPipeline,
    outcome: Outcome,
    report: Callable[[str], None],
) -> None:
    load = Load(pipeline, wanted.rate, wanted.seed, KEYS)
    began = time.monotonic()

    def clock() -> float:
        return time.monotonic() - began

    with contextlib.ExitStack() as exits:
        load.start()
        exits.callback(load.stop)
        outcome.flow = flow = Flow(pipeline, clock)
        flow.start()
        exits.callback(flow.stop)
        _wait(pipeline, flow, clock, lambda seen: seen.enriched > 0, "nothing was answered")
        first = clock()
        faults = [replace(fault, at=fault.at + first) for fault in wanted.faults]
        saboteur = Saboteur(stack, pipeline, faults, clock, lambda: load.sent, report)
        exits.callback(saboteur.make_good)
        outcome.timeline, outcome.kills = saboteur.timeline, saboteur.kills
        outcome.ends = pipeline.reports
        while clock() < first + wanted.lasts_s or not saboteur.is_done:
            saboteur.act()
            load.check()
            pipeline.pause(0.02)
        saboteur.make_good()
        load.stop()
        load.check()
        outcome.sent = load.sent
        report(f"{clock():7.1f} s  the load has ended, {load.sent:,} events; draining")
        outcome.audit = _drain(pipeline, flow, clock)
        flow.stop()
        outcome.zombies = [_fate(zombie) for zombie in saboteur.zombies]
        report(f"{clock():7.1f} s  drained; comparing with SQL")
        outcome.verdict = pipeline.verdict()
        outcome.problems += _problems(outcome)


def _drain(pipeline: RunningPipeline, flow: Flow, clock: Callable[[], float]) -> Audit:
    """Wait until all is answered, or the sum is off and stays so."""
    off_since: float | None = None

    def settled(seen: Audit) -> bool:
        nonlocal off_since
        if not seen.off:
            off_since = None
            return seen.drained
        off_since = clock() if off_since is None else off_since
        return clock() - off_since > _OFF_S

    return _wait(pipeline, flow, clock, settled, "not all is answered")


def _wait(
    pipeline: RunningPipeline,
    flow: Flow,
    clock: Callable[[], float],
    satisfied: Callable[[Audit], bool],
    otherwise: str,
) -> Audit:
    """Supervise until a look of after now is as wanted, for as long as anything moves."""
    asked = moved = clock()
    before: object = None
    while True:
        pipeline.pause(0.1)
        at, seen = flow.latest or (0.0, None)
        if seen is not None and at > asked:
            if satisfied(seen):
                return seen
            if (seen.stages, seen.waiting) != before:
                moved, before = clock(), (seen.stages, seen.waiting)
        if clock() - moved > _STUCK_S:
            why = pipeline.why_stuck(seen) if seen else "the broker does not answer"
            raise StackError(f"{otherwise}, and nothing has moved for {_STUCK_S:.0f} s: {why}")


def _fate(zombie: Any) -> str:
    code = zombie.process.exit_code()
    what = "still runs" if code is None else f"ended by itself, exit code {code}"
    return f"{zombie.process.name}: {what} ({zombie.process.log})"


def _problems(outcome: Outcome) -> list[str]:
    audit, verdict = outcome.audit, outcome.verdict
    assert audit is not None
    assert verdict is not None
    problems = [f"the sum is off: {problem}" for problem in audit.problems]
    problems += [f"not SQL's output: {difference}" for difference in verdict.differences]
    if not audit.taken == verdict.events == outcome.sent:
        problems.append(
            f"{outcome.sent:,} events were sent, {verdict.events:,} are on the topic, "
            f"{audit.taken:,} were taken in"
        )
    if not audit.outputs == verdict.outputs == verdict.expected:
        problems.append(
            f"the ledgers count {audit.outputs:,} outputs, the topic has {verdict.outputs:,}, "
            f"SQL gives {verdict.expected:,}"
        )
    if audit.in_flight or audit.waiting:
        problems.append(f"{audit.in_flight:,} events in flight, {audit.waiting:,} waiting")
    if not verdict.outputs:
        problems.append("there is no output at all: nothing was tested")
    return problems
