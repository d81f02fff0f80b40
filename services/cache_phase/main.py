from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING

from dovetail.pipeline.spec import KeyType
from dovetail.service.questions import Questions
from dovetail.service.stage import Context, run_stage
from dovetail.stream.migrations import MigrationReader
from dovetail.stream.topic_settings import largest_message
from dovetail.topology import CACHE_PHASE
from services.cache_phase.handler import CacheHandler
from services.cache_phase.look import CacheLook
from services.cache_phase.settings import budget, step
from services.warm import warm_stage

if TYPE_CHECKING:
    from dovetail.stream.handler import Handler


def build(context: Context) -> Handler:
    pipeline = context.pipeline
    migrations = MigrationReader(
        context.settings,
        context.topology.migrations,
        int_key=pipeline.key_type is KeyType.INT,
    )
    questions = Questions()
    handler = CacheHandler(
        context.topology,
        migrations,
        budget(pipeline),
        context.metrics.latency,
        partial(largest_message, context.settings, context.topology.enriched),
        questions=questions,
    )
    context.annexes.append(CacheLook(context, questions, handler))
    return handler


if __name__ == "__main__":
    sys.exit(run_stage(CACHE_PHASE, step, build, warm=warm_stage))
