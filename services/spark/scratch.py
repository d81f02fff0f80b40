"""A folder of a run's own, which goes with it; what a killed run has left, the next one removes."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from dovetail.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


class Scratch:
    """Is known to be in use by a lock, which goes with its process."""

    def __init__(self, parent: Path, name: str) -> None:
        with writing(parent):
            parent.mkdir(parents=True, exist_ok=True)
            _remove_abandoned(parent, name)
            while True:
                self.path = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=parent))
                self._lock = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
                if _locks(self._lock):
                    break
                os.close(self._lock)  # somebody took it for abandoned, and removes it

    @contextmanager
    def folder(self) -> Iterator[Path]:
        """A folder in it, for as long as it is needed."""
        with writing(self.path):
            path = Path(tempfile.mkdtemp(dir=self.path))
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Say of a path that cannot be written what helps."""
    try:
        yield
    except OSError as error:
        raise unwritable(path, error.strerror or str(error)) from error


def unwritable(path: Path, why: str) -> Unavailable:
    return Unavailable(
        f"{path} cannot be written ({why}): make room there, or set SPARK_LOCAL_DIRS to a folder "
        f"that has some"
    )


def local_folder(spark: SparkSession) -> Path:
    """Where Spark itself writes what it shuffles."""
    told = os.environ.get("SPARK_LOCAL_DIRS") or spark.sparkContext.getConf().get("spark.local.dir")
    return Path((told or tempfile.gettempdir()).split(",")[0])


def _remove_abandoned(parent: Path, name: str) -> None:
    for path in parent.glob(f"{name}-*"):
        try:
            lock = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
        except OSError:
            continue  # it has gone meanwhile, or is not ours to look at
        try:
            if _locks(lock):
                shutil.rmtree(path, ignore_errors=True)
        finally:
            os.close(lock)


def _locks(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
