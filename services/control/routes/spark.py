"""Jobs on Spark: which there are, how their runs went, start."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Path

from services.access.roles import Role, needs
from services.control import spark_jobs
from services.control.hub import shown_job
from services.control.routes.common import Asker
from services.control.shapes import JobShape, Number, SparkStart
from services.problem import not_found
from services.spark.jobs import JOBS
from services.spark.runs import last_runs

if TYPE_CHECKING:
    import sqlalchemy as sa

    from services.control.hub import Hub

_SHOWN = 20
_MOST = 1000
JobName = Annotated[str, Path(pattern=r"^[a-z-]{1,50}$", examples=["frequency"])]


def spark_routes(hub: Hub) -> APIRouter:
    app = APIRouter(tags=["spark"])

    @app.get("/v1/spark/jobs")
    def list_spark_jobs() -> list[dict[str, Any]]:
        """Show the jobs, whether each can be started here, and how its last run went."""
        last = {run.job: asdict(run) for run in last_runs(hub.engine, hub.name)}
        return [
            {
                "job": name,
                "text": job.text,
                "can_start": not spark_jobs.why_not(name),
                "reason": spark_jobs.why_not(name),
                "arguments": list(spark_jobs.ARGUMENTS.get(name, ())),
                "last": last.get(name),
            }
            for name, job in JOBS.items()
        ]

    @app.post("/v1/spark/jobs/{job}/start", status_code=202, response_model=JobShape)
    @needs(Role.OPERATE)
    def start_spark_job(job: JobName, order: SparkStart, who: Asker) -> dict[str, Any]:
        """Start a job on Spark, beside control."""
        started = spark_jobs.start(hub, who, job, order.arguments, order.why)
        hub.changes.note(
            who, "spark.start", hub.name, why=order.why, job=job, arguments=order.arguments
        )
        return shown_job(started)

    return app


def run_routes(pipeline: str, engine: sa.Engine) -> APIRouter:
    app = APIRouter(tags=["spark"])

    @app.get("/v1/spark/runs")
    def list_runs() -> list[dict[str, Any]]:
        """Show the last runs of every job, the latest first."""
        return [asdict(run) for run in last_runs(engine, pipeline, _SHOWN)]

    @app.get("/v1/spark/runs/{number}")
    def show_run(number: Number) -> dict[str, Any]:
        runs = last_runs(engine, pipeline, _MOST)
        found = next((run for run in runs if run.id == number), None)
        if found is None:
            raise not_found(f"there is no run {number}; GET /v1/spark/runs lists the last ones")
        return asdict(found)

    return app
