"""How long the job `frequency` takes, and how much memory, by the number of events and of rows.

    python -m bench.frequency --events 5000000 20000000 --rows 5000000

The demo's events (Zipf, skew 1) as an archive in Parquet, its catalogue in PostgreSQL; one run of
the job for each number of events, in a process of its own, from nothing to a stored plan. Time is
the job's own, without Spark's start; memory is the peak of JVM and Python together (PSS).

The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from bench.peak import Peak
from deploy.local.home import CHECKOUT, Home
from deploy.local.stack import Stack
from dovetail.demo.catalogue import load_catalogue
from dovetail.demo.events import SalesEvents
from dovetail.pipeline.load import load_pipeline
from dovetail.settings import Settings
from dovetail.stream.topics import ensure_topics
from dovetail.topology import Topology

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

A_FILE = 1_000_000
HEAP = "2g"
SPAN_MS = 3_600_000
"""The events are of the last hour."""


@dataclass(frozen=True)
class Outcome:
    events: int
    rows: int
    seconds: float
    memory: int
    keys: int
    """Planned."""

    @property
    def per_million(self) -> float:
        return round(self.seconds / (self.events / 1e6), 3)

    def __str__(self) -> str:
        return (
            f"{self.events:>11,} events, {self.rows:,} rows: {self.seconds:6.1f} s, "
            f"{self.memory / (1 << 20):,.0f} MiB at most, {self.keys:,} keys planned"
        )


def measure(stack: Stack, numbers: Sequence[int], rows: int) -> list[Outcome]:
    """Run the job over so many events each, on a stack that runs."""
    load_catalogue(stack.database_url, rows, report=lambda _: None)
    folder = stack.home.folder / "frequency"
    shutil.rmtree(folder, ignore_errors=True)
    return [_run(stack, folder / str(events), events, rows) for events in numbers]


def _run(stack: Stack, folder: Path, events: int, rows: int) -> Outcome:
    _write_archive(folder / "archive", events, rows)
    spec = yaml.safe_load((CHECKOUT / "pipeline.yaml").read_text())
    spec["name"] = name = f"bench-frequency-{events}"
    spec["source"]["topic"] = name
    spec["sink"] = {}
    file = folder / "pipeline.yaml"
    file.write_text(yaml.safe_dump(spec))
    topology = Topology(load_pipeline(file, {}))
    ensure_topics(Settings(stack.bootstrap, stack.database_url, file), topology.topics())
    command = [sys.executable, "-m", "services.spark", "frequency", str(file), "--no-send"]
    options = ["--archive", str(folder / "archive"), "--state", str(folder / "state")]
    environment = {**os.environ, **stack.environment(), "SPARK_DRIVER_MEMORY": HEAP}
    log = stack.home.logs / f"{name}.log"
    with log.open("wb") as out:
        child = subprocess.Popen(
            [*command, *options], env=environment, cwd=CHECKOUT, stdout=out, stderr=out
        )
        peak = Peak(child.pid)
        try:
            code = child.wait(timeout=3600)
        finally:
            child.kill()
            peak.stop()
    if code:
        raise SystemExit(f"frequency failed: see {log}")
    seconds, keys = _told(stack.database_url, name, log)
    shutil.rmtree(folder)
    return Outcome(events, rows, seconds, peak.most, keys)


def _told(database_url: str, name: str, log: Path) -> tuple[float, int]:
    """The run's time, and how many keys it planned."""
    with psycopg.connect(database_url) as connection:
        row = connection.execute(
            "SELECT (figures ->> 'count_s')::float8 + (figures ->> 'plan_s')::float8,"
            " (figures ->> 'planned_keys')::bigint"
            " FROM dovetail.spark_runs WHERE pipeline = %s ORDER BY id DESC LIMIT 1",
            [name],
        ).fetchone()
    if row is None:
        raise SystemExit(f"the run is not in the control database: see {log}")
    return row[0], row[1]


def _write_archive(folder: Path, events: int, rows: int) -> None:
    folder.mkdir(parents=True)
    stream = SalesEvents(rows)
    now_ms = time.time_ns() // 1_000_000
    for first in range(0, events, A_FILE):
        count = min(A_FILE, events - first)
        places = np.arange(first, first + count)
        times = now_ms - SPAN_MS + places * SPAN_MS // events
        batch = stream.batch(first, times)
        values = pa.LargeBinaryArray.from_buffers(
            pa.large_binary(), count, [None, pa.py_buffer(batch.bounds), pa.py_buffer(batch.data)]
        ).cast(pa.binary())
        table = pa.table({"value": values, "timestamp": pa.array(times, pa.timestamp("ms", "UTC"))})
        pq.write_table(table, folder / f"{first:012}.parquet", compression="zstd")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.frequency", description=__doc__)
    parser.add_argument("--events", type=int, nargs="+", default=[5_000_000, 20_000_000])
    parser.add_argument("--rows", type=int, default=5_000_000)
    args = parser.parse_args()
    home = Home(CHECKOUT / ".dovetail" / "bench-spark", CHECKOUT / ".dovetail")
    environ = {**os.environ, "KAFKA_HEAP": "512m"}
    with Stack(home, report=print, environ=environ, usual_ports={}) as stack:
        outcomes = measure(stack, args.events, args.rows)
    for outcome in outcomes:
        print(outcome, flush=True)
    print(
        json.dumps(
            {
                "frequency_s_per_million": outcomes[-1].per_million,
                "runs": [asdict(outcome) for outcome in outcomes],
            }
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
