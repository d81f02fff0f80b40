"""A checkout whose path has a space starts what it needs, from there and nowhere else."""

from __future__ import annotations

import os

import pytest

from tests.integration.spaced_kit import SpacedCheckout

STACK = """
import os, sys
from deploy.local.home import Home
from deploy.local.stack import Stack

home = Home.of_checkout()
assert " " in str(home.folder) and " " in sys.executable
with Stack(home, usual_ports={}) as stack:
    stack.check()
    print("both answer")
"""
SPARK = """
import sys
import pyspark
from services.spark.scratch import Scratch, local_folder
from services.spark.session import spark_session
from services.spark.settings import SparkSettings

assert " " in pyspark.__file__ and " " in sys.executable

def same(parts):
    import services.spark
    assert " " in services.spark.__file__ and " " in sys.executable
    yield from parts

given = {"KAFKA_BOOTSTRAP": "none:1", "DATABASE_URL": "postgresql://none"}
spark = spark_session(SparkSettings.from_environment(given), "spaced")
rows = spark.range(100, numPartitions=4).repartition(2).mapInArrow(same, "id long")
seen = []
scratch = Scratch(local_folder(spark), "spaced")
assert " " in str(scratch.path)
query = (
    spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).load()
    .writeStream.foreachBatch(lambda frame, number: seen.append(frame.count()))
    .option("checkpointLocation", f"file://{scratch.path}/checkpoint")
    .trigger(availableNow=True).start()
)
query.awaitTermination()
assert (scratch.path / "checkpoint" / "commits").is_dir(), list(scratch.path.iterdir())
print(rows.count(), sum(seen) > 0)
spark.stop()
"""


@pytest.fixture
def checkout(tmp_path):
    return SpacedCheckout.within(tmp_path)


@pytest.mark.timeout(600)
def test_the_broker_and_the_database_start(checkout):
    assert "both answer" in checkout.run(STACK, KAFKA_HEAP="256m")


@pytest.mark.skipif(not os.environ.get("DOVETAIL_SPARK"), reason="make test-spark runs it")
@pytest.mark.timeout(600)
def test_spark_starts_with_its_workers_its_jars_and_its_checkpoint(checkout):
    assert checkout.run(SPARK).split()[-2:] == ["100", "True"]
