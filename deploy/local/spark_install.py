"""Spark, installed beside a run: it is by far the largest part, and little of a run needs it."""

from __future__ import annotations

import importlib.metadata
import time
from typing import TYPE_CHECKING, Self

from deploy.local import install
from deploy.local.home import CHECKOUT
from deploy.local.processes import Managed
from dovetail.errors import StackError
from dovetail.pipeline.spec import Engine

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from deploy.local.home import Home
    from dovetail.pipeline.spec import Pipeline

_WITHIN_S = 1_800.0


def is_installed() -> bool:
    """Tell whether all of it is there: the list of a package's files is written last."""
    try:
        return all(importlib.metadata.files(name) for name in ("pyspark", "pandas"))
    except importlib.metadata.PackageNotFoundError:
        return False


class SparkInstall:
    """Begins at once where the pipeline runs on Spark, and else when it is told to."""

    def __init__(self, home: Home, pipeline: Pipeline, report: Callable[[str], None]) -> None:
        self._needed = pipeline.engine is Engine.SPARK
        self._report = report
        self._runs = False
        self._process = Managed(
            home,
            "install-spark",
            install.command(["local", "spark"]),
            cwd=CHECKOUT,
            wrapper=("nice", "-n", "19"),
        )

    def __enter__(self) -> Self:
        if self._needed:
            self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.stop()

    def start(self) -> None:
        if not self._runs and not is_installed():
            self._process.start()
            self._runs = True

    def watch(self) -> None:
        """Tell once how it ended."""
        code = self._process.exit_code() if self._runs else None
        if code is None:
            return
        self._runs = False
        if code:
            self._report(f"Spark is not installed, and no cache is planned: {self._process.log}")
        else:
            self._report("Spark is installed")

    def wait(self) -> None:
        """Wait until it is there, if the pipeline cannot start without."""
        if not self._needed:
            return
        deadline = time.monotonic() + _WITHIN_S
        if self._runs:
            self._report("waiting for Spark: about 450 MB, once")
        while self._runs and time.monotonic() < deadline:
            self.watch()
            time.sleep(0.2)
        if not is_installed():
            raise StackError(f"Spark could not be installed; {self._process.log} says why")
