"""The releases that were made, and the code of each out of git's history.

A release is known by its commit, and not by a tag: a clone need not have those. Whoever makes one
adds it here, and raises the version in pyproject.toml with the first change after it.
"""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import tarfile
import tomllib
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from typing import TYPE_CHECKING

from deploy.local.home import CHECKOUT
from dovetail.errors import StackError

if TYPE_CHECKING:
    from pathlib import Path

    from deploy.local.home import Home

_PARTS = ("dovetail", "services", "deploy", "pyproject.toml")
_NAME = re.compile(r"[A-Za-z0-9._-]+")


@dataclass(frozen=True)
class Release:
    version: str
    commit: str


RELEASES = (Release("0.1.0", "941c1c66e1ebbac55243ae0f07cd0bd50f06a0d1"),)
"""In their order."""
PREVIOUS = RELEASES[-1]
"""From this one the present code can be upgraded to, and back."""


def code_of(release: Release, home: Home, checkout: Path = CHECKOUT) -> Path:
    """Take a release's code out of the history; give the folder that has it.

    It is taken out anew each time, to the same place and with the commit's times: kernels that
    were compiled from it are found again.
    """
    folder = home.cache / "releases" / release.commit
    shutil.rmtree(folder, ignore_errors=True)
    with tarfile.open(fileobj=io.BytesIO(_archive(release, checkout))) as archive:
        archive.extractall(folder, filter="data")
    if lacking := sorted(_lacking(folder)):
        raise StackError(
            f"release {release.version} needs {', '.join(lacking)}, which this environment does "
            "not have: its services cannot run beside the present ones"
        )
    return folder


def project_of(folder: Path) -> dict[str, object]:
    """What a folder of code says of itself."""
    project: dict[str, object] = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    return project


def _archive(release: Release, checkout: Path) -> bytes:
    command = ["git", "-C", checkout, "archive", "--format=tar", release.commit, *_PARTS]
    try:
        return subprocess.run(command, check=True, capture_output=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        told = getattr(error, "stderr", b"").decode().strip() or str(error)
        raise StackError(
            f"the code of release {release.version}, commit {release.commit[:12]}, is not in the "
            f"history of {checkout}. In a shallow clone `git fetch --unshallow` brings it; outside "
            f"a clone there is no upgrade to be tested. Git says: {told}"
        ) from error


def _lacking(folder: Path) -> set[str]:
    """What a release depends on and is not installed here."""
    needed = project_of(folder)["dependencies"]
    assert isinstance(needed, list)
    return {one for one in needed if not _is_installed(_NAME.match(one)[0])}


def _is_installed(name: str) -> bool:
    try:
        distribution(name)
    except PackageNotFoundError:
        return False
    return True
