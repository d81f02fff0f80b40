"""The benchmark's own processes: recorded and guarded as the stack's are, so none outlives it."""

from __future__ import annotations

import contextlib
import math
import os
import re
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deploy.local.home import CHECKOUT
from deploy.local.processes import Managed
from dovetail.errors import StackError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from deploy.local.home import Home

_TICK_S = 0.2
_SUMMARY = re.compile(
    r"([\d,]+) events in ([\d.]+) s, [\d,]+ events/s(?:; up to ([\d.]+) s behind schedule)? \("
)


@contextlib.contextmanager
def child(
    home: Home, name: str, module: str, arguments: list[str], environment: Mapping[str, str]
) -> Iterator[Managed]:
    env = {
        **os.environ,
        **environment,
        "NUMBA_CACHE_DIR": str(home.cache / "numba"),
        "OMP_NUM_THREADS": "1",
    }
    process = Managed(home, name, [sys.executable, "-m", module, *arguments], env=env, cwd=CHECKOUT)
    try:
        process.start()
        yield process
    finally:
        process.stop()


def wait_for_line(process: Managed, start: str, tick: Callable[[], None]) -> str:
    """Wait until its log has a line that starts so, and return the line."""
    while True:
        # Looked at before the log: what it wrote last is then there to be read.
        ended = process.exit_code() is not None
        for line in process.log.read_text(errors="replace").splitlines():
            if line.startswith(start):
                return line
        if ended:
            process.check()
        tick()
        time.sleep(_TICK_S)


def wait_for_end(process: Managed, tick: Callable[[], None]) -> None:
    while (code := process.exit_code()) is None:
        tick()
        time.sleep(_TICK_S)
    if code:
        process.check()


@dataclass(frozen=True)
class Sent:
    first: int
    """The first sale_id of the load."""
    events: int
    seconds: float
    behind_s: float
    """How late the generator was at worst: above a little, the offered rate was not the one
    asked for."""

    @property
    def rate(self) -> float:
        return self.events / self.seconds


class Load:
    """One endless stream of sales, sent in parts: each begins where the last one ended."""

    def __init__(self, home: Home, topic: str, environment: Mapping[str, str]) -> None:
        self._home = home
        self._topic = topic
        self._environment = environment
        self._next = 1
        self.sent = 0
        """Events in all, those that are being sent included."""

    def skip_to(self, first: int) -> None:
        """Go on with this sale_id."""
        self._next = first

    def send(self, events: int, rate: float, tick: Callable[[], None]) -> Sent:
        first = self._next
        self._next += events
        self.sent += events
        wanted = "max" if rate == math.inf else str(rate)
        arguments = ["generate", "--topic", self._topic, "--skew", "1.0", "--rate", wanted]
        arguments += ["--count", str(events), "--first", str(first)]
        with child(
            self._home, "generator", "dovetail.cli", arguments, self._environment
        ) as process:
            wait_for_end(process, tick)
            summary = process.log.read_text(errors="replace").splitlines()[-1]
        found = _SUMMARY.match(summary)
        if found is None or int(found[1].replace(",", "")) != events:
            raise StackError(f"the generator did not send {events:,} events, but: {summary}")
        return Sent(first, events, float(found[2]), float(found[3] or 0))
