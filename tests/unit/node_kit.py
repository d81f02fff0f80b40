"""A node as the fused service drives it, over master data from memory and without a broker."""

from __future__ import annotations

import json
import time

import numpy as np

from dovetail.join.caching import SharedCache
from dovetail.join.columns import Column
from dovetail.join.line import Line
from dovetail.node.answers import VIA_CACHE, VIA_DISK, Answers, takes_anything
from dovetail.node.cache import CacheHalf
from dovetail.node.disk import DiskHalf
from dovetail.node.intake import Intake
from dovetail.node.source_window import SourceWindow
from dovetail.node.window import SPAN
from dovetail.pipeline.spec import Pipeline
from dovetail.service.metrics import Latency
from dovetail.stream.batch import PIECE_BYTES
from dovetail.stream.ledger import Ledger
from dovetail.stream.rdkafka import Records
from dovetail.testing.fakes import RecordingProducer
from dovetail.topology import Topology
from services.disk_phase.build import build_node_join
from services.node.handler import Around, SourceNode
from services.node.settings import capacity, shares
from services.warm import MemoryMigrations


def pipeline_of(algorithm, memory, **settings):
    return Pipeline.model_validate(
        {
            "name": "sales",
            "source": {"fields": {"id": "int", "note": "text?"}},
            "key": "id",
            "master": {"table": "goods", "columns": ["name"]},
            "slots": 4,
            "layout": "fused",
            "algorithm": str(algorithm),
            "memory": memory,
            **settings,
        }
    )


class Node:
    """A step reads the table once: time passes with every look at the clock."""

    def __init__(self, pipeline, master):
        topology = Topology(pipeline)
        self.topology = topology
        self._ticks = 0
        mine, within = shares(pipeline), pipeline.order.within
        join = build_node_join(pipeline, master, mine.join, time.perf_counter)
        self.cache = CacheHalf(
            pipeline,
            Answers.of(topology, VIA_CACHE, takes_anything),
            SharedCache(join.engine),
            PIECE_BYTES,
            time.time,
        )
        window = SourceWindow(capacity(pipeline), SPAN)
        self.disk = DiskHalf(
            Answers.of(topology, VIA_DISK, takes_anything),
            join,
            window,
            None if within is None else Line(within, mine.line),
            self.cache.sift,
        )
        around = Around(
            topology,
            self.cache,
            self.disk,
            MemoryMigrations(),
            lambda _partition, _number: None,
            Latency(),
            clock=self._clock,
        )
        self.handler = SourceNode(around, window, Intake(pipeline))
        self.ledger = Ledger()
        self.ledger.open(0, "")
        self.handler.assign([0])
        self.handler.open(0, self.ledger)
        self._offset = 0

    def _clock(self):
        self._ticks += 1
        return self._ticks * 0.06

    def step(self, keys=(), note="", producer=None):
        """Take events with these keys; return what was sent."""
        data = Column.of([json.dumps({"id": int(key), "note": note}).encode() for key in keys])
        count = len(data)
        records = Records(
            np.zeros(count, np.int32),
            self._offset + np.arange(count),
            np.zeros(count, np.int64),
            data.data,
            data.bounds,
            np.zeros(count, np.bool_),
        )
        self._offset += count
        producer = producer or RecordingProducer()
        self.handler.handle(records, producer, self.ledger)
        return producer

    def figures(self):
        return self.handler.figures()
