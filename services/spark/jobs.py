"""The jobs, by name; each is a module of this package."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    import argparse

    from pyspark.sql import SparkSession

    from dovetail.pipeline.spec import Pipeline
    from services.spark.runs import Run
    from services.spark.settings import SparkSettings


class JobModule(Protocol):
    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Say what the job takes beside the pipeline."""
        ...

    def run(
        self,
        settings: SparkSettings,
        pipeline: Pipeline,
        spark: SparkSession,
        run: Run,
        args: argparse.Namespace,
    ) -> None:
        """Do the job; a DovetailError tells the user why it cannot be done."""
        ...


@dataclass(frozen=True, slots=True)
class Job:
    text: str
    module: str
    needs_kafka: bool = True
    """Whether KAFKA_BOOTSTRAP has to be set."""
    is_warmed: bool = False
    """Whether its workers have all kernels before the first event comes."""

    def load(self) -> JobModule:
        return cast("JobModule", importlib.import_module(self.module))


JOBS = {
    "snapshot": Job(
        "copy the master table into files that every node reads instead",
        "services.spark.snapshot",
        needs_kafka=False,
    ),
    "frequency": Job(
        "count how often each key comes, and send the cache plan that follows from it",
        "services.spark.frequency",
    ),
    "enrich": Job(
        "run a pipeline of engine: spark, from its source to its sink, until it is stopped",
        "services.spark.enrich",
        is_warmed=True,
    ),
    "backfill": Job(
        "complete what was shed, unmatched or parked, by the master data of now",
        "services.spark.backfill",
    ),
}
