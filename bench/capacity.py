"""The capacity tables of docs/operations.md, by the cost models behind `dovetail size`.

    python -m bench.capacity            (make capacity)

Nothing is measured here: the factors are those that the repository has, so the same release prints
the same tables on every machine.

1. What one node's join does, over R in snapshot files and over R in PostgreSQL, by the algorithm
   that the models rank first; and how many nodes a rate takes, R from files. n nodes have R's slots
   and the memory divided among them; each is bound by its join, and by what the two phases take for
   an event whatever they join.
2. How many cores the whole pipeline takes.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from typing import TYPE_CHECKING

from dovetail.join.cost.factors import TYPICAL
from dovetail.join.cost.footprint import engine_workload
from dovetail.join.cost.popularity import ZipfPopularity
from dovetail.join.cost.sizing import rate_for
from dovetail.pipeline.spec import LEAST_MEMORY
from services.disk_phase.build import FROM_FILES, FROM_POSTGRES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dovetail.join.cost.factors import Factors
    from dovetail.join.cost.plan import Plan

ROWS = (1_000_000, 5_000_000, 20_000_000, 100_000_000)
ROW_BYTES, EVENT_BYTES = 120, 130
SKEWS = (0.0, 0.5, 1.0)
SHARES = (0.01, 0.05, 0.10)
RATES = (50_000, 100_000, 500_000)
HITS = (0.0, 0.5, 0.7, 0.9)
MOST_NODES = 64

# Those that differ: ameshjoin is meshjoin with other b and w, ssbj-index is cachejoin's model, and
# pcsrj is cachejoin on several nodes, which the table has for all of them.
ALGORITHMS = ("meshjoin", "hybridjoin", "cachejoin", "ssbj", "srj", "inlj")

FILES: Factors = FROM_FILES
POSTGRES: Factors = replace(FROM_POSTGRES, request=TYPICAL.request, key=TYPICAL.key)
"""Pages as of the demo's table (bench/master_reads.py), lookups as docs/sizing.md has them."""


@dataclass(frozen=True)
class Costs:
    """CPU time of an event in µs, as measured end to end: README.md, How fast."""

    ingest: float = 1.8
    mapper: float = 0.65
    cache_phase: float = 2.2
    disk_phase: float = 7.4
    """Of an event that misses, like PostgreSQL's."""
    postgres: float = 9.7
    broker: float = 5.7

    def cores(self, rate: float, hits: float) -> float:
        misses = (1 - hits) * (self.disk_phase + self.postgres)
        an_event = self.ingest + self.mapper + self.cache_phase + self.broker + misses
        return rate * an_event / 1e6

    def node(self, hits: float) -> float:
        """Events a second that a core for each phase of a node takes."""
        slower = max(self.cache_phase, (1 - hits) * self.disk_phase)
        return 1e6 / slower


COSTS = Costs()


@dataclass(frozen=True)
class Best:
    algorithm: str
    plan: Plan


@cache
def best(rows: float, skew: float, memory: float, factors: Factors) -> Best | None:
    """What the models rank first; None if no algorithm can run in so little."""
    workload = engine_workload(ZipfPopularity(rows, skew), ROW_BYTES, EVENT_BYTES)
    first = rate_for(workload, factors, memory, ALGORITHMS)[0]
    return Best(first.algorithm, first.plan) if first.plan else None


def nodes_for(rate: float, rows: int, skew: float, memory: float) -> int | None:
    """The fewest nodes that take this rate together, in this memory in all; None if too many."""

    def together(nodes: int) -> float:
        share = max(memory / nodes, LEAST_MEMORY)
        found = best(rows / nodes, skew, share, FILES)
        if found is None:
            return 0.0
        return nodes * min(found.plan.rate, COSTS.node(found.plan.hit_share))

    enough = (nodes for nodes in range(1, MOST_NODES + 1) if together(nodes) >= rate)
    return next(enough, None)


def join_table() -> Iterator[str]:
    yield from _head(
        *("R", "memory", "skew", "files: events/s", "by", "hits"),
        *(f"nodes for {rate // 1000} k" for rate in RATES),
        *("PostgreSQL: events/s", "by"),
    )
    for rows, share, skew in product(ROWS, SHARES, SKEWS):
        memory = rows * ROW_BYTES * share
        files = best(rows, skew, memory, FILES)
        table = best(rows, skew, memory, POSTGRES)
        nodes = (nodes_for(rate, rows, skew, memory) for rate in RATES)
        yield _row(
            *(f"{rows // 1_000_000} M", f"{share:.0%}, {memory / (1 << 20):,.1f} MiB"),
            f"{skew:g}",
            *_rate(files),
            f"{files.plan.hit_share:.0%}" if files else "–",
            *(str(fewest or "–") for fewest in nodes),
            *_rate(table),
        )


def core_table() -> Iterator[str]:
    yield from _head("hits", *(f"cores for {rate // 1000} k" for rate in RATES))
    for hits in HITS:
        yield _row(f"{hits:.0%}", *(f"{COSTS.cores(rate, hits):.1f}" for rate in RATES))


def tables() -> dict[str, list[str]]:
    """Every table, by the name that the handbook has for it."""
    return {
        "join": list(join_table()),
        "cores": list(core_table()),
    }


def _rate(found: Best | None) -> tuple[str, str]:
    return (_rounded(found.plan.rate), f"`{found.algorithm}`") if found else ("–", "–")


def _rounded(rate: float) -> str:
    """Two digits: the factors know no more."""
    step = 10 ** max(0, len(str(int(rate))) - 2)
    return f"{round(rate / step) * step:,}"


def _head(*names: str) -> Iterator[str]:
    yield _row(*names)
    yield _row(*("---" for _ in names))


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def main() -> int:
    for name, lines in tables().items():
        print(f"<!-- {name} -->")
        print("\n".join(lines))
        print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
