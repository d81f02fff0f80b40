"""The Spark that a job runs on: in this process, or on a cluster by its master URL alone."""

from __future__ import annotations

import os
import sys
import warnings
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from deploy.local import jars
from deploy.local.home import Home
from deploy.local.java import find_java
from dovetail.errors import ConfigError
from services.spark import warming
from services.spark.jdbc import DRIVER
from services.spark.kafka import java_options

if TYPE_CHECKING:
    from dovetail.pipeline.spec import Pipeline
    from services.spark.settings import SparkSettings

LOG4J = Path(__file__).parent / "log4j2.properties"
_WORKERS = {
    # Each saves the Python workers memory: together 40 %.
    "MALLOC_ARENA_MAX": "1",
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "OMP_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
    # What an Arrow batch took is kept for the next one: to have it from the kernel anew each time
    # takes a tenth of a worker's time.
    "MALLOC_MMAP_THRESHOLD_": str(16 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(64 << 20),
}
_SMALL_HEAP = "-XX:+UseSerialGC -Xmn320m"
"""For a stream in one process. Its batches leave nothing in the heap but garbage: the usual
collector lets it grow to its limit all the same, this one hardly beyond what lives and where new
objects are made. Machines of a cluster have more cores than it can serve."""
_INHERITED = ("NUMBA_CACHE_DIR", "PYTHONPYCACHEPREFIX", "PYTHONPATH")
"""Of the driver's environment, for workers that were not started by it."""


def spark_session(
    settings: SparkSettings, name: str, warmed: Pipeline | None = None
) -> SparkSession:
    """Start Spark, or return the one that runs in this process already.

    Python workers start with all kernels of the pipeline `warmed`, if there is one.
    What `spark-submit` was told stands: its master, heaps and jars are not touched.
    """
    find_java(os.environ)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    options = _options(settings, {} if warmed is None else warming.told(warmed))
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        options |= _launch_options(settings, streams=warmed is not None)
    builder = SparkSession.Builder().appName(f"dovetail {name}")
    for option, value in options.items():
        builder = builder.config(option, value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        spark = builder.getOrCreate()
    _require_connectors(spark)
    return spark


def connector_jars(folder: Path | None) -> list[Path]:
    """The jars that Spark needs beside its own, from a folder or fetched on first use."""
    if folder is None:
        tell = partial(print, file=sys.stderr)
        folder = jars.fetch(jars.SPARK, Home.of_checkout(), tell)
    return sorted(folder.glob("*.jar"))


def _require_connectors(spark: SparkSession) -> None:
    jvm = spark.sparkContext._jvm  # noqa: SLF001 - the only way to its classes
    assert jvm is not None
    try:
        jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(DRIVER)
    except Py4JJavaError:
        raise ConfigError(
            'Spark has no connectors: give spark-submit --jars "$(dovetail spark jars)"'
        ) from None


def _launch_options(settings: SparkSettings, *, streams: bool) -> dict[str, str]:
    """What only a JVM that is not yet started can be told."""
    common = f"-Dlog4j2.configurationFile={LOG4J.as_uri()} {java_options(settings)}".rstrip()
    in_place = streams and is_local(settings.master)
    return {
        "spark.master": settings.master,
        "spark.driver.memory": settings.driver_memory,
        "spark.executor.memory": settings.executor_memory,
        "spark.driver.extraJavaOptions": f"{_SMALL_HEAP} {common}" if in_place else common,
        "spark.executor.extraJavaOptions": common,
        # Between two threads of one process: to pack what is written costs more than to write it.
        "spark.shuffle.compress": str(not is_local(settings.master)).lower(),
        "spark.jars": ",".join(str(jar) for jar in connector_jars(settings.jars)),
        "spark.local.dir": str(_scratch(settings)),
    }


def _options(settings: SparkSettings, told: dict[str, str]) -> dict[str, str]:
    inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    variables = _WORKERS | inherited | told
    return {
        "spark.ui.enabled": str(settings.ui).lower(),
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(settings.partitions),
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.warehouse.dir": str(_scratch(settings) / "warehouse"),
        "spark.sql.artifact.isolation.enabled": "false",
        "spark.pyspark.python": sys.executable,
        "spark.python.worker.reuse": "true",
        "spark.python.daemon.module": "services.spark.daemon",
        # Cheaper than by the network's stack, and closed to other users of the machine.
        "spark.python.unix.domain.socket.enabled": "true",
        **{f"spark.executorEnv.{name}": value for name, value in variables.items()},
    }


def is_local(master: str) -> bool:
    """Whether all of Spark is one process, the driver's."""
    return master.startswith("local") and not master.startswith("local-cluster")


def _scratch(settings: SparkSettings) -> Path:
    folder = settings.scratch or Home.of_checkout().folder / "spark"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Spark itself goes on without such a folder, and ends at the first thing it writes.
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ConfigError(
            f"Spark cannot write to {folder} ({error.strerror}); "
            f"set SPARK_LOCAL_DIRS to a folder where it can"
        ) from None
    return folder.resolve()
