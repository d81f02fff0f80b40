from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from dovetail.master.postgres import PostgresMaster
from dovetail.pipeline.check import require_master
from dovetail.service.stage import Context, run_stage
from dovetail.topology import DISK_PHASE
from services.disk_phase.handler import DiskHandler
from services.disk_phase.settings import KEYS_A_QUERY, budget, step

if TYPE_CHECKING:
    from dovetail.stream.loop import Handler


def build(context: Context) -> Handler:
    pipeline = context.pipeline
    require_master(pipeline, context.settings.database_url)
    return DiskHandler(
        pipeline,
        context.topology,
        PostgresMaster(context.settings.database_url, pipeline),
        budget(pipeline),
        KEYS_A_QUERY,
        context.metrics.latency,
    )


if __name__ == "__main__":
    sys.exit(run_stage(DISK_PHASE, step, build))
