"""Programs out of Debian's packages, without root and without installing them.

    apt-get download ──► <home>/cache/debian/<name>.partial ──► dpkg-deb -x ──► <name>/usr/bin/…

The packages come from wherever the machine's apt gets its own, and are checked by it. Where it has
no lists of packages, as in a fresh container, they are fetched as well. What is there once is not
fetched again. Packages that a program needs are named with it, unless the machine has them.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
from typing import TYPE_CHECKING

from deploy.local.processes import run_tool
from dovetail.errors import StackError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from deploy.local.home import Home

_TOOLS = ("apt-get", "dpkg-deb", "ldd")
_LIBRARIES = ("usr/lib", "lib")


class Unpacked:
    """Packages side by side in one folder, as they would lie in `/`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def program(self, name: str) -> Path:
        """A program of theirs, if all the libraries that it wants are there."""
        path = self.folder / "usr/bin" / name
        if not path.exists():
            raise StackError(f"{self.folder.name} has no program {name}: look at {path.parent}")
        missing = self._missing(path)
        if missing:
            raise StackError(
                f"{name} of Debian's {self.folder.name} wants {', '.join(missing)}, which this "
                f"machine does not have: install the packages that have them"
            )
        return path

    def environment(self) -> dict[str, str]:
        """What a program's process needs to find the libraries that were unpacked with it."""
        folders = {
            str(library.parent)
            for part in _LIBRARIES
            for library in (self.folder / part).glob("**/*.so*")
        }
        return {"LD_LIBRARY_PATH": ":".join(sorted(folders))} if folders else {}

    def _missing(self, path: Path) -> list[str]:
        told = subprocess.run(
            ["ldd", path], capture_output=True, text=True, check=False, env=self.environment()
        )
        return [
            line.split()[0] for line in told.stdout.splitlines() if line.endswith("=> not found")
        ]


def unpack(
    packages: Sequence[str],
    home: Home,
    environ: Mapping[str, str],
    cure: str,
    report: Callable[[str], None] = print,
) -> Unpacked:
    """Have these packages in a folder that is named after the first.

    `cure` says what else helps where Debian's packages cannot be had.
    """
    folder = home.cache / "debian" / packages[0]
    folder.parent.mkdir(exist_ok=True)
    with (folder.parent / "lock").open("w") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)  # two test sessions may want it: the second one waits
        if not folder.exists():
            _require_tools(packages[0], environ, cure)
            report(f"fetching Debian's package {', '.join(packages)}")
            _fetch(packages, folder, home.logs / "apt.log", cure)
    return Unpacked(folder)


def _require_tools(package: str, environ: Mapping[str, str], cure: str) -> None:
    path = environ.get("PATH", "")
    missing = [tool for tool in _TOOLS if shutil.which(tool, path=path) is None]
    if missing:
        raise StackError(
            f"Debian's package {package} is needed, and this machine has no {missing[0]} to get "
            f"it with: {cure}"
        )


def _fetch(packages: Sequence[str], folder: Path, log: Path, cure: str) -> None:
    partial = folder.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    archives = partial / "archives"
    archives.mkdir(parents=True)
    try:
        _download(packages, archives, log)
    except StackError as error:
        raise StackError(f"{error}\nCheck the network and apt's sources, or {cure}") from None
    for archive in sorted(archives.glob("*.deb")):
        run_tool("dpkg-deb", ["dpkg-deb", "-x", archive, partial], log)
    shutil.rmtree(archives)
    partial.replace(folder)


def _download(packages: Sequence[str], archives: Path, log: Path) -> None:
    """Take the machine's lists of packages; if they do not have these, fetch lists of our own."""
    download = ["apt-get", "-q", "download", *packages]
    try:
        run_tool("apt-get download", download, log, cwd=archives)
    except StackError:
        own = _own_lists(archives.parent / "apt")
        run_tool("apt-get update", ["apt-get", "-q", *own, "update"], log)
        run_tool("apt-get download", [download[0], *own, *download[1:]], log, cwd=archives)
        shutil.rmtree(archives.parent / "apt")


def _own_lists(folder: Path) -> list[str]:
    for part in ("lists/partial", "cache/archives/partial"):
        (folder / part).mkdir(parents=True)
    return [
        *("-o", f"Dir::State::Lists={folder / 'lists'}"),
        *("-o", f"Dir::Cache={folder / 'cache'}"),
        *("-o", "APT::Sandbox::User="),  # who may write there is who runs this
        *("-o", "Debug::NoLocking=1"),
    ]
