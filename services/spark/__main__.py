"""Runs one job: `dovetail spark <job> [pipeline.yaml]`, or `spark-submit` with this file."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from dovetail.errors import DovetailError, NotAllowedError
from dovetail.permissions import permissions_of
from dovetail.pipeline.load import load_pipeline
from dovetail.stream.acls import require
from dovetail.topology import Topology
from services.spark.jobs import JOBS
from services.spark.runs import Run, control_engine
from services.spark.settings import SparkSettings, jars_folder

if TYPE_CHECKING:
    from collections.abc import Sequence

_JARS = "jars"


def main(arguments: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, _stop)
    try:
        return _jars() if args.job == _JARS else _run(args)
    except DovetailError as error:
        print(f"dovetail spark: {error}", file=sys.stderr)
        # As of the services: no other try helps.
        return 2 if isinstance(error, NotAllowedError) else 1
    except (PySparkException, Py4JJavaError) as error:
        print(f"dovetail spark: Spark failed: {_cause(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _cause(error: Exception) -> str:
    """The line of Java's and Python's pages that says what went wrong first."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    ours = [line for line in lines if line.startswith("dovetail.errors.") and ": " in line]
    if ours:
        return ours[-1].split(": ", 1)[1]
    causes = [line for line in lines if line.startswith("Caused by:")]
    return (causes or lines or [type(error).__name__])[-1 if causes else 0]


def _stop(*_: object) -> None:
    """Let a job that is told to end say so in its row."""
    raise KeyboardInterrupt("it was told to stop")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="dovetail spark", description="Run a job on Spark.")
    jobs = parser.add_subparsers(dest="job", required=True, metavar="job")
    for name, job in JOBS.items():
        added = jobs.add_parser(name, help=job.text, description=job.text)
        added.add_argument("pipeline", type=Path, nargs="?", help="a pipeline file")
        job.load().add_arguments(added)
    jobs.add_parser(_JARS, help='print what spark-submit needs: --jars "$(dovetail spark jars)"')
    return parser


def _jars() -> int:
    from services.spark.session import connector_jars  # noqa: PLC0415 - as below

    print(",".join(map(str, connector_jars(jars_folder(os.environ)))))
    return 0


def _run(args: argparse.Namespace) -> int:
    from services.spark.session import spark_session  # noqa: PLC0415 - `--help` starts no Spark

    job = JOBS[args.job]
    environment = {**os.environ} if job.needs_kafka else {"KAFKA_BOOTSTRAP": "none", **os.environ}
    settings = SparkSettings.from_environment(environment)
    pipeline = load_pipeline(args.pipeline or settings.pipeline)
    with Run(control_engine(settings.control_database), pipeline.name, args.job) as run:
        if job.needs_kafka and settings.is_known:
            # Before Spark takes its time to start.
            require(settings, permissions_of(Topology(pipeline), args.job))
        print(f"{args.job} of {pipeline.name}: starting Spark on {settings.master}", flush=True)
        warmed = pipeline if job.is_warmed else None
        spark = spark_session(settings, f"{args.job} {pipeline.name}", warmed)
        try:
            job.load().run(settings, pipeline, spark, run, args)
        finally:
            spark.stop()
    told = ", ".join(f"{name} {_shown(value)}" for name, value in run.figures.items())
    print(f"{args.job} of {pipeline.name}: done; {told}", flush=True)
    return 0


def _shown(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:,.6g}" if value % 1 else f"{value:,.0f}"


if __name__ == "__main__":
    sys.exit(main())
