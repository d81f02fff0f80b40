"""Jars, fetched once from the package registries: the broker's, and those that Spark adds.

A bundle's lock names every jar with its size and SHA-256, so whichever way fetches them, the
result is the same or an error. The ways, in order:

1. `maven`: honours the mirrors and proxies in the user's own Maven settings.
2. `jgo`: a Python package that knows where jars are published; pip installs it on demand.
   It only downloads what the lock names: its resolver chooses other versions than Maven.

A fetch goes to a `.partial` folder, is verified there and renamed: half of one is never used.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from deploy.local.processes import run_tool
from dovetail.errors import StackError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from deploy.local.home import Home

HERE = Path(__file__).parent
JGO = HERE.with_name("image") / "jgo.lock"
"""With hashes, as it comes into the images' build (deploy/image/lock.py)."""
SHOW_EVERY_S = 3


@dataclass(frozen=True)
class Jar:
    sha256: str
    size: int
    coordinate: str

    @property
    def name(self) -> str:
        _, artifact, version = self.coordinate.split(":")
        return f"{artifact}-{version}.jar"


@dataclass(frozen=True)
class Bundle:
    """Jars that are used together, resolved from `<name>.pom.xml` and pinned by `<name>.lock`."""

    name: str
    title: str
    version: str
    needed_bytes: int
    """Of the disk, while they are fetched."""

    @property
    def pom(self) -> Path:
        return HERE / f"{self.name}.pom.xml"

    @property
    def lock_file(self) -> Path:
        return HERE / f"{self.name}.lock"

    def lock(self) -> list[Jar]:
        rows = (line.split() for line in self.lock_file.read_text().splitlines())
        return [Jar(sha256, int(size), coordinate) for sha256, size, coordinate in rows]


KAFKA = Bundle("kafka", "Apache Kafka", "4.3.0", 300 << 20)
SPARK = Bundle("spark", "Spark's connectors to Kafka and PostgreSQL", "4.2.0", 100 << 20)


def fetch(
    bundle: Bundle,
    home: Home,
    report: Callable[[str], None] = print,
    environ: Mapping[str, str] = os.environ,
) -> Path:
    """Return the folder that holds all the jars; fetch them if it is not complete."""
    lock = bundle.lock()
    folder = home.jars / f"{bundle.name}-{bundle.version}"
    if _complete(folder, lock):
        return folder
    with (home.jars / "lock").open("w") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)  # two stacks may share the jars: the second one waits
        if not _complete(folder, lock):
            _fetch(bundle, home, folder, report, environ)
    return folder


def _fetch(
    bundle: Bundle,
    home: Home,
    folder: Path,
    report: Callable[[str], None],
    environ: Mapping[str, str],
) -> None:
    _check_space(bundle, home)
    lock = bundle.lock()
    partial = folder.with_name(f"{folder.name}.partial")
    failures = []
    for way in _ways(environ):
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        report(
            f"fetching {bundle.title} {bundle.version}: {len(lock)} jars with {way.__name__[1:]}"
        )
        try:
            way(bundle, home, partial, report, environ)
            verify(partial, lock)
        except (StackError, OSError) as failure:
            failures.append(f"{way.__name__[1:]}: {failure}")
            report(f"that way failed: {str(failure).splitlines()[0]}")
            continue
        shutil.rmtree(folder, ignore_errors=True)
        partial.rename(folder)
        return
    shutil.rmtree(partial, ignore_errors=True)
    raise StackError(
        f"the jars of {bundle.title} could not be fetched: is the network up, are the Maven and "
        "PyPI registries (or your mirrors of them) reachable from here?\n" + "\n".join(failures)
    )


def _ways(environ: Mapping[str, str]) -> list[Callable[..., None]]:
    return [_maven, _jgo] if _mvn(environ) else [_jgo]


def _mvn(environ: Mapping[str, str]) -> str | None:
    """Return Maven's program; an empty MVN in the environment means: without Maven."""
    asked = environ.get("MVN", "mvn")
    return shutil.which(asked, path=environ.get("PATH", "")) if asked else None


def _maven(
    bundle: Bundle,
    home: Home,
    partial: Path,
    report: Callable[[str], None],
    environ: Mapping[str, str],
) -> None:
    repository = home.cache / "m2"
    command = [
        _mvn(environ) or "mvn",
        "--batch-mode",
        f"--file={bundle.pom}",
        "dependency:copy-dependencies",
        "-DincludeScope=runtime",
        f"-DoutputDirectory={partial}",
        f"-Dmaven.repo.local={repository}",
    ]
    progress = _Progress(repository, bundle.lock(), report)
    run_tool("Maven", command, home.logs / "maven.log", watch=progress, env=dict(environ))
    shutil.rmtree(repository, ignore_errors=True)


def _jgo(
    bundle: Bundle,
    home: Home,
    partial: Path,
    report: Callable[[str], None],
    environ: Mapping[str, str],
) -> None:
    package = home.cache / "jgo"
    install = ["install", "--quiet", "--upgrade", "--target", str(package)]
    pip = [sys.executable, "-m", "pip", *install, "--require-hashes", "--no-deps", "-r", str(JGO)]
    run_tool("pip", pip, home.logs / "pip.log", env=dict(environ))
    lock = bundle.lock()
    command: list[str | Path] = [
        sys.executable,
        HERE / "download_jars.py",
        partial,
        *(jar.coordinate for jar in lock),
    ]
    run_tool(
        "jgo",
        command,
        home.logs / "jgo.log",
        watch=_Progress(partial, lock, report),
        env={**environ, "PYTHONPATH": str(package)},
    )
    shutil.rmtree(package, ignore_errors=True)


def verify(folder: Path, lock: Sequence[Jar]) -> None:
    """Raise unless the folder holds exactly the jars of the lock, byte for byte."""
    names = {jar.name for jar in lock}
    found = {path.name for path in folder.iterdir()}
    if found != names:
        raise StackError(
            f"the fetch lacks {sorted(names - found)} and brings {sorted(found - names)}"
        )
    for jar in lock:
        with (folder / jar.name).open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != jar.sha256:
                raise StackError(f"{jar.name} is not the file that the lock names")


def _complete(folder: Path, lock: Sequence[Jar]) -> bool:
    """Tell by sizes alone, at every start: the content was verified before the rename."""
    if not folder.is_dir():
        return False
    sizes = {path.name: path.stat().st_size for path in folder.iterdir()}
    return sizes == {jar.name: jar.size for jar in lock}


def _check_space(bundle: Bundle, home: Home) -> None:
    free = shutil.disk_usage(home.jars).free
    if free < bundle.needed_bytes:
        raise StackError(
            f"only {free >> 20} MiB are free on the disk of {home.jars}, and fetching "
            f"{bundle.title} takes {bundle.needed_bytes >> 20} MiB: free some, or set "
            f"DOVETAIL_HOME to another disk"
        )


class _Progress:
    """Called once a second; says every few seconds how far the fetch into a folder is."""

    def __init__(self, folder: Path, lock: Sequence[Jar], report: Callable[[str], None]) -> None:
        self._folder = folder
        self._lock = lock
        self._report = report
        self._calls = 0

    def __call__(self) -> None:
        self._calls += 1
        if self._calls % SHOW_EVERY_S == 0:
            arrived = {path.name for path in self._folder.rglob("*.jar")}
            sizes = [jar.size for jar in self._lock if jar.name in arrived]
            total = sum(jar.size for jar in self._lock)
            self._report(
                f"  {len(sizes)} of {len(self._lock)} jars, {sum(sizes) >> 20} of {total >> 20} MiB"
            )
