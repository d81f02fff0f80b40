"""What control's `/metrics` shows of a pipeline: the ledgers' sum, who is heard, runs and plans.

Every figure names its pipeline. What comes out of the database is left out while that is away.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from prometheus_client.registry import Collector

from dovetail.errors import Unavailable
from dovetail.service import declared
from dovetail.service.metrics import outcomes_of, split
from dovetail.stream import ledger
from dovetail.topology import INGEST, MAPPER
from services.spark.plan_tables import PlanTables
from services.spark.runs import STATES, last_runs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.core import Metric
    from sqlalchemy import Engine

    from dovetail.audit import Audit
    from services.control.monitor import Monitor

log = logging.getLogger(__name__)

_FORGOTTEN_S = 3600.0
"""A process that was silent for so long was taken away on purpose, and is not told of any more."""
_REASONS = {ledger.DEAD: INGEST, ledger.SHED: MAPPER}
"""The outcomes that have reasons, and the stage that knows all of these."""
_COMPLETED = (ledger.SHED, ledger.UNMATCHED, ledger.PARKED)
"""What backfill takes on."""


class PipelineCollector(Collector):
    """The pipeline's exact totals, from the ledgers, and the processes that were heard."""

    def __init__(self, monitor: Monitor) -> None:
        self._monitor = monitor

    def collect(self) -> Iterator[Metric]:
        pipeline = self._monitor.topology.pipeline
        yield declared.PIPELINE_NODES.family([((pipeline.name,), pipeline.nodes)])
        yield from self._members(pipeline.name)
        if (seen := self._monitor.last_audit) is not None:
            yield from _totals(pipeline.name, seen)
            yield declared.PIPELINE_BACKLOG.family(
                ((pipeline.name, stage.service), seen.backlogs[stage.keeper])
                for stage in self._monitor.topology.stages
            )

    def _members(self, pipeline: str) -> Iterator[Metric]:
        heard = self._monitor.heard()
        told = {name: one for name, one in heard.items() if one.silence_s < _FORGOTTEN_S}
        yield declared.MEMBER_UP.family(
            ((pipeline, name), float(not one.gone)) for name, one in told.items()
        )
        yield declared.MEMBER_READY.family(
            ((pipeline, name), float(one.ready)) for name, one in told.items()
        )
        yield declared.MEMBER_SILENCE.family(
            ((pipeline, name), one.silence_s) for name, one in told.items()
        )


def _totals(pipeline: str, seen: Audit) -> Iterator[Metric]:
    of = (pipeline,)
    yield declared.PIPELINE_TAKEN.family([(of, seen.taken)])
    yield declared.PIPELINE_EVENTS.family(
        ((pipeline, *split(outcome)), count) for outcome, count in _outcomes(seen)
    )
    yield declared.PIPELINE_BACKFILLED.family(
        ((pipeline, outcome), seen.late[ledger.of(outcome)]) for outcome in _COMPLETED
    )
    yield declared.PIPELINE_OUTPUTS.family([(of, seen.outputs)])
    yield declared.PIPELINE_COPIES.family([(of, seen.copies)])
    if seen.hit_rate is not None:
        yield declared.PIPELINE_HIT_RATIO.family([(of, seen.hit_rate)])
    yield declared.PIPELINE_IN_FLIGHT.family([(of, seen.in_flight)])
    yield declared.PIPELINE_WAITING.family([(of, seen.waiting)])
    yield declared.PIPELINE_PROBLEMS.family([(of, len(seen.problems))])


def _outcomes(seen: Audit) -> Iterator[tuple[str, int]]:
    """What became of events; every reason is there, if only with 0.

    A counter never falls: what backfill has completed since still counts as what it was, too.
    """
    yield ledger.ENRICHED, seen.enriched
    yield ledger.LOST, seen.lost
    for outcome in (ledger.UNMATCHED, ledger.PARKED):
        yield outcome, getattr(seen, outcome) + seen.late[ledger.of(outcome)]
    counts = seen.counts
    for outcome, service in _REASONS.items():
        for name in sorted({*outcomes_of(service), *counts}):
            if name.startswith(f"{outcome}."):
                yield name, counts[name]


class RunsCollector(Collector):
    """The last run of each of Spark's jobs."""

    def __init__(self, pipeline: str, engine: Engine) -> None:
        self._pipeline = pipeline
        self._engine = engine

    def collect(self) -> Iterator[Metric]:
        try:
            runs = last_runs(self._engine, self._pipeline)
        except Unavailable as error:
            log.warning("no figures of Spark's runs", extra={"reason": str(error)})
            return
        of = {run.job: (self._pipeline, run.job) for run in runs}
        yield declared.RUN_STATE.family(
            ((*of[run.job], state), float(run.state == state)) for run in runs for state in STATES
        )
        yield declared.RUN_SECONDS.family((of[run.job], run.seconds) for run in runs)
        yield declared.RUN_STARTED.family((of[run.job], run.started_at.timestamp()) for run in runs)
        for name, metric in declared.RUN_FIGURES.items():
            yield metric.family(
                (of[run.job], float(run.figures[name]))
                for run in runs
                if isinstance(run.figures.get(name), int | float)
            )


class PlansCollector(Collector):
    """The latest cache plan."""

    def __init__(self, pipeline: str, engine: Engine) -> None:
        self._pipeline = pipeline
        self._tables = PlanTables(engine, pipeline)

    def collect(self) -> Iterator[Metric]:
        try:
            plans = self._tables.plans(1)
        except Unavailable as error:
            log.warning("no figures of the plan", extra={"reason": str(error)})
            return
        of = (self._pipeline,)
        for plan in plans:
            yield declared.PLAN_VERSION.family([(of, plan.version)])
            yield declared.PLAN_MADE.family([(of, plan.made_at.timestamp())])
            if plan.sent_at is not None:
                yield declared.PLAN_SENT.family([(of, plan.sent_at.timestamp())])
                yield declared.PLAN_SENT_KEYS.family([(of, plan.sent or 0)])
            yield declared.PLAN_HIT_RATIO.family([(of, plan.facts["expected_hit_rate"])])
