"""What a job on Spark is told by its environment, beside what every process is told."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

from dovetail.errors import ConfigError
from dovetail.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class SparkSettings(Settings):
    master: str = "local[2]"
    """Where Spark runs: in this process, or on the cluster of this URL."""
    driver_memory: str = "1g"
    executor_memory: str = "1g"
    """Heaps; the Python workers' memory comes on top."""
    partitions: int = 4
    """Of a shuffle."""
    jars: Path | None = None
    """A folder with the connectors' jars; None: they are fetched on first use."""
    scratch: Path | None = None
    """Where Spark spills and shuffles, the first of them; None: below the stack's home."""
    ui: bool = False
    """Whether Spark's own web page is served."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> SparkSettings:
        plain = Settings.from_environment(environment)
        scratch = environment.get("SPARK_LOCAL_DIRS")
        return cls(
            **{field.name: getattr(plain, field.name) for field in fields(Settings)},
            master=environment.get("SPARK_MASTER") or "local[2]",
            driver_memory=environment.get("SPARK_DRIVER_MEMORY") or "1g",
            executor_memory=environment.get("SPARK_EXECUTOR_MEMORY") or "1g",
            partitions=_count(environment.get("SPARK_PARTITIONS") or "4"),
            jars=jars_folder(environment),
            scratch=Path(scratch.split(",")[0]) if scratch else None,
            ui=environment.get("SPARK_UI", "") not in {"", "0", "no", "false"},
        )


def jars_folder(environment: Mapping[str, str]) -> Path | None:
    folder = environment.get("SPARK_JARS")
    return Path(folder) if folder else None


def _count(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise ConfigError("SPARK_PARTITIONS is not a count; write 4 or another number")
    return int(text)
