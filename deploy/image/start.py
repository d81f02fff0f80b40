"""What a container runs: one service, one job on Spark, or any `dovetail` command.

    start ingest | mapper | cache_phase | disk_phase | node | control
    start spark frequency …            a job, with Spark in this container
    start driver … | executor …        what Spark on Kubernetes asks of an image
    start warm pipeline.yaml           compile the kernels: when the image is built
    start catalogue [rows]             the demo's master data
    start roles                        the database's roles, with their passwords
    start audit …                      any other word is the command line's

The image's own files are read-only. Compiled kernels are looked up in a folder that can be written
to, or Numba would not keep them; it is filled with those that came with the image, and what runs
then takes this process's place, so that it gets the container's signals itself.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from dovetail.topology import CACHE_PHASE, CONTROL, DISK_PHASE, INGEST, MAPPER, NODE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

KERNELS = Path("/opt/dovetail/kernels")
"""Compiled when the image was built."""
PROCESSOR = Path("/opt/dovetail/processor")
"""What they were compiled for, as LLVM calls it; empty: for the machine that built the image."""
SERVICES = (INGEST, MAPPER, CACHE_PHASE, DISK_PHASE, NODE, CONTROL)
_CACHE, _CPU, _FEATURES = "NUMBA_CACHE_DIR", "NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES"
_OF_KERNELS = re.compile(r"[0-9a-f]{64}|\w+_[0-9a-f]{40}")
"""A folder of an image's, or one of Numba's own, as 0.2.0 had them in its place."""
_EXECUTOR = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
_JAVA_OPTION = "SPARK_JAVA_OPT_"


def main(words: Sequence[str] = sys.argv[1:]) -> int:
    if words:
        _become(words)
    print(__doc__, file=sys.stderr)
    return 2


def _become(words: Sequence[str]) -> NoReturn:
    named = PROCESSOR.read_text().strip() if PROCESSOR.is_file() else ""
    environment = for_processor(os.environ, named)
    if _CACHE in environment and words[0] != "warm":
        environment[_CACHE] = str(filled(Path(environment[_CACHE]), KERNELS))
    command = command_of(words, environment)
    sys.stdout.flush()
    os.execvpe(command[0], command, environment)  # noqa: S606 - no shell is wanted


def command_of(words: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """What to run in this process's place."""
    first, *rest = words
    if first in SERVICES:
        return [sys.executable, "-m", f"services.{first}.main", *rest]
    if first == "driver":
        return _driver(rest, environment)
    if first == "executor":
        return _executor(environment)
    modules = {
        "spark": "services.spark",
        "warm": "deploy.local.warm",
        "catalogue": "deploy.image.catalogue",
        "roles": "deploy.image.roles",
    }
    if first in modules:
        return [sys.executable, "-m", modules[first], *rest]
    return [sys.executable, "-m", "dovetail.cli", *words]


def for_processor(environment: Mapping[str, str], named: str) -> dict[str, str]:
    """Kernels for the processor that the image was built for, or, unless named, for this one.

    A name alone would not do: Numba would add this processor's features, and find no kernel.
    """
    chosen = {_CPU: named, _FEATURES: ""} if named else {}
    return {
        **chosen,
        **{name: value for name, value in environment.items() if value or name != _CPU},
    }


def filled(cache: Path, kernels: Path) -> Path:
    """Copy the image's kernels, unless they are there; return where they are, below the cache.

    A volume outlives an image: those of each have a folder of their own, by what they are, and
    those of others are removed. Times are kept, by which they are told from any compiled later.
    """
    if not kernels.is_dir():
        return cache
    digest = _digest(kernels)
    # An executor of Spark's is told where its driver's are, and has the same image.
    place = cache if cache.name == digest else cache / digest
    if not place.exists():
        _copy(kernels, place)
    for other in place.parent.iterdir():
        if other != place and _OF_KERNELS.fullmatch(other.name):
            shutil.rmtree(other, ignore_errors=True)
    return place


def _copy(kernels: Path, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    # Renamed when it is whole: a container may be killed meanwhile, or share the volume.
    partial = tempfile.mkdtemp(".partial", f"{place.name}.", place.parent)
    shutil.copytree(kernels, partial, dirs_exist_ok=True)
    try:
        Path(partial).rename(place)
    except OSError:
        shutil.rmtree(partial)
        if not place.exists():
            raise


def _digest(kernels: Path) -> str:
    found = hashlib.sha256()
    for file in sorted(path for path in kernels.rglob("*") if path.is_file()):
        found.update(f"{file.relative_to(kernels)}\n".encode())
        found.update(hashlib.sha256(file.read_bytes()).digest())
    return found.hexdigest()


def _driver(rest: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    address = environment.get("SPARK_DRIVER_BIND_ADDRESS", "")
    bind = ["--conf", f"spark.driver.bindAddress={address}"] if address else []
    submit = Path(sys.executable).with_name("spark-submit")
    return [str(submit), *bind, "--deploy-mode", "client", *rest]


def _executor(environment: Mapping[str, str]) -> list[str]:
    """As Spark's own image starts one: all that it is told stands in its environment."""
    numbered = (name for name in environment if name.startswith(_JAVA_OPTION))
    options = sorted(numbered, key=lambda name: int(name.removeprefix(_JAVA_OPTION)))
    memory = environment["SPARK_EXECUTOR_MEMORY"]
    own = environment.get("SPARK_CLASSPATH", "")
    classes = ":".join(filter(None, (own, f"{environment['SPARK_HOME']}/jars/*")))
    told = {
        "--driver-url": "SPARK_DRIVER_URL",
        "--executor-id": "SPARK_EXECUTOR_ID",
        "--cores": "SPARK_EXECUTOR_CORES",
        "--app-id": "SPARK_APPLICATION_ID",
        "--hostname": "SPARK_EXECUTOR_POD_IP",
        "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
        "--podName": "SPARK_EXECUTOR_POD_NAME",
    }
    return [
        "java",
        *(environment[name] for name in options),
        f"-Xms{memory}",
        f"-Xmx{memory}",
        "-cp",
        classes,
        _EXECUTOR,
        *(word for option, name in told.items() for word in (option, environment[name])),
    ]


if __name__ == "__main__":
    sys.exit(main())
