"""A Chromium to test the console in: the machine's own, or Debian's package without root.

python -m deploy.local.chromium          # fetches it if need be, and says where it is
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from deploy.local.debian import unpack
from deploy.local.home import Home
from dovetail.errors import StackError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_PACKAGE = "chromium"
_PROGRAM = "usr/lib/chromium/chromium"  # what is in usr/bin is a script that looks into /usr/lib
_NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
CURE = "install Chromium, or set CHROMIUM to its program"

FLAGS = (
    "--no-sandbox",  # as root, and in containers without user namespaces, it does not start else
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
"""What it needs to run anywhere, and to call nobody by itself."""


@dataclass(frozen=True)
class Chromium:
    program: Path
    environment: dict[str, str] = field(default_factory=dict)
    """What its process needs beside the caller's own."""


def find_chromium(
    home: Home, report: Callable[[str], None] = print, environ: Mapping[str, str] = os.environ
) -> Chromium:
    """Return the one of CHROMIUM, of the PATH, or Debian's, which is fetched if need be."""
    asked = environ.get("CHROMIUM")
    if asked and not Path(asked).is_file():
        raise StackError(f"CHROMIUM={asked} is no file: {CURE}")
    path = environ.get("PATH", "")
    program = asked or next(filter(None, (shutil.which(name, path=path) for name in _NAMES)), None)
    if program:
        return Chromium(Path(program))
    fetched = home.cache / "debian" / _PACKAGE
    packages = [_PACKAGE] if fetched.exists() else [_PACKAGE, *_needed(path)]
    unpacked = unpack(packages, home, environ, CURE, report)
    return Chromium(unpacked.folder / _PROGRAM, unpacked.environment())


def _needed(path: str) -> list[str]:
    """What it depends on, and this machine does not have."""
    if not shutil.which("apt-get", path=path):
        raise StackError(f"there is no Chromium here, and no apt-get to get it with: {CURE}")
    words = ["apt-get", "--simulate", "--no-install-recommends", "install", _PACKAGE]
    told = subprocess.run(words, capture_output=True, text=True, check=False)
    if told.returncode != 0:
        last = (told.stderr.strip().splitlines() or ["it does not say why"])[-1]
        raise StackError(f"apt-get knows no {_PACKAGE} ({last}): run apt-get update, or {CURE}")
    found = [line.split()[1] for line in told.stdout.splitlines() if line.startswith("Inst ")]
    return [package for package in found if package != _PACKAGE]


def main() -> int:
    try:
        found = find_chromium(Home.of_checkout())
    except StackError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(" ".join([*(f"{k}={v}" for k, v in found.environment.items()), str(found.program)]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
