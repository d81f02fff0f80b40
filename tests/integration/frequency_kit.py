"""The job `frequency` driven in the test's own process, and what SQL says of the same events."""

from __future__ import annotations

import argparse
import json
from datetime import UTC, datetime

import psycopg
from confluent_kafka import Producer
from pyspark.sql import functions as sf

from dovetail.pipeline.load import load_pipeline
from dovetail.stream.topics import ensure_topics
from dovetail.topology import Topology
from services.spark import frequency
from services.spark.frequency_counts import pairs
from services.spark.frequency_state import States
from services.spark.plan_tables import PlanTables
from services.spark.runs import Run, control_engine
from services.spark.settings import SparkSettings

HALF_LIFE_S = 3 * 86400.0
DAY_MS = 86_400_000

_ORACLE = """
SELECT key, ((extract(isodow FROM at) - 1) * 24 + extract(hour FROM at))::int, count(*),
       sum(power(0.5::float8, extract(epoch FROM %s - at)::float8 / %s))
FROM (SELECT key, at AT TIME ZONE 'UTC' AS at FROM counted) AS events GROUP BY 1, 2
"""


class Frequencies:
    """One pipeline's counts and plans, in a folder and a database of the test's own."""

    def __init__(self, spark, bootstrap, database, folder, spec):
        file = folder / "pipeline.yaml"
        file.write_text(json.dumps(spec))
        self.file = file
        self.spark = spark
        self.state = folder / "state"
        self.spec = load_pipeline(file, {})
        self.topology = Topology(self.spec)
        self.settings = SparkSettings(bootstrap, database, file)
        self.engine = control_engine(database)
        self._producer = Producer(self.settings.client())
        ensure_topics(self.settings, self.topology.topics())

    def send(self, events, at_ms=None):
        """Send events, one to each source partition in turn; None of a time: now."""
        for number, event in enumerate(events):
            self._producer.produce(
                self.topology.source.name,
                event,
                partition=number % self.spec.source.partitions,
                timestamp=0 if at_ms is None else at_ms[number],
            )
            self._producer.poll(0)
        assert self._producer.flush(30) == 0

    def arguments(self, *options):
        parser = argparse.ArgumentParser()
        frequency.add_arguments(parser)
        return parser.parse_args(
            ["--state", str(self.state), "--half-life", f"{HALF_LIFE_S:.0f}s", *options]
        )

    def run(self, *options):
        """Run the job once; give its figures."""
        with Run(self.engine, self.spec.name, "frequency") as run:
            frequency.run(self.settings, self.spec, self.spark, run, self.arguments(*options))
        return run.figures

    @property
    def version(self):
        return States(self.engine, self.spark, self.spec.name, str(self.state)).latest()

    def pairs(self):
        """What is counted, as a dictionary of (key, hour) to (events, weight)."""
        found = pairs(self.spark, self.spec, self.version, HALF_LIFE_S).groupBy("key", "hour")
        rows = found.agg(sf.sum("events"), sf.sum("weight")).collect()
        return {(_plain(row.key), row.hour): (row[2], row[3]) for row in rows}

    def counted_by_sql(self, events):
        """What SQL counts of (key, ms) pairs, with weights as of the latest version."""
        as_of = datetime.fromtimestamp(self.version.counts.as_of_ms / 1000, UTC)
        with psycopg.connect(self.settings.database_url) as connection:
            kind = "bytea" if events and isinstance(events[0][0], bytes) else "bigint"
            connection.execute(f"CREATE TEMP TABLE counted (key {kind}, at timestamptz)")
            with connection.cursor().copy("COPY counted FROM STDIN") as copy:
                for key, ms in events:
                    copy.write_row((key, datetime.fromtimestamp(ms / 1000, UTC)))
            rows = connection.execute(_ORACLE, (as_of.replace(tzinfo=None), HALF_LIFE_S))
            return {(key, hour): (n, weight) for key, hour, n, weight in rows}

    @property
    def tables(self):
        return PlanTables(self.engine, self.spec.name)


def _plain(key):
    return bytes(key) if isinstance(key, bytes | bytearray) else key
