from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from dovetail.service.stage import Context, run_stage
from dovetail.topology import MAPPER
from services.mapper.handler import MapperHandler
from services.mapper.overload import guard_of
from services.mapper.settings import step
from services.warm import warm_stage

if TYPE_CHECKING:
    from dovetail.pipeline.spec import Pipeline
    from dovetail.stream.handler import Handler


def build(context: Context) -> Handler:
    pipeline, topology = context.pipeline, context.topology
    return MapperHandler(pipeline, topology, guard_of(context.settings, pipeline, topology))


def concerns(pipeline: Pipeline) -> object:
    """All of it where it may have to shed; else only where slots are."""
    return pipeline if pipeline.overload else None


if __name__ == "__main__":
    sys.exit(run_stage(MAPPER, step, build, concerns, warm=warm_stage))
