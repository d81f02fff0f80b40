"""Where one algorithm spends its time in one cell of the grid.

    python -m bench.engine.profile ssbj --skew 1 --share 0.1 --seconds 20

The join runs in this process, as it does in `python -m bench.engine`. First its parts are timed as
they are called, which costs it nothing; then it is sampled with py-spy, C frames included; needs
the right to trace a process. R's files are kept for the next run.
"""

from __future__ import annotations

import argparse
import os
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from bench.engine.setup import Bench, Cell, measured_factors
from bench.profile import record, tell
from dovetail.join.algorithms import ALGORITHMS, AUTO
from dovetail.service.allocator import keep_freed_memory

if TYPE_CHECKING:
    from bench.engine.runner import Runner

_WARM_UP = 10.0
_ATTACHING = 3.0
"""Seconds that py-spy takes to begin and to end, about: the join goes on meanwhile."""


class Timed:
    """Stands for a join or a source and adds up the seconds that its parts take."""

    def __init__(self, target: Any, spent: Counter[str], *parts: str) -> None:
        self._target = target
        for part in parts:
            setattr(self, part, self._timed(part, spent))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)

    def _timed(self, part: str, spent: Counter[str]) -> Any:
        call = getattr(self._target, part)

        def timed(*given: Any) -> Any:
            began = time.perf_counter()
            result = call(*given)
            spent[part] += time.perf_counter() - began
            return result

        return timed


def time_parts(runner: Runner, seconds: int) -> None:
    """Tell what each part takes of a step; the rest is the splice, and the driving loop."""
    spent: Counter[str] = Counter()
    join, source = runner.join, runner.source
    runner.join = Timed(join, spent, "offer", "feed")
    runner.source = Timed(source, spent, "read")
    window = runner.run(seconds)
    runner.join, runner.source = join, source
    spent["splice"] = window.seconds - spent.total()
    print(f"{window.rate:,.0f} events/s, {window.step * 1e6:,.0f} µs a step of")
    print(f"{window.rows / window.steps:,.0f} rows, {window.events / window.steps:,.0f} events:")
    for part, taken in spent.most_common():
        print(f"{taken / window.seconds:6.1%}  {part}, {taken / window.steps * 1e6:,.0f} µs")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.engine.profile", description=__doc__)
    parser.add_argument("algorithm", choices=[*ALGORITHMS, AUTO])
    parser.add_argument("--rows", type=int, default=5_000_000, help="rows of R")
    parser.add_argument("--skew", type=float, default=1.0, help="Zipf exponent of the keys")
    parser.add_argument("--share", type=float, default=0.1, help="memory as a share of R")
    parser.add_argument("--ordered", action="store_true", help="R in the order of frequency")
    parser.add_argument("--seconds", type=int, default=20)
    asked = parser.parse_args()
    keep_freed_memory()
    cell = Cell(asked.rows, asked.skew, asked.share)
    runner = Bench.of(cell, measured_factors(cell.rows)).runner(
        asked.algorithm, ordered=asked.ordered
    )
    runner.run(_WARM_UP)
    print(f"{asked.algorithm}, {cell}")
    time_parts(runner, asked.seconds)
    with ThreadPoolExecutor(1) as pool:
        samples = pool.submit(record, os.getpid(), asked.seconds)
        window = runner.run(asked.seconds + _ATTACHING)
        print(f"\n{window.rate:,.0f} events/s while it was sampled")
        tell(samples.result())
    runner.close()


if __name__ == "__main__":
    main()
