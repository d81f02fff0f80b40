"""PCSRJ on two workers: processes of their own, each with half of R, of S and of the memory.

They run when they are told, both at a time, so that whatever is compared with them can take turns
with them. Each splits the same stream by the slot hash and keeps its own events.
"""

from __future__ import annotations

import multiprocessing
from typing import TYPE_CHECKING, Self

import numpy as np

from bench.engine.data import Stream, drawn, halves
from bench.engine.runner import Runner
from bench.engine.setup import SLACK, parameters
from dovetail.join.columns import JoinKeys
from dovetail.join.engine import Engine
from dovetail.join.mapper import Mapper
from dovetail.master.snapshot.relation import SnapshotRelation
from dovetail.service.allocator import keep_freed_memory

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from pathlib import Path

    from bench.engine.setup import Bench, Cell
    from dovetail.join.cost.plan import Plan

WORKERS = 2


class Workers:
    def __init__(self, bench: Bench) -> None:
        folders = halves(bench.cell.rows)
        plan = bench.plan("pcsrj", ordered=False)
        context = multiprocessing.get_context("spawn")
        self._ends = []
        self._processes = []
        for number, folder in enumerate(folders):
            ours, theirs = context.Pipe()
            process = context.Process(
                target=_work, args=(theirs, number, folder, bench.cell, plan), daemon=True
            )
            process.start()
            self._ends.append(ours)
            self._processes.append(process)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for end, process in zip(self._ends, self._processes, strict=True):
            end.send(None)
            process.join(30)

    def run(self, seconds: float) -> float:
        """Events a second of both together, over so long."""
        for end in self._ends:
            end.send(seconds)
        return float(sum(end.recv() for end in self._ends))


def _work(end: Connection, number: int, folder: Path, cell: Cell, plan: Plan) -> None:
    keep_freed_memory()
    keys = drawn(cell.rows, cell.skew, ordered=False)
    mine = Mapper(WORKERS, int_key=True).slots(JoinKeys.of_ints(keys)) == number
    with SnapshotRelation(folder) as relation:
        engine = Engine(
            "pcsrj",
            relation.facts,
            cell.memory // WORKERS,
            parameters=parameters(plan),
            disk_buffer=int(plan.parts.disk_buffer / WORKERS) + SLACK,
        )
        runner = Runner("pcsrj", engine, relation, Stream(np.ascontiguousarray(keys[mine])))
        while (seconds := end.recv()) is not None:
            end.send(runner.run(seconds).rate)
