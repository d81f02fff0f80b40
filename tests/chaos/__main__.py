"""`make chaos`: a seeded run of faults against a real pipeline, and a report. See docs/chaos.md.

The exit code is 0 if the output was SQL's, 1 if not.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys

from dovetail.pipeline.spec import Engine
from tests.chaos.run import DOVETAIL, RATE, RUNNER, Run, run
from tests.chaos.schedule import Runner


def main() -> int:
    wanted = _wanted()
    print(f"{wanted.name}; the same again: {wanted.command}")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        outcome = run(wanted, DOVETAIL / "chaos" / f"{wanted.runner}-{wanted.seed}", _print)
    except KeyboardInterrupt:
        print("stopped")
        return 130
    print()
    for line in outcome.lines():
        print(line)
    print(f"report        {outcome.folder / 'report.txt'}")
    return 0 if outcome.passed else 1


def _wanted() -> Run:
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("--seed", type=int, help="of schedule and events (a random one)")
    parser.add_argument("--minutes", type=float, default=5.0, help="of load (%(default)s)")
    parser.add_argument("--algorithm", default="srj", help="(%(default)s)")
    parser.add_argument("--rate", type=float, default=RATE, help="events a second (%(default)s)")
    parser.add_argument("--engine", type=Engine, default=Engine.SERVICES, help="(%(default)s)")
    layouts = [Runner.SPLIT, Runner.FUSED]
    parser.add_argument("--layout", type=Runner, choices=layouts, default=RUNNER)
    given = parser.parse_args()
    runner = Runner.SPARK if given.engine is Engine.SPARK else given.layout
    seed = random.randrange(1_000_000) if given.seed is None else given.seed
    return Run(seed, given.minutes * 60, given.algorithm, given.rate, runner)


def _print(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
