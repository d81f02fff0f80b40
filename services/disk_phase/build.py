"""A join by the pipeline's algorithm, with nothing in it yet."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dovetail.join.algorithms import Parameters
from dovetail.join.auto import Auto
from dovetail.join.cost.factors import TYPICAL
from dovetail.join.cost.footprint import engine_workload
from dovetail.join.cost.popularity import ZipfPopularity
from dovetail.join.emigration import Emigration
from dovetail.join.engine import Engine
from dovetail.join.tuning import ArrivalTuner
from dovetail.node.master import MasterJoin
from dovetail.pipeline.spec import Algorithm
from services.cache_phase.settings import budget as cache_budget
from services.disk_phase.settings import KEYS_A_QUERY

if TYPE_CHECKING:
    from collections.abc import Callable

    from dovetail.join.cost.factors import Factors
    from dovetail.join.phase import Relation
    from dovetail.join.policies import CachePolicy
    from dovetail.master.relation import ChangingRelation
    from dovetail.pipeline.spec import Pipeline

FROM_POSTGRES: Factors = replace(TYPICAL, seek=1.6e-3, page=2.1e-4, request=1e-3, key=8e-6)
"""What reading a table of PostgreSQL's takes, to begin with; `auto` learns what it really does.

Seek and page are of the demo's table, 68 rows a page (bench/master_reads.py): the database encodes
320,000 rows a second as JSON. A lookup's are a guess: 125,000 keys a second in batches."""
FROM_FILES: Factors = replace(TYPICAL, key=42e-6)
"""Those of a snapshot's files, by which the models were measured; keys as in docs/snapshots.md."""
_ROW_BYTES, _EVENT_BYTES = 120.0, 120.0
"""Of what no event and no row was seen of yet."""
_GUESSED_SKEW = 0.5
NODE_SHARE = 7 / 8
REMEMBERED = 512
"""A byte to remember who was looked up lately, for so many bytes of cache that they compete for:
more remembers who comes too seldom, fewer leave the cache empty."""


def build_join(
    pipeline: Pipeline,
    relation: ChangingRelation,
    memory: int,
    clock: Callable[[], float],
) -> MasterJoin:
    """A join whose cache is another process's."""
    emigration = Emigration(pipeline.algorithm, memory=cache_budget(pipeline) // REMEMBERED)
    return _build(pipeline, relation, memory - emigration.allocated, clock, emigration)


def build_node_join(
    pipeline: Pipeline,
    relation: ChangingRelation,
    memory: int,
    clock: Callable[[], float],
) -> MasterJoin:
    """A join that caches in the memory in which its events wait."""
    return _build(pipeline, relation, memory, clock, None)


def _build(
    pipeline: Pipeline,
    relation: ChangingRelation,
    memory: int,
    clock: Callable[[], float],
    policy: CachePolicy | None,
) -> MasterJoin:
    facts = relation.facts
    if pipeline.algorithm is Algorithm.AUTO:
        auto = Auto(facts, memory, clock, factors=factors_of(pipeline), policy=policy)
        return MasterJoin(auto, relation, clock=clock)
    tuner = None
    if pipeline.algorithm is Algorithm.AMESHJOIN:
        tuner = _tuner(facts, memory, clock, factors_of(pipeline))
    parameters = Parameters(keys=KEYS_A_QUERY, tuner=tuner, cache_share=NODE_SHARE)
    engine = Engine(pipeline.algorithm, facts, memory, parameters=parameters, policy=policy)
    return MasterJoin(engine, relation, tuner, clock)


def factors_of(pipeline: Pipeline) -> Factors:
    """What reading the pipeline's R takes, to begin with."""
    return FROM_FILES if pipeline.master.snapshot else FROM_POSTGRES


def _tuner(
    facts: Relation, memory: int, clock: Callable[[], float], factors: Factors
) -> ArrivalTuner:
    rows = facts.rows or facts.pages * facts.page_bytes / _ROW_BYTES
    workload = engine_workload(
        ZipfPopularity(max(1, int(rows)), _GUESSED_SKEW),
        _ROW_BYTES,
        _EVENT_BYTES,
        page_bytes=facts.page_bytes,
        unique=facts.unique,
    )
    return ArrivalTuner(workload, factors, memory, clock)
