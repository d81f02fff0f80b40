"""The Java runtime that runs the broker."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from dovetail.errors import StackError

if TYPE_CHECKING:
    from collections.abc import Mapping

OLDEST = 17
CURE = f"install Java {OLDEST} or newer (for example OpenJDK) or point JAVA_HOME to one"


def find_java(environ: Mapping[str, str]) -> Path:
    """Return the `java` of JAVA_HOME or of the PATH, checked to be new enough."""
    java_home = environ.get("JAVA_HOME")
    found = (
        shutil.which("java", path=str(Path(java_home) / "bin"))
        if java_home
        else shutil.which("java", path=environ.get("PATH", ""))
    )
    if not found:
        where = f"in JAVA_HOME ({java_home})" if java_home else "on the PATH"
        raise StackError(f"there is no `java` {where}, and Kafka and Spark need it: {CURE}")
    version = _version(found)
    if version < OLDEST:
        raise StackError(f"{found} is Java {version}, too old for Kafka and Spark: {CURE}")
    return Path(found)


def _version(java: str) -> int:
    answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    match = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    if answer.returncode != 0 or not match:
        raise StackError(f"`{java} -version` does not work ({answer.stderr.strip()}): {CURE}")
    return int(match[1])
