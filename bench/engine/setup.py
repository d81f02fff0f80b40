"""Joins set up for a cell of the grid, each tuned by its own cost model for its memory."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from bench.engine.data import EVENT_BYTES, ROW_BYTES, Stream, drawn, snapshot
from bench.engine.runner import Runner
from dovetail.join.algorithms import Parameters
from dovetail.join.auto import Auto
from dovetail.join.columns import JoinKeys
from dovetail.join.cost.factors import Work
from dovetail.join.cost.footprint import engine_workload
from dovetail.join.cost.measure import KEYS, PAGES, affine, measure
from dovetail.join.cost.popularity import ZipfPopularity
from dovetail.join.cost.sizing import READ_AHEAD_FROM, models
from dovetail.join.engine import Engine
from dovetail.join.exchange import Keys, Pages
from dovetail.join.tuning import ArrivalTuner
from dovetail.master.snapshot.relation import SnapshotRelation

if TYPE_CHECKING:
    from pathlib import Path

    from bench.engine.runner import Window
    from dovetail.join.columns import Ints
    from dovetail.join.cost.factors import Factors
    from dovetail.join.cost.plan import Plan
    from dovetail.join.cost.workload import Workload

MODEL_OF = {"cmeshjoin": "ssbj", "ameshjoin": "meshjoin"}
"""Whose plan an algorithm without a model of its own is set up by."""
SLACK = 32 << 10
"""Direct reads start and end at whole blocks of every file."""
_READS = 9
_A_LOT = 1 << 26
ROWS_A_PAGE = 64
_CALIBRATED_SKEW, _CALIBRATED_SHARE = 0.8, 0.04
CALIBRATION = 1.2
"""Seconds of warming up, and of measuring, for each join that the factors are corrected by."""
_SWEEPS = 50


@dataclass(frozen=True)
class Cell:
    rows: int
    skew: float
    share: float
    """Memory as a share of R's bytes."""

    @property
    def memory(self) -> int:
        return int(self.rows * ROW_BYTES * self.share)

    def __str__(self) -> str:
        return f"{self.rows / 1e6:g} M rows, skew {self.skew:g}, {self.share:.0%} of R"


@dataclass(frozen=True)
class Bench:
    """A cell with its streams, and the factors that were measured in this run."""

    cell: Cell
    factors: Factors
    keys: dict[bool, Ints]
    """Of the stream, by whether R lies in the papers' order."""

    @classmethod
    def of(cls, cell: Cell, factors: Factors) -> Bench:
        keys = {ordered: drawn(cell.rows, cell.skew, ordered=ordered) for ordered in (True, False)}
        return cls(cell, factors, keys)

    def workload(self, *, ordered: bool) -> Workload:
        return engine_workload(
            ZipfPopularity(self.cell.rows, self.cell.skew),
            ROW_BYTES,
            EVENT_BYTES,
            page_bytes=ROWS_A_PAGE * ROW_BYTES,
            ordered=ordered,
            unique=True,
        )

    def plan(self, algorithm: str, *, ordered: bool) -> Plan:
        model = models()[MODEL_OF.get(algorithm, algorithm)]
        return model.highest_rate(self.workload(ordered=ordered), self.factors, self.cell.memory)

    def runner(self, algorithm: str, *, ordered: bool) -> Runner:
        relation = SnapshotRelation(snapshot(self.cell.rows))
        if algorithm == "auto":
            auto = Auto(
                relation.facts,
                self.cell.memory,
                time.perf_counter,
                factors=self.factors,
                row_bytes=ROW_BYTES,
                event_bytes=EVENT_BYTES,
            )
            return Runner(algorithm, auto, relation, Stream(self.keys[ordered]))
        plan = self.plan(algorithm, ordered=ordered)
        disk_buffer = int(max(SLACK, plan.parts.disk_buffer)) + SLACK
        if algorithm in {"srj", "inlj"}:
            disk_buffer = max(disk_buffer, self.cell.memory // 8)
        tuner = self._tuner() if algorithm == "ameshjoin" else None
        engine = Engine(
            algorithm,
            relation.facts,
            self.cell.memory,
            parameters=replace(parameters(plan), tuner=tuner),
            disk_buffer=disk_buffer,
        )
        return Runner(algorithm, engine, relation, Stream(self.keys[ordered]), tuner)

    def _tuner(self) -> ArrivalTuner:
        memory = self.cell.memory
        workload = self.workload(ordered=False)
        return ArrivalTuner(workload, self.factors, memory, time.perf_counter)


def parameters(plan: Plan) -> Parameters:
    held = plan.parts.cache + plan.parts.pending + plan.parts.queue
    return Parameters(
        pages=max(1, int(plan.pages)),
        keys=max(1, int(plan.events)),
        cache_share=min(0.9, max(0.05, plan.parts.cache / held)) if held else 0.5,
    )


def measured_factors(rows: int, calibration: float = CALIBRATION) -> Factors:
    """The processor's factors from the engine, the disk's from the snapshot itself."""
    folder = snapshot(rows)
    found = measure(time.perf_counter, row_bytes=ROW_BYTES, event_bytes=EVENT_BYTES)
    seek, page = affine(PAGES, [_read_seconds(folder, rows, pages) for pages in PAGES])
    request, key = affine(KEYS, [_lookup_seconds(folder, rows, count) for count in KEYS])
    found = replace(found, seek=seek, page=page, request=request, key=key, read_ahead=True)
    return calibrated(found, rows, calibration)


def calibrated(factors: Factors, rows: int, seconds: float) -> Factors:
    """Correct the factors by steps of whole joins, other ones than those that are measured."""
    keys = drawn(rows, _CALIBRATED_SKEW, ordered=False)
    lessons = []
    for algorithm in ("meshjoin", "ssbj"):
        for disk_buffer in (1 << 20, 8 << 20):
            with SnapshotRelation(snapshot(rows)) as relation:
                memory = disk_buffer + int(_CALIBRATED_SHARE * rows * ROW_BYTES)
                engine = Engine(algorithm, relation.facts, memory, disk_buffer=disk_buffer)
                runner = Runner(algorithm, engine, relation, Stream(keys))
                runner.run(seconds)
                lessons.append((runner.run(seconds), disk_buffer >= READ_AHEAD_FROM))
    for _ in range(_SWEEPS):
        for window, ahead in lessons:
            work = step_work(window)
            refined = replace(factors, read_ahead=ahead).refined(work, window.seconds, 0.2)
            factors = replace(refined, read_ahead=True)
    return factors


def step_work(window: Window) -> Work:
    """What was done in a window of a scan."""
    missed = window.events - window.hits
    return Work(
        seek=window.steps,
        page=window.rows / ROWS_A_PAGE,
        step=window.steps,
        match=window.rows,
        probe=window.hits,
        append=missed,
        evict=missed,
        compare=missed,
        output=window.events,
    )


def _read_seconds(folder: Path, rows: int, pages: int) -> float:
    """The median of reads at random places, one after the other."""
    with SnapshotRelation(folder, read_ahead=False) as relation:
        of = relation.facts.pages
        dice = np.random.default_rng(rows + pages)
        seconds = []
        for first in dice.integers(0, max(1, of - pages), _READS).tolist():
            began = time.perf_counter()
            relation.read(Pages(first, pages, of), _A_LOT)
            seconds.append(time.perf_counter() - began)
    return float(np.median(seconds))


def _lookup_seconds(folder: Path, rows: int, count: int) -> float:
    with SnapshotRelation(folder) as relation:
        dice = np.random.default_rng(rows + count)
        seconds = []
        for _ in range(_READS):
            wanted = Keys(JoinKeys.of_ints(np.unique(dice.integers(0, rows, count))))
            began = time.perf_counter()
            relation.read(wanted, _A_LOT)
            seconds.append(time.perf_counter() - began)
    return float(np.median(seconds))
