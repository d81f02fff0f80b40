"""`make bench-engine`: what each algorithm of the join engine does on this machine, in one run.

R is read from disk past the page cache, each algorithm is set up by its own cost model for the
memory, warmed up, and then measured several times, by turns with the others of its cell, so that
whatever else the machine does meets all of them. Every answer is spliced into its output. The last
line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import attrgetter
from statistics import fmean, median, quantiles
from typing import TYPE_CHECKING

from bench.engine import data, singles
from bench.engine.optimum import PAPER, allowed_ratio
from bench.engine.setup import CALIBRATION, Bench, Cell, measured_factors, step_work
from bench.engine.workers import Workers
from dovetail.join.auto import Auto
from dovetail.join.cost.sizing import READ_AHEAD_FROM
from dovetail.join.engine import Engine
from dovetail.service.allocator import keep_freed_memory

if TYPE_CHECKING:
    from bench.engine.runner import Runner, Window
    from dovetail.join.cost.factors import Factors

ORDERED = "+"
"""Marks a run with R in the papers' order, by frequency."""
MODELLED = ("meshjoin", "ssbj", "hybridjoin", "hybridjoin+")
GRID = (
    "meshjoin",
    "ameshjoin",
    "ssbj",
    "auto",
    "cmeshjoin",
    "hybridjoin",
    "hybridjoin+",
    "cachejoin",
    "ssbj-index",
    "srj",
    "inlj",
)
QUICK = ("meshjoin", "ssbj", "auto", "hybridjoin", "hybridjoin+", "cachejoin", "inlj")

_LITTLE = 0.05
_OTHERWISE = {
    "ssbj_over_optimum": "ssbj_over_optimum_processor_bound",
    "pcsrj2_over_cachejoin": "pcsrj2_over_cachejoin_disk_bound",
}
"""Figures that hold on certain terms, and what the same is called on others."""
LEARNING = ("ssbj", "auto", "cmeshjoin", "cachejoin", "ssbj-index", "srj")
"""Those whose cache takes time to settle: SSBJ's about ten cycles of R."""


@dataclass
class Settings:
    cells: list[Cell]
    algorithms: tuple[str, ...]
    warm_up: float
    """Seconds, and three times as many for those that learn."""
    window: float
    """Seconds: short, so that those that are compared meet the same minute of the disk."""
    windows: int
    calibration: float = CALIBRATION
    single: float = 2.0
    """Seconds for each figure that is no part of the grid."""
    looked_up: int = 1_000_000
    """Rows of the table in PostgreSQL."""

    @classmethod
    def full(cls) -> Settings:
        """Skews and shares for the middle size, the corners for the others."""
        corners = [
            Cell(rows, skew, share)
            for rows in (1_000_000, 20_000_000)
            for share in (0.01, 0.1)
            for skew in (0.0, 1.0)
        ]
        middle = [
            Cell(5_000_000, skew, share) for share in (0.01, 0.1) for skew in (0.0, 0.3, 0.6, 1.0)
        ]
        middle += [Cell(5_000_000, 1.0, 0.03)]
        return cls(middle + corners, GRID, 2.0, 0.2, 12)

    @classmethod
    def quick(cls) -> Settings:
        chosen = [(0.0, 0.01), (0.5, 0.01), (1.0, 0.01), (0.0, 0.1), (1.0, 0.1)]
        cells = [Cell(5_000_000, skew, share) for skew, share in chosen]
        return cls(cells, QUICK, 1.5, 0.15, 12)


@dataclass
class Measured:
    """One algorithm in one cell."""

    runner: Runner
    windows: list[Window] = field(default_factory=list)

    @property
    def rate(self) -> float:
        return self.rate_of(0)

    @property
    def spread(self) -> float:
        """Between the quarters: half of the windows lie so close together."""
        low, _, high = quantiles((window.rate for window in self.windows), n=4)
        return (high - low) / self.rate if self.rate else 0.0

    def over(self, other: Measured, first: int = 0) -> float:
        """The ratio of rates over windows that took turns, so that both met the same machine."""
        return self.rate_of(first) / max(1.0, other.rate_of(first))

    def rate_of(self, first: int, end: int | None = None) -> float:
        """Of these windows together: an index answers in bursts, which no median may cut off."""
        chosen = self.windows[first:end]
        return sum(window.events for window in chosen) / sum(window.seconds for window in chosen)

    @property
    def held(self) -> int:
        join = self.runner.join
        engine = join.engine if isinstance(join, Auto) else join
        assert isinstance(engine, Engine)
        return engine.held.used + engine.disk_buffer


def run_cell(cell: Cell, factors: Factors, settings: Settings) -> tuple[Bench, dict[str, Measured]]:
    bench = Bench.of(cell, factors)
    found = {}
    for name in settings.algorithms:
        plain = name.removesuffix(ORDERED)
        runner = bench.runner(plain, ordered=name != plain)
        runner.run(settings.warm_up * (3 if name in LEARNING else 1))
        found[name] = Measured(runner)
    for _ in range(settings.windows):
        for measured in found.values():
            measured.windows.append(measured.runner.run(settings.window))
    for measured in found.values():
        measured.runner.close()
    return bench, found


def report_cell(bench: Bench, found: dict[str, Measured]) -> list[Errors]:
    """Print a cell's table; return how far off the predicted c_loops were."""
    print(f"\n{bench.cell}, {bench.cell.memory / 1e6:.1f} MB")
    print("  algorithm      events/s  spread      held    hits  µs/step  predicted, refined")
    errors = []
    for name, measured in found.items():
        last = measured.windows[-1]
        step = median(window.step for window in measured.windows)
        shown = ""
        if name in MODELLED:
            error = errors_of(name, bench, measured)
            errors.append(error)
            shown = f"{error.offline:+.0%}, {error.online:+.0%}"
        if isinstance(measured.runner.join, Auto):
            shown = " ► ".join(choice.algorithm for choice in measured.runner.join.choices)
        print(
            f"  {name:12} {measured.rate:10,.0f} {measured.spread:7.0%} "
            f"{measured.held / 1e6:6.1f} MB {last.hits / max(1, last.events):7.1%} "
            f"{step * 1e6:8,.0f}  {shown}"
        )
    return errors


@dataclass(frozen=True)
class Errors:
    """How far a predicted c_loop is from the measured one, as a share of it; medians."""

    offline: float
    """By the factors that were measured before any cell."""
    online: float
    """By factors that were refined by the windows before."""


def errors_of(name: str, bench: Bench, measured: Measured) -> Errors:
    """c_loop by the model's equation, for what a step read and let in."""
    factors = replace(bench.factors, read_ahead=reads_ahead(name, measured))
    offline, online = [], []
    refined = factors
    for window in measured.windows:
        work = step_work(window)
        offline.append(factors.cost(work) / window.seconds - 1)
        online.append(refined.cost(work) / window.seconds - 1)
        refined = refined.refined(work, window.seconds, 1.0)
    return Errors(median(offline), median(online[1:]))


def reads_ahead(name: str, measured: Measured) -> bool:
    return name in MODELLED and measured.runner.join.disk_buffer >= READ_AHEAD_FROM


def bound_by_reading(bench: Bench, measured: Measured) -> bool:
    """Whether a step's read takes far longer than all else that it does."""
    work = step_work(measured.windows[-1])
    return bench.factors.reading(work) > 2 * bench.factors.joining(work)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.engine", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smaller grid, in five minutes")
    keep_freed_memory()
    parser.add_argument("--rows", type=int, action="append", help="R of so many rows only")
    parser.add_argument("--keep", action="store_true", help="keep R's files for the next run")
    args = parser.parse_args()
    settings = Settings.quick() if args.quick else Settings.full()
    if args.rows:
        settings.cells = [cell for cell in settings.cells if cell.rows in args.rows]
    try:
        print(json.dumps(measure(settings)))
    finally:
        if not args.keep:
            data.clear()


def measure(settings: Settings) -> dict[str, float]:
    figures: dict[str, float] = {"cache_hits_per_s": singles.cache_hits(settings.single)}
    print(f"hits alone, one thread, spliced: {figures['cache_hits_per_s']:,.0f} events/s")
    ratios = Ratios()
    errors: list[Errors] = []
    for rows, cells in groupby(settings.cells, key=attrgetter("rows")):
        print(f"\nR of {rows:,} rows: writing it, measuring the cost factors")
        factors = measured_factors(rows, settings.calibration)
        print("  " + "  ".join(f"{name} {value}" for name, value in shown(factors).items()))
        for cell in cells:
            bench, found = run_cell(cell, factors, settings)
            errors += report_cell(bench, found)
            compare(bench, found, ratios)
            if cell.skew == 1.0 and cell.share in {0.01, 0.1}:
                compare_nodes(bench, settings, ratios)
    srj, single = singles.batched_over_single(settings.looked_up, settings.single)
    print(f"\nPostgreSQL: srj {srj:,.0f} events/s, tuple by tuple {single:,.0f}")
    ratios.note("srj_over_tuple", srj / single)
    figures |= ratios.least()
    figures["cloop_error_max"] = max(abs(error.online) for error in errors)
    figures["cloop_error_offline_max"] = max(abs(error.offline) for error in errors)
    return {name: round(value, 3) for name, value in figures.items()}


class Ratios:
    """The ratios of all cells by the figure that they count for."""

    def __init__(self) -> None:
        self._noted: dict[str, list[float]] = {}

    def note(self, figure: str, ratio: float) -> None:
        self._noted.setdefault(figure, []).append(ratio)

    def least(self) -> dict[str, float]:
        """The least ratio by figure; where no cell met a figure's terms, of those that did not."""
        found = {figure: min(noted) for figure, noted in self._noted.items()}
        for figure, otherwise in _OTHERWISE.items():
            if otherwise in found:
                found.setdefault(figure, found[otherwise])
        return found


def compare(bench: Bench, found: dict[str, Measured], ratios: Ratios) -> None:
    """Note the ratios that a cell contributes to the figures."""
    cell, mesh = bench.cell, found["meshjoin"]
    over = found["ssbj"].over(mesh)
    if cell.skew == 1.0:
        allowed = allowed_ratio(cell.rows, cell.skew, cell.memory)
        paper = allowed_ratio(cell.rows, cell.skew, cell.memory, PAPER)
        reading = bound_by_reading(bench, mesh) and bound_by_reading(bench, found["ssbj"])
        print(
            f"  ssbj over meshjoin {over:.2f}; theorem 1 allows {allowed:.2f} here ({paper:.2f} by "
            f"the paper's account); {'reading' if reading else 'the processor'} is what bounds"
        )
        ratios.note("ssbj_over_meshjoin_skew1", over)
        if reading:
            ratios.note("ssbj_over_optimum", over / allowed)
        else:
            ratios.note(_OTHERWISE["ssbj_over_optimum"], over / allowed)
    if cell.skew == 0.0:
        ratios.note("ssbj_over_meshjoin_skew0", over)
    if cell.skew > 0.2:
        ratios.note("hybrid_over_meshjoin_min", found["hybridjoin+"].over(mesh))
        ratios.note("hybrid_random_over_meshjoin_min", found["hybridjoin"].over(mesh))
    ratios.note("meshjoin_over_inlj", mesh.over(found["inlj"]))
    fixed = {name for name in found if name != "auto" and ORDERED not in name}
    # The best is found by the first windows and compared in the others: of several that are alike
    # the best of the same windows would be the luckiest.
    early = len(found["auto"].windows) // 3
    best = max(fixed, key=lambda name: found[name].rate_of(0, early))
    over = found["auto"].over(found[best], early)
    print(f"  auto over {best}, the best of the fixed: {over:.2f}")
    ratios.note("auto_over_best_min", over)


def compare_nodes(bench: Bench, settings: Settings, ratios: Ratios) -> None:
    """PCSRJ on two workers against CACHEJOIN on one, by turns."""
    runner = bench.runner("cachejoin", ordered=False)
    runner.run(settings.warm_up)
    with Workers(bench) as workers:
        workers.run(settings.warm_up)
        rounds = [
            (workers.run(settings.window), runner.run(settings.window).rate)
            for _ in range(settings.windows)
        ]
    runner.close()
    both, one = (fmean(column) for column in zip(*rounds, strict=True))
    print(f"  pcsrj on two workers {both:,.0f} events/s, cachejoin {one:,.0f}")
    # In the smaller memory both wait for the one disk, which two workers do not make faster.
    figure = "pcsrj2_over_cachejoin"
    ratios.note(figure if bench.cell.share > _LITTLE else _OTHERWISE[figure], both / one)


def shown(factors: Factors) -> dict[str, str]:
    names = ("seek", "page", "step", "match", "append", "evict", "probe", "output")
    return {name: f"{getattr(factors, name) * 1e9:,.0f} ns" for name in names}


if __name__ == "__main__":
    main()
