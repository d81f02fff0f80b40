"""The backfill job on the same cluster, by SPARK_MASTER alone."""

from __future__ import annotations

import os
import subprocess
import sys

import yaml

from services.spark.runs import control_engine, last_runs
from tests.cluster.test_cluster import cluster  # noqa: F401 - a fixture
from tests.integration.backfill_kit import SetAside


def test_backfill_runs_on_both_workers(cluster, bootstrap, database, kafka_namespace, tmp_path):  # noqa: F811
    sales = SetAside(bootstrap, database, kafka_namespace)
    sales.master("CREATE TABLE goods (id int, name text)")
    sales.master("INSERT INTO goods SELECT n, 'row' FROM generate_series(0, 799) n")
    sales.add(sales.topology.shed, *range(1_000))
    sales.add(sales.topology.unmatched, *range(500, 1_000))
    file = tmp_path / "pipeline.yaml"
    file.write_text(yaml.safe_dump(sales.spec))
    environment = {
        **os.environ,
        "KAFKA_BOOTSTRAP": bootstrap,
        "DATABASE_URL": database,
        "SPARK_MASTER": cluster.url,
        "SPARK_DRIVER_MEMORY": "512m",
        "SPARK_EXECUTOR_MEMORY": "512m",
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    command = [sys.executable, "-m", "dovetail.cli", "spark", "backfill", str(file)]
    ended = subprocess.run(
        [*command, "--portion", "300"], env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    written = sales.keys_on(sales.topology.enriched)
    assert written == {key: 1 + (key >= 500) for key in range(800)}
    (run,) = last_runs(control_engine(database), sales.pipeline.name)
    assert (run.state, run.figures["completed"]) == ("done", 1_100)
    for folder in cluster.folders:
        assert list(folder.glob("app-*/*/stderr")), f"no executor has run in {folder}"
