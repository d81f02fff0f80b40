from __future__ import annotations

import sys
import time
from functools import partial
from typing import TYPE_CHECKING

from dovetail.join.line import Line
from dovetail.node.window import Window
from dovetail.service.questions import Questions
from dovetail.service.stage import Context, run_stage
from dovetail.stream.progress import ProgressReader
from dovetail.stream.topic_settings import largest_message
from dovetail.topology import DISK_PHASE
from services.disk_phase.build import build_join
from services.disk_phase.handler import DiskHandler
from services.disk_phase.look import AlgorithmLook
from services.disk_phase.relation import relation_of
from services.disk_phase.settings import budget, shares, step
from services.warm import warm_stage

if TYPE_CHECKING:
    from dovetail.stream.handler import Handler


def build(context: Context) -> Handler:
    pipeline, settings = context.pipeline, context.settings
    relation = relation_of(context)
    mine, within = shares(pipeline), pipeline.order.within
    questions = Questions()
    handler = DiskHandler(
        context.topology,
        build_join(pipeline, relation, mine.join, time.monotonic),
        Window(mine.capacity),
        ProgressReader(settings, context.topology.progress),
        budget(pipeline),
        context.metrics.latency,
        partial(largest_message, settings, context.topology.enriched),
        time.monotonic,
        None if within is None else Line(within, mine.line),
        questions,
    )
    context.annexes.append(AlgorithmLook(context, questions, handler))
    return handler


if __name__ == "__main__":
    sys.exit(run_stage(DISK_PHASE, step, build, warm=warm_stage))
