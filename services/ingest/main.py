from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING

from dovetail.service.stage import Context, run_stage
from dovetail.stream.engines import require_services
from dovetail.stream.topics import keep_up
from dovetail.topology import INGEST
from services.ingest.handler import IngestHandler
from services.ingest.routes import EventsByHttp
from services.ingest.settings import step
from services.warm import warm_stage

if TYPE_CHECKING:
    from dovetail.stream.handler import Handler


def build(context: Context) -> Handler:
    require_services(context.settings, context.topology)
    context.annexes.append(EventsByHttp(context))
    timed = context.pipeline.source.event_time is not None
    lag = context.metrics.event_time_lag() if timed else None
    topology = context.topology
    grow = partial(keep_up, context.settings, topology.source, topology.clean)
    ours = partial(require_services, context.settings, topology)
    return IngestHandler(context.pipeline, topology, lag, keep_up=grow, require_ours=ours)


if __name__ == "__main__":
    sys.exit(run_stage(INGEST, step, build, lambda pipeline: pipeline.source, warm=warm_stage))
