"""A pipeline of engine: spark in the test's own process, on a Spark that several of them share.

    with SparkPipeline(folder, bootstrap, database_url, spec, spark) as pipeline:
        pipeline.send(events)
        pipeline.drain()
        assert pipeline.verdict().equal

What the application's own process adds (its death, HTTP) is `RunningPipeline`'s, in pipeline.py.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Self

from dovetail.stream.topics import ensure_topics
from dovetail.testing.threads import ThreadedPipeline
from services.spark.enrich import Enrichment

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from dovetail.audit import Audit
    from services.spark.enrich_node import Report

_BATCH = 100_000
_LOOK_EVERY_S = 0.1


class SparkPipeline(ThreadedPipeline):
    def __init__(
        self,
        folder: Path,
        bootstrap: str,
        database_url: str,
        spec: Mapping[str, Any],
        spark: SparkSession,
        *,
        batch: int = _BATCH,
        stays: bool = False,
    ) -> None:
        """Whoever `stays` goes on between two drains, and keeps what is cached."""
        super().__init__(folder, bootstrap, database_url, {**spec, "engine": "spark"})
        self._spark = spark
        self._stays = stays
        self._runs = False
        self.reports: list[list[Report]] = []
        """What the nodes have told of each batch."""
        self.application = Enrichment(
            self.settings, self.spec, spark, lambda told, *_: self.reports.append(told), batch
        )

    def __enter__(self) -> Self:
        ensure_topics(self.settings, self.topology.topics())
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()
        super().stop()

    def drain(self) -> Audit:
        """Run the application until everything sent is answered."""
        if not self._runs:
            self.application.start()
            self._runs = True
        try:
            while not ((seen := self._auditor.audit()).drained or seen.off):
                self.application.check()
                time.sleep(_LOOK_EVERY_S)
            return seen
        finally:
            if not self._stays:
                self._stop()

    def _stop(self) -> None:
        self.application.stop()
        self._runs = False

    def source(self) -> DataFrame:
        """All records of the source topic, as one batch."""
        return (
            self._spark.read.format("kafka")
            .option("kafka.bootstrap.servers", self.settings.bootstrap)
            .option("subscribe", self.topology.source.name)
            .load()
        )
