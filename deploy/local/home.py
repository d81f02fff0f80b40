"""Where the local stack keeps everything it downloads and writes."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

CHECKOUT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Home:
    """One folder is one stack: two homes can run side by side on one machine.

    `downloads` may be another home's folder, so that stacks share the jars.
    """

    folder: Path
    downloads: Path | None = None
    logs_kept: int = 1
    """How many earlier logs of a process are kept beside its present one."""

    @classmethod
    def of_checkout(cls, environ: Mapping[str, str] = os.environ) -> Home:
        folder = environ.get("DOVETAIL_HOME")
        return cls(Path(folder).resolve() if folder else CHECKOUT / ".dovetail")

    @property
    def jars(self) -> Path:
        return self._made((self.downloads or self.folder) / "jars")

    @property
    def cache(self) -> Path:
        return self._made((self.downloads or self.folder) / "cache")

    @property
    def data(self) -> Path:
        return self._made(self.folder / "data")

    @property
    def logs(self) -> Path:
        return self._made(self.folder / "logs")

    @property
    def run(self) -> Path:
        """Lock, chosen ports and the records of running processes."""
        return self._made(self.folder / "run")

    @property
    def secrets(self) -> Path:
        """Certificates, keys and passwords of a secured stack: for its owner alone."""
        folder = self._made(self.folder / "secrets")
        folder.chmod(0o700)
        return folder

    @staticmethod
    def _made(folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        return folder
