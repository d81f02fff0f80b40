"""Where one algorithm spends its time in one cell of the grid.

    python -m bench.engine.profile ssbj --skew 1 --share 0.1 --seconds 10

The join runs in this process, as it does in `python -m bench.engine`, and is sampled with py-spy,
C frames included; needs the right to trace a process. R's files are kept for the next run.
"""

from __future__ import annotations

import argparse
import os
from concurrent.futures import ThreadPoolExecutor

from bench.engine.setup import Bench, Cell, measured_factors
from bench.profile import record, tell
from dovetail.join.algorithms import ALGORITHMS, AUTO
from dovetail.service.allocator import keep_freed_memory

_WARM_UP = 5.0
_ATTACHING = 3.0
"""Seconds that py-spy takes to begin and to end, about: the join goes on meanwhile."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.engine.profile", description=__doc__)
    parser.add_argument("algorithm", choices=[*ALGORITHMS, AUTO])
    parser.add_argument("--rows", type=int, default=5_000_000, help="rows of R")
    parser.add_argument("--skew", type=float, default=1.0, help="Zipf exponent of the keys")
    parser.add_argument("--share", type=float, default=0.1, help="memory as a share of R")
    parser.add_argument("--ordered", action="store_true", help="R in the order of frequency")
    parser.add_argument("--seconds", type=int, default=10)
    asked = parser.parse_args()
    keep_freed_memory()
    cell = Cell(asked.rows, asked.skew, asked.share)
    runner = Bench.of(cell, measured_factors(cell.rows)).runner(
        asked.algorithm, ordered=asked.ordered
    )
    runner.run(_WARM_UP)
    with ThreadPoolExecutor(1) as pool:
        samples = pool.submit(record, os.getpid(), asked.seconds)
        window = runner.run(asked.seconds + _ATTACHING)
        print(f"{asked.algorithm}, {cell}: {window.rate:,.0f} events/s while it was sampled")
        tell(samples.result())
    runner.close()


if __name__ == "__main__":
    main()
