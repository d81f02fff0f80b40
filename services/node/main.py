from __future__ import annotations

import sys
import time
from functools import partial
from typing import TYPE_CHECKING

from dovetail.join.caching import SharedCache
from dovetail.join.line import Line
from dovetail.node.answers import VIA_CACHE, VIA_DISK, Answers
from dovetail.node.cache import CacheHalf
from dovetail.node.disk import DiskHalf
from dovetail.node.intake import Intake
from dovetail.node.source_window import SourceWindow
from dovetail.node.window import SPAN, Window
from dovetail.pipeline.spec import KeyType
from dovetail.service.questions import Questions
from dovetail.service.stage import Beside, Context, run_stage
from dovetail.stream.batch import PIECE_BYTES
from dovetail.stream.migrations import MigrationReader
from dovetail.stream.progress import ProgressReader
from dovetail.stream.topic_settings import largest_message
from dovetail.topology import INTAKE, NODE
from services.cache_phase.look import CacheLook
from services.disk_phase.build import build_node_join
from services.disk_phase.look import AlgorithmLook
from services.disk_phase.relation import relation_of
from services.ingest.routes import EventsByHttp
from services.node import intake
from services.node.handler import Around, MappedNode, NodeHandler, SourceNode
from services.node.intake import require_ours
from services.node.routes import Offered
from services.node.settings import capacity, shares, step
from services.warm import warm_stage

if TYPE_CHECKING:
    from dovetail.stream.handler import Handler


def build(context: Context) -> Handler:
    pipeline, topology = context.pipeline, context.topology
    reads = topology.stage(topology.service(NODE)).reads
    events = capacity(pipeline)
    if reads == topology.source:
        window = SourceWindow(events, SPAN)
        timed = pipeline.source.event_time is not None
        taking = Intake(pipeline, context.metrics.event_time_lag() if timed else None)
        handler: NodeHandler = SourceNode(_around(context, window), window, taking)
    else:
        handler = MappedNode(_around(context, Window(events, SPAN)))
    return handler


def _around(context: Context, window: Window) -> Around:
    pipeline, settings, topology = context.pipeline, context.settings, context.topology
    require_ours(settings, topology)
    takes = partial(largest_message, settings, topology.enriched)
    mine, within = shares(pipeline), pipeline.order.within
    join = build_node_join(pipeline, relation_of(context), mine.join, time.monotonic)
    cache = CacheHalf(
        pipeline,
        Answers.of(topology, VIA_CACHE, takes),
        SharedCache(join.engine),
        PIECE_BYTES,
        time.time,
    )
    disk = DiskHalf(
        Answers.of(topology, VIA_DISK, takes),
        join,
        window,
        None if within is None else Line(within, mine.line),
        cache.sift,
    )
    questions = Questions()
    around = Around(
        topology,
        cache,
        disk,
        MigrationReader(settings, topology.migrations, int_key=pipeline.key_type is KeyType.INT),
        ProgressReader(settings, topology.node_progress).read,
        context.metrics.latency,
        partial(require_ours, settings, topology),
        questions,
    )
    # Of several nodes one takes events by HTTP: requests are remembered under one id.
    by_http = [EventsByHttp(context)] if settings.node == 0 and topology.number == 1 else []
    looks = CacheLook(context, questions, cache), AlgorithmLook(context, questions, disk)
    context.annexes.append(Offered(context, *by_http, *looks))
    return around


if __name__ == "__main__":
    beside = {INTAKE: Beside(intake.build, intake.step)}
    sys.exit(run_stage(NODE, step, build, warm=warm_stage, beside=beside))
