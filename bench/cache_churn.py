"""Both phases in one process, without a broker: hits, and messages for a million events.

    python -m bench.cache_churn [MiB of cache]

Every event that misses is looked up at once, a batch at a time; Zipf 1 over a million keys, rows
of 120 bytes. Half of the stream fills the cache, the other half is counted.
"""

from __future__ import annotations

import sys

import numpy as np

from bench.engine.data import BATCH, EVENT_BYTES, ROW_BYTES, drawn, objects
from dovetail.join.algorithms import Parameters
from dovetail.join.caching import CachePhase
from dovetail.join.columns import JoinKeys
from dovetail.join.emigration import Emigration
from dovetail.join.engine import Engine, fed
from dovetail.join.entry import MasterRows
from dovetail.join.exchange import Events, Keys, Read
from dovetail.join.phase import Relation

_KEYS = 1_000_000
_SKEW = 1.0


class _Phases:
    def __init__(self, algorithm: str, memory: int) -> None:
        self.cache = CachePhase(algorithm, memory)
        self.emigration = Emigration(algorithm)
        facts = Relation(pages=1 << 14, page_bytes=1 << 13, unique=True)
        self.engine = Engine(
            "srj", facts, 64 << 20, parameters=Parameters(keys=5000), policy=self.emigration
        )
        self._events = objects(BATCH, EVENT_BYTES)
        self._rows = objects(BATCH, ROW_BYTES)
        self._ids = np.arange(BATCH)
        self.asked = self.migrations = self.tombstones = 0

    def step(self, keys: JoinKeys) -> None:
        self.cache.see(EVENT_BYTES)
        misses = self.cache.probe(keys).misses
        missed = self._events.slice(0, len(misses))
        self.engine.offer(Events(keys.take(misses), missed, self._ids[: len(misses)]))
        while (request := self.engine.wants()) is not None:
            assert isinstance(request, Keys)
            rows = MasterRows(request.keys, self._rows.slice(0, len(request.keys)))
            for _ in fed(self.engine, Read.whole(rows, len(request.keys))):
                pass
            self.asked += len(request.keys)
        gone = self.emigration.collected()
        read_at = np.zeros(len(gone), np.int64)
        self.cache.take(gone.entries, gone.events, gone.cycle, read_at)
        self.migrations += len(gone)
        self.tombstones += len(self.cache.departed())

    def reset(self) -> None:
        self.cache.hits = self.asked = self.migrations = self.tombstones = 0


def main() -> None:
    memory = int(float(sys.argv[1]) * (1 << 20)) if len(sys.argv) > 1 else 14 << 20
    stream = drawn(_KEYS, _SKEW, ordered=False)
    steps = len(stream) // BATCH
    print(f"{'':<11}{'hits':>7}{'keys':>9}{'looked up':>11}{'migrations':>12}{'tombstones':>12}")
    for algorithm in ("srj", "cachejoin", "ssbj", "auto"):
        phases = _Phases(algorithm, memory)
        for nth in range(steps):
            if nth == steps // 2:
                phases.reset()
            phases.step(JoinKeys.of_ints(stream[nth * BATCH : (nth + 1) * BATCH]))
        million = (steps - steps // 2) * BATCH / 1e6
        figures = (phases.asked, phases.migrations, phases.tombstones)
        told = "".join(
            f"{count / million:>{width},.0f}"
            for count, width in zip(figures, (11, 12, 12), strict=True)
        )
        print(
            f"{algorithm:<11}{phases.cache.hits / million / 1e6:>7.1%}{len(phases.cache):>9,}{told}"
        )


if __name__ == "__main__":
    main()
