"""Figures that are no part of the grid: hits alone, and SRJ on a database."""

from __future__ import annotations

import time

import numpy as np

from bench.engine.data import EVENT_BYTES, ROW_BYTES, Stream, drawn, objects
from bench.engine.runner import Runner
from dovetail.join.algorithms import Parameters
from dovetail.join.columns import JoinKeys
from dovetail.join.engine import Engine
from dovetail.join.entry import Entries, MasterRows
from dovetail.join.exchange import Events
from dovetail.join.kinds import JoinKind
from dovetail.join.phase import Relation
from dovetail.join.splice import null_row, splice

_CACHED = 200_000
_BATCH = 10_000
_NO_ROW = null_row([b'"v"'])


def cache_hits(seconds: float) -> float:
    """Events a second that the cache answers, spliced, on one thread; Zipf 1 over all it holds."""
    relation = Relation(pages=1 << 20, page_bytes=1 << 13, unique=True)
    engine = Engine("ssbj", relation, 800 * _CACHED)
    keys = JoinKeys.of_ints(np.arange(_CACHED, dtype=np.int64))
    engine.warm(Entries.of(keys, MasterRows(keys, objects(_CACHED, ROW_BYTES))))
    asked = drawn(_CACHED, 1.0, ordered=False)
    data = objects(_BATCH, EVENT_BYTES)
    ids = np.arange(_BATCH)
    rates = []
    for _ in range(5):
        answered = 0
        began = time.perf_counter()
        while (taken := time.perf_counter() - began) < seconds / 5:
            first = answered % (len(asked) - _BATCH)
            events = Events(JoinKeys.of_ints(asked[first : first + _BATCH]), data, ids)
            hits = engine.offer(events).answers
            splice(JoinKind.INNER, hits.events, hits.entries, hits.starts, _NO_ROW)
            answered += len(hits)
        rates.append(answered / taken)
    return float(np.median(rates))


def batched_over_single(rows: int, seconds: float) -> tuple[float, float]:
    """Events a second of SRJ and of INLJ against PostgreSQL, skew 0, a cache of 1 % of R."""
    from bench.engine.database import catalogue  # noqa: PLC0415 - starts a server

    rates = []
    with catalogue(rows) as relation:
        for algorithm in ("srj", "inlj"):
            engine = Engine(
                algorithm,
                relation.facts,
                max(1 << 20, int(rows * ROW_BYTES * 0.05)),
                parameters=Parameters(keys=1000, cache_share=0.2),
                disk_buffer=1 << 19,
            )
            runner = Runner(algorithm, engine, relation, Stream(drawn(rows, 0.0, ordered=False)))
            runner.run(seconds / 2)
            rates.append(runner.run(seconds).rate)
    return rates[0], rates[1]
