"""A Spark standalone cluster on this machine: one master and some workers, as child processes."""

from __future__ import annotations

import json
import os
import socket
import time
import urllib.error
import urllib.request
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Self

from deploy.local.java import find_java
from deploy.local.processes import Managed
from dovetail.errors import StackError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deploy.local.home import Home

HOST = "127.0.0.1"
_START_S = 120.0
_LOOK_EVERY_S = 0.2
_DEPLOY = "org.apache.spark.deploy"


class SparkCluster:
    """Runs from `with` to its end; `url` is what SPARK_MASTER has to be."""

    def __init__(
        self,
        home: Home,
        *,
        workers: int = 2,
        memory: str = "1g",
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        """`memory` is what each worker has for executors."""
        java = find_java(environ)
        jars = spark_home() / "jars"
        port, self._page = _free_port(), _free_port()
        self.url = f"spark://{HOST}:{port}"
        self.folders = [home.data / f"spark-worker-{number}" for number in range(workers)]
        """Where each worker keeps what executors write, their logs too."""
        command = [str(java), "-Xmx256m", "-XX:+UseSerialGC", "-cp", f"{jars}/*"]
        env = {
            **environ,
            "SPARK_HOME": str(spark_home()),
            "SPARK_SCALA_VERSION": "2.13",  # a worker refuses to guess it
            "SPARK_LOCAL_IP": HOST,  # all on one machine, whatever its name resolves to
        }
        master = [f"{_DEPLOY}.master.Master", "--host", HOST]
        master += ["--port", str(port), "--webui-port", str(self._page)]
        self._processes = [Managed(home, "spark-master", [*command, *master], env=env)]
        for number, folder in enumerate(self.folders):
            worker = [f"{_DEPLOY}.worker.Worker", "--cores", "1", "--memory", memory]
            worker += ["--work-dir", str(folder), "--webui-port", "0", self.url]
            named = f"spark-worker-{number}"
            self._processes.append(Managed(home, named, [*command, *worker], env=env))

    def __enter__(self) -> Self:
        for process in self._processes:
            process.start()
        try:
            self._wait()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        for process in reversed(self._processes):
            process.stop()

    @property
    def pids(self) -> list[int]:
        """Of the master and the workers that run."""
        return [process.pid for process in self._processes if process.pid is not None]

    def _wait(self) -> None:
        until = time.monotonic() + _START_S
        while self._workers() < len(self.folders):
            for process in self._processes:
                process.check()
            if time.monotonic() > until:
                raise StackError(f"the workers did not come to {self.url}: see their logs")
            time.sleep(_LOOK_EVERY_S)

    def _workers(self) -> int:
        try:
            with urllib.request.urlopen(f"http://{HOST}:{self._page}/json/", timeout=5) as page:
                return int(json.load(page)["aliveworkers"])
        except (urllib.error.URLError, OSError, ValueError):
            return 0


def spark_home() -> Path:
    """The Spark that came with PySpark."""
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        raise StackError("Spark is not installed: pip install 'dovetail[spark]'")
    return Path(found.origin).parent


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        return int(taken.getsockname()[1])
