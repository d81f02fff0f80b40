"""A checkout in a folder whose name has a space, with a Python of its own in it.

The sources are copied; what they import from elsewhere is this checkout's, reached by paths with
the space in them, and so are the jars.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
import venv
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deploy.local.home import CHECKOUT
from tests.conftest import HIDDEN

if TYPE_CHECKING:
    from pathlib import Path

_SOURCES = ("deploy", "dovetail", "services")
_POINTING_HERE = ("DOVETAIL_HOME", "PYTHONPATH", "SPARK_HOME", "NUMBA_CACHE_DIR")


@dataclass(frozen=True)
class SpacedCheckout:
    folder: Path

    @classmethod
    def within(cls, parent):
        folder = parent / "my projects" / "dovetail"
        for name in _SOURCES:
            shutil.copytree(CHECKOUT / name, folder / name)
        own = folder / ".dovetail"
        venv.create(own / "venv", symlinks=True, with_pip=False)
        (site,) = own.glob("venv/lib/python*/site-packages")
        packages = site / "packages"
        packages.symlink_to(sysconfig.get_path("purelib"), target_is_directory=True)
        (site / "paths.pth").write_text(f"{folder}\n{packages}\n")
        (own / "jars").symlink_to(CHECKOUT / ".dovetail" / "jars", target_is_directory=True)
        return cls(folder)

    def run(self, program, **environment):
        """Run a program by its Python; give what it prints."""
        hidden = {*HIDDEN, *_POINTING_HERE}
        inherited = {name: value for name, value in os.environ.items() if name not in hidden}
        done = subprocess.run(
            [self.folder / ".dovetail/venv/bin/python", "-c", program],
            cwd=self.folder,
            env=inherited | environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout
