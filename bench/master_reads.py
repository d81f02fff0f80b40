"""What reading R from PostgreSQL costs: rows a second by every way there is, on the demo's table.

    python -m bench.master_reads [rows]

Each way is run as often as `_TIMES`; the median counts, the spread stands beside it.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from deploy.local import ports
from deploy.local.home import Home
from deploy.local.postgres import Database
from deploy.local.processes import reap_leftovers, sole_supervisor
from dovetail.api import Postgres
from dovetail.demo.catalogue import ROWS, load_catalogue
from dovetail.join.columns import JoinKeys
from dovetail.join.exchange import Keys, Pages, Partition
from dovetail.master.pipeline import PipelineRelation
from dovetail.pipeline.load import load_pipeline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dovetail.master.relation import MasterRelation

_CHECKOUT = Path(__file__).resolve().parents[1]
_FOLDER = _CHECKOUT / ".dovetail" / "bench" / "master"
_TIMES = 3
_KEYS_AT_ONCE = 1000
_LOOKUPS = 100
_SCANNED = 3000
"""Pages of a scan that are measured."""
_MIB = 1 << 20


@contextmanager
def _catalogue(rows: int) -> Iterator[str]:
    home = Home(_FOLDER, _CHECKOUT / ".dovetail")
    with ExitStack() as stack:
        stack.enter_context(sole_supervisor(home))
        reap_leftovers(home)
        database = Database(home, ports.Ports(home, os.environ, {}).choose(ports.POSTGRES))
        database.prepare()
        stack.callback(database.stop)
        database.start()
        database.wait_until_healthy()
        load_catalogue(database.url, rows, report=lambda _: None)
        yield database.url


def _scan(relation: MasterRelation, most: int) -> int:
    if isinstance(relation, PipelineRelation):
        relation.renew()
    of = relation.facts.pages
    page = place = rows = 0
    while page < min(of, _SCANNED):
        read = relation.read(Pages(page, of, of, place), most)
        page, place = page + read.covers, read.place
        rows += len(read.rows)
    return rows


def _partitions(relation: MasterRelation, rows: int, most: int) -> int:
    dice = np.random.default_rng(1)
    return sum(
        len(relation.read(Partition(JoinKeys.of_ints(key)), most).rows)
        for key in dice.integers(1, rows, (_LOOKUPS, 1))
    )


def _lookups(relation: MasterRelation, rows: int, most: int) -> int:
    dice = np.random.default_rng(2)
    found = 0
    for _ in range(_LOOKUPS):
        keys = np.unique(dice.integers(1, rows, _KEYS_AT_ONCE))
        found += len(relation.read(Keys(JoinKeys.of_ints(keys)), most).rows)
    return found


def _rate(work: Callable[[], int]) -> tuple[float, float]:
    """The median of rows a second, and how far the runs lie apart, as a share of it."""
    work()
    rates = []
    for _ in range(_TIMES):
        began = time.perf_counter()
        rows = work()
        rates.append(rows / (time.perf_counter() - began))
    middle = statistics.median(rates)
    return middle, (max(rates) - min(rates)) / middle


def main() -> None:
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else ROWS
    pipeline = load_pipeline(_CHECKOUT / "pipeline.yaml")
    with _catalogue(rows) as url:
        ahead = PipelineRelation(url, pipeline)
        plain = PipelineRelation(url, pipeline, read_ahead=False)
        binary = Postgres(url, "products").open(
            ["product_id"], list(pipeline.master.columns), unique=True
        )
        ways: dict[str, Callable[[], int]] = {}
        for label, most in (("256 KiB", _MIB // 4), ("1 MiB", _MIB), ("8 MiB", 8 * _MIB)):
            ways[f"pages, JSON, {label}"] = lambda most=most: _scan(plain, most)
            ways[f"pages, JSON, read ahead, {label}"] = lambda most=most: _scan(ahead, most)
            ways[f"pages, binary, {label}"] = lambda most=most: _scan(binary, most)
        ways["partitions of 64 KiB, JSON"] = lambda: _partitions(plain, rows, 64 << 10)
        ways["partitions of 1 MiB, JSON"] = lambda: _partitions(plain, rows, _MIB)
        ways["1,000 keys at once, JSON"] = lambda: _lookups(plain, rows, 4 * _MIB)
        figures = {}
        for name, work in ways.items():
            figures[name], spread = _rate(work)
            print(f"{name:34} {figures[name]:12,.0f} rows/s  ±{spread / 2:.0%}", flush=True)
        for relation in (ahead, plain, binary):
            relation.close()
    print(json.dumps({name: round(rate) for name, rate in figures.items()}))


if __name__ == "__main__":
    main()
