"""What a table of `enrich` is joined by, and where it is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.join.algorithms import Parameters
from dovetail.join.emigration import Emigration
from dovetail.join.engine import Engine
from dovetail.node.master import MasterJoin
from services.cache_phase.settings import budget as cache_budget
from services.disk_phase.build import REMEMBERED
from services.disk_phase.settings import KEYS_A_QUERY
from services.spark.enrich_choice import SCAN

if TYPE_CHECKING:
    from dovetail.master.relation import ChangingRelation
    from dovetail.pipeline.spec import Pipeline


def build_chosen_join(pipeline: Pipeline, relation: ChangingRelation, memory: int) -> MasterJoin:
    """A join for `auto`, whose algorithm is chosen batch by batch; as `build_join` makes others."""
    emigration = Emigration(pipeline.algorithm, memory=cache_budget(pipeline) // REMEMBERED)
    parameters = Parameters(keys=KEYS_A_QUERY)
    engine = Engine(
        SCAN,
        relation.facts,
        memory - emigration.allocated,
        parameters=parameters,
        policy=emigration,
    )
    return MasterJoin(engine, relation)
