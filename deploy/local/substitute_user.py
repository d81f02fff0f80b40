"""PostgreSQL refuses to run as root; this is the user it runs as instead."""

from __future__ import annotations

import os
import pwd
import shutil
from dataclasses import dataclass
from pathlib import Path

from dovetail.errors import StackError

# Either lets the user pass folders that only root may enter, such as a checkout below /root.
# The first can only read; containers often withhold it and grant the second.
CAPABILITIES = {"dac_read_search": 2, "dac_override": 1}
SETPCAP = 8


@dataclass(frozen=True)
class SubstituteUser:
    name: str
    uid: int
    gid: int

    @classmethod
    def for_root(cls) -> SubstituteUser:
        for name in ("postgres", "nobody"):
            try:
                entry = pwd.getpwnam(name)
            except KeyError:
                continue
            return cls(name, entry.pw_uid, entry.pw_gid)
        raise StackError(
            "PostgreSQL refuses to run as root, and there is neither a user `postgres` nor "
            "`nobody` to run it as: add one, or start the stack as an ordinary user"
        )

    def wrapper(self) -> list[str]:
        """Return the words before a command that run it as this user."""
        setpriv = shutil.which("setpriv", path=f"{os.environ.get('PATH', '')}:/usr/bin:/bin")
        if not setpriv:
            raise StackError(
                "PostgreSQL refuses to run as root, and `setpriv` to run it as another user is "
                "missing: install util-linux, or start the stack as an ordinary user"
            )
        identity = [f"--reuid={self.uid}", f"--regid={self.gid}", "--clear-groups"]
        held = _held()
        capability = next((name for name, bit in CAPABILITIES.items() if held >> bit & 1), None)
        if capability is None:
            return [setpriv, *identity]
        passing = [f"--inh-caps=+{capability}", f"--ambient-caps=+{capability}"]
        if held >> SETPCAP & 1:
            # Otherwise access(2), by which initdb looks for its programs, ignores capabilities.
            passing.append("--securebits=+no_setuid_fixup")
        return [setpriv, *identity, *passing]

    def own(self, path: Path) -> None:
        """Give the path and all below it to this user; costs one look if that is done."""
        if path.stat().st_uid == self.uid:
            return
        for folder, _, files in os.walk(path):
            for name in files:
                os.chown(Path(folder) / name, self.uid, self.gid)
            os.chown(folder, self.uid, self.gid)
        os.chown(path, self.uid, self.gid)


def _held() -> int:
    """Return the capabilities that this process can hand on, a bit each."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("CapEff:")[1].split()[0], 16)
