"""The runs of the pipeline's Spark jobs, as the control database has them."""

from __future__ import annotations

import logging
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, HTTPException
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from dovetail.errors import Unavailable
from services.spark.runs import last_runs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.core import Metric
    from sqlalchemy import Engine

log = logging.getLogger(__name__)

_SHOWN = 20


def run_routes(pipeline: str, engine: Engine) -> APIRouter:
    app = APIRouter()

    @app.get("/v1/spark/runs")
    def runs() -> list[dict[str, Any]]:
        """The last runs of every job, the latest first."""
        try:
            return [asdict(run) for run in last_runs(engine, pipeline, _SHOWN)]
        except Unavailable as error:
            raise HTTPException(503, str(error)) from error

    return app


class RunsCollector(Collector):
    """The last run of each job; nothing while the database is away."""

    def __init__(self, pipeline: str, engine: Engine) -> None:
        self._pipeline = pipeline
        self._engine = engine

    def collect(self) -> Iterator[Metric]:
        try:
            runs = last_runs(self._engine, self._pipeline)
        except Unavailable as error:
            log.warning("no figures of Spark's runs", extra={"reason": str(error)})
            return
        states = GaugeMetricFamily(
            "dovetail_spark_run", "The last run of a job is in this state", labels=["job", "state"]
        )
        seconds = GaugeMetricFamily(
            "dovetail_spark_run_seconds", "How long the last run took, or takes", labels=["job"]
        )
        started = GaugeMetricFamily(
            "dovetail_spark_run_started_seconds", "When the last run began", labels=["job"]
        )
        figures = GaugeMetricFamily(
            "dovetail_spark_run_figure", "The last run's own figures", labels=["job", "name"]
        )
        for run in runs:
            states.add_metric([run.job, run.state], 1)
            seconds.add_metric([run.job], run.seconds)
            started.add_metric([run.job], run.started_at.timestamp())
            for name, value in run.figures.items():
                if isinstance(value, int | float):
                    figures.add_metric([run.job, name], value)
        yield from (states, seconds, started, figures)
