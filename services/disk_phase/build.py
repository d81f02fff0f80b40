"""A join by the pipeline's algorithm, with nothing in it yet."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dovetail.join.auto import CACHING, Auto
from dovetail.join.cost.factors import TYPICAL
from dovetail.join.emigration import Emigration
from dovetail.node.master import MasterJoin
from dovetail.pipeline.spec import Algorithm
from services.cache_phase.settings import budget as cache_budget

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dovetail.join.cost.factors import Factors
    from dovetail.join.policies import CachePolicy
    from dovetail.master.relation import ChangingRelation
    from dovetail.pipeline.spec import Pipeline

FROM_POSTGRES: Factors = replace(TYPICAL, seek=1.6e-3, page=2.1e-4, request=1e-3, key=8e-6)
"""What reading a table of PostgreSQL's takes, to begin with; `auto` learns what it really does.

Seek and page are of the demo's table, 68 rows a page (bench/master_reads.py): the database encodes
320,000 rows a second as JSON. A lookup's are a guess: 125,000 keys a second in batches."""
FROM_FILES: Factors = replace(TYPICAL, key=42e-6)
"""Those of a snapshot's files, by which the models were measured; keys as in docs/snapshots.md."""
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
    among: Sequence[str] | None = (
        None if pipeline.algorithm is Algorithm.AUTO else (pipeline.algorithm,)
    )
    if policy is None and among is None:
        among = CACHING
    factors = factors_of(pipeline)
    auto = Auto(
        relation.facts,
        memory,
        clock,
        factors=factors,
        policy=policy,
        among=among,
        remember=0 if policy else memory // REMEMBERED,
    )
    return MasterJoin(auto, relation, clock=clock)


def factors_of(pipeline: Pipeline) -> Factors:
    """What reading the pipeline's R takes, to begin with."""
    return FROM_FILES if pipeline.master.snapshot else FROM_POSTGRES
