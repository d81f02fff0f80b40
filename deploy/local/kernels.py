"""The kernels, compiled beside everything else that a start has to wait for."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from deploy.local.files import last_lines
from deploy.local.home import CHECKOUT
from deploy.local.processes import guarded
from dovetail.errors import StackError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from deploy.local.home import Home

_STUCK_S = 300.0
"""The largest kernel takes seconds, and a busy machine ten times as long."""
_TELL_EVERY_S = 5.0
_USUAL = 170
"""How many kernels a pipeline such as the demo's has, to say how far it is."""


def kept_in(home: Home, code: Path = CHECKOUT) -> dict[str, str]:
    """The environment in which compiled kernels are found again.

    Another folder of code has a place of its own: two releases never share a kernel.
    """
    if code != CHECKOUT:
        return {"NUMBA_CACHE_DIR": str(home.cache / "numba" / code.name)}
    return {"NUMBA_CACHE_DIR": os.environ.get("NUMBA_CACHE_DIR", str(home.cache / "numba"))}


@contextlib.contextmanager
def compiling(
    home: Home, pipeline: Path, report: Callable[[str], None], code: Path = CHECKOUT
) -> Iterator[Callable[..., None]]:
    """Compile in the background; gives a function that waits, and tells how far it is, up to 1."""
    log = home.logs / "kernels.log"
    began = time.time()
    with log.open("wb") as output:
        child = subprocess.Popen(
            guarded([sys.executable, "-m", "deploy.local.warm", str(pipeline.resolve())]),
            cwd=code,
            env={**os.environ, **kept_in(home, code)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )

    kept = Path(kept_in(home, code)["NUMBA_CACHE_DIR"])

    def wait(progress: Callable[[float], None] = lambda _: None) -> None:
        moved = told = time.monotonic()
        before = 0
        while child.poll() is None:
            now = time.monotonic()
            compiled = _compiled(kept, began)
            if compiled != before:
                before, moved = compiled, now
            progress(min(compiled / _USUAL, 1.0))
            if now - told > _TELL_EVERY_S:
                report(f"compiling the kernels: {compiled} of about {_USUAL}")
                told = now
            if now - moved > _STUCK_S:
                raise StackError(f"no kernel was compiled for {_STUCK_S:.0f} s: see {log}")
            time.sleep(0.2)
        if child.returncode:
            raise StackError(f"the kernels do not compile. The end of {log}:\n{last_lines(log)}")

    try:
        yield wait
    finally:
        child.kill()
        child.wait()


def _compiled(folder: Path, since: float) -> int:
    """How many kernels were compiled: a stale one's place is taken by the new one."""
    count = 0
    for file in folder.rglob("*.nbc"):
        with contextlib.suppress(FileNotFoundError):
            count += file.stat().st_mtime >= since
    return count
