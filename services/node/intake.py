"""Of several nodes: maps a share of the source's events to the slots of all, in one hop.

It is ingest and the mapper at once, as a second loop of a node's process.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from dovetail.join.mapper import Mapper, groups
from dovetail.node.intake import Intake
from dovetail.node.step import counted
from dovetail.pipeline.spec import KeyType
from dovetail.stream import ledger as outcome
from dovetail.stream.batch import UNMAPPED
from dovetail.stream.deal import Deal
from dovetail.stream.engines import require_layout, require_no_progress, require_services
from dovetail.stream.handler import Handler, Step
from dovetail.stream.writing import bury
from services.mapper.skew import Skew
from services.node.settings import SHARE

if TYPE_CHECKING:
    from collections.abc import Callable

    from dovetail.join.columns import SmallInts
    from dovetail.pipeline.spec import Pipeline
    from dovetail.service.stage import Context
    from dovetail.settings import Settings
    from dovetail.stream.batch import EventBatch
    from dovetail.stream.ledger import Ledger
    from dovetail.stream.rdkafka import Producer, Records
    from dovetail.topology import Topology


class IntakeHandler(Handler):
    def __init__(
        self,
        topology: Topology,
        intake: Intake,
        require_ours: Callable[[], None] = lambda: None,
    ) -> None:
        pipeline = topology.pipeline
        self._topology = topology
        self._intake = intake
        self._require_ours = require_ours
        self._ours = False
        self._mapper = Mapper(pipeline.slots, int_key=pipeline.key_type is KeyType.INT)
        self._skew = Skew(pipeline.slots, time.monotonic())

    def assign(self, _partitions: list[int]) -> None:
        self._ours = False  # it may have been away for long

    def open(self, partition: int, ledger: Ledger) -> None:
        if not self._ours:
            self._require_ours()
            self._ours = True
        require_no_progress(ledger, partition, self._topology.source)

    def drop(self) -> None:
        self._ours = False

    def handle(self, records: Records, producer: Producer, ledger: Ledger) -> None:
        taken = self._intake.take(records)
        if len(bad := np.flatnonzero(~taken.valid)):
            bury(taken.bad(bad), self._topology, producer, ledger)
        if len(good := np.flatnonzero(taken.valid)):
            batch = self._intake.good(taken, good)
            _count(ledger, outcome.IN, batch.partitions)
            self._map(batch, producer, ledger)

    def figures(self) -> dict[str, float]:
        return self._skew.figures()

    def _map(self, batch: EventBatch, producer: Producer, ledger: Ledger) -> None:
        _count(ledger, outcome.MAPPED, batch.partitions)
        by_slot = np.zeros(self._mapper.count, np.int64)
        deal = Deal([batch], batch.events.data)
        for slot, rows in groups(self._mapper.slots(batch.keys)):
            by_slot[slot] = len(rows)
            for message in deal.messages(rows, self._topology.pipeline.name, slot):
                producer.give(self._topology.mapped.name, message, slot)
        self._skew.add(by_slot, time.monotonic())


def _count(ledger: Ledger, name: str, partitions: SmallInts) -> None:
    for partition, events in counted(UNMAPPED, partitions):
        ledger.add(partition, name, events)


def step(_: Pipeline) -> Step:
    return Step(max_records=50_000, max_bytes=16 << 20, linger_s=0.1, share=SHARE)


def require_ours(settings: Settings, topology: Topology) -> None:
    """Raise if another engine or layout has the pipeline."""
    require_services(settings, topology)
    require_layout(settings, topology)


def build(context: Context) -> IntakeHandler:
    pipeline, settings, topology = context.pipeline, context.settings, context.topology
    lag = None if pipeline.source.event_time is None else context.metrics.event_time_lag()
    return IntakeHandler(
        topology,
        Intake(pipeline, lag),
        partial(require_ours, settings, topology),
    )
