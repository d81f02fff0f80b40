"""What the services' shedder keeps of a join, against the optimum: `python -m bench.shedding`.

A stream that is rho times too fast for the disk phase goes through the shedder that the mapper
runs, on a simulated clock, until the wait has settled; then it is counted for a while which of the
join's result rows are kept. OPTOFFLINESHED knows the same stretch of the stream in advance.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass

import numpy as np

from dovetail.join.columns import Ints, JoinKeys
from dovetail.join.shedding.choice import strategy_named
from dovetail.join.shedding.frequency import KnownFrequencies, most_keys
from dovetail.join.shedding.optimal import optimal_loss
from dovetail.join.shedding.shedder import Shedder
from dovetail.testing.overload import SimulatedPhases

STRATEGIES = ("keep-w", "sample-w", "cluster-sampling", "topw")
KEYS = 3_500
SERVED = 50
"""Events that the disk phase serves in a tick: the paper's w."""
TICK_S = 0.1
SETTLING = 1_500
MEASURED = 120
WHEN_BEHIND_S = 10.0


@dataclass(frozen=True)
class Recorded:
    """A stream, so many events a tick, and the master rows of each key."""

    keys: Ints
    rows: Ints
    a_tick: int

    @classmethod
    def of(cls, rho: float, stream_skew: float, master_skew: float, seed: int) -> Recorded:
        chance = np.random.default_rng(seed)
        a_tick = round(rho * SERVED)
        popularity = _zipf(stream_skew)
        keys = chance.choice(KEYS, (SETTLING + MEASURED) * a_tick, p=popularity)
        # The most frequent keys of the stream and of R are not the same ones.
        rows = np.ceil(_zipf(master_skew) * KEYS * 10).astype(np.int64)
        return cls(keys, chance.permutation(rows), a_tick)

    @property
    def measured(self) -> Ints:
        return self.keys[SETTLING * self.a_tick :]

    def tick(self, number: int) -> JoinKeys:
        return JoinKeys.of_ints(self.keys[number * self.a_tick : (number + 1) * self.a_tick])


def _zipf(exponent: float) -> np.ndarray:
    weights = np.arange(1, KEYS + 1, dtype=float) ** -exponent
    return weights / weights.sum()


def kept_by(strategy: str, stream: Recorded, budget: int, seed: int = 1) -> float:
    """The share of the join's rows that went on while the shedder was in its stride."""
    order = np.argsort(-stream.rows, kind="stable")
    rest = stream.rows[order[most_keys(budget) :]]
    frequencies = KnownFrequencies(
        budget, order, stream.rows[order].astype(float), float(rest.mean()) if len(rest) else 0.0
    )
    made = strategy_named(strategy).make(frequencies, np.random.default_rng(seed))
    phases = SimulatedPhases(
        Shedder(WHEN_BEHIND_S, made), cache_rate=1e9, disk_rate=SERVED / TICK_S
    )
    kept = [
        stream.tick(number).values[phases.tick(TICK_S, stream.tick(number))]
        for number in range(SETTLING + MEASURED)
    ]
    rows = stream.rows[np.concatenate(kept[SETTLING:])].sum()
    return float(rows / stream.rows[stream.measured].sum())


def optimum(stream: Recorded) -> float:
    rows = stream.rows[stream.measured].astype(float)
    return 1.0 - optimal_loss(rows, SERVED, stream.a_tick) / float(rows.sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--budget", type=int, default=1 << 20, help="bytes for f_R")
    budget = parser.parse_args().budget
    print(f"{'z_R':>4} {'rho':>4} " + " ".join(f"{name:>16}" for name in STRATEGIES) + "   optimum")
    worst = 1.0
    for master_skew, rho in ((0.1, 2.0), (0.5, 1.2), (0.5, 2.0), (1.0, 2.0), (1.0, 4.0)):
        streams = [Recorded.of(rho, 0.5, master_skew, seed) for seed in range(3)]
        best = float(np.mean([optimum(stream) for stream in streams]))
        shares = [
            float(np.mean([kept_by(name, stream, budget) for stream in streams]))
            for name in STRATEGIES
        ]
        worst = min(worst, shares[-1] / best)
        print(
            f"{master_skew:4} {rho:4} "
            + " ".join(f"{share:16.1%}" for share in shares)
            + f" {best:9.1%}"
        )
    print(json.dumps({"topw_over_optimum_min": round(worst, 4)}))


if __name__ == "__main__":
    main()
