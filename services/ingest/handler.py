"""Validates events, takes out their join keys, and sends the bad ones to the dead letters."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from dovetail.join.mapper import groups
from dovetail.node.intake import Intake
from dovetail.stream import ledger as outcome
from dovetail.stream.batch import PIECE_BYTES
from dovetail.stream.engines import require_no_progress
from dovetail.stream.handler import Handler
from dovetail.stream.writing import bury

if TYPE_CHECKING:
    from collections.abc import Callable

    from dovetail.pipeline.spec import Pipeline
    from dovetail.service.metrics import Latency
    from dovetail.stream.batch import EventBatch
    from dovetail.stream.ledger import Ledger
    from dovetail.stream.rdkafka import Producer, Records
    from dovetail.topology import Topology


class IngestHandler(Handler):
    def __init__(
        self,
        pipeline: Pipeline,
        topology: Topology,
        lag: Latency | None = None,
        clock: Callable[[], float] = time.time,
        keep_up: Callable[[], int] | None = None,
        require_ours: Callable[[], None] = lambda: None,
    ) -> None:
        """`lag` is told how late events are, where the pipeline says when they happened.

        `keep_up` gives `clean` a partition for each of the source's, and says how many it has.
        `require_ours` raises if another engine has taken the pipeline over.
        """
        self._keep_up = keep_up
        self._require_ours = require_ours
        self._ours = False
        self._partitions = topology.clean.partitions
        self._pipeline = pipeline
        self._topology = topology
        self._intake = Intake(pipeline, lag, clock)

    def open(self, partition: int, ledger: Ledger) -> None:
        """See to it that there is a partition of `clean` for it, which may be a new one."""
        if not self._ours:
            self._require_ours()
            self._ours = True
        require_no_progress(ledger, partition, self._topology.source)
        if partition >= self._partitions and self._keep_up is not None:
            self._partitions = self._keep_up()

    def assign(self, _partitions: list[int]) -> None:
        self._ours = False  # it may have been away for long

    def drop(self) -> None:
        self._ours = False

    def handle(self, records: Records, producer: Producer, ledger: Ledger) -> None:
        taken = self._intake.take(records)
        for partition, rows in groups(records.partitions):
            good = rows[taken.valid[rows]]
            ledger.add(partition, outcome.IN, len(good))
            ledger.add(partition, outcome.CLEAN, len(good))
            if len(good):
                self._pass_on(partition, self._intake.good(taken, good), producer)
        if len(bad := np.flatnonzero(~taken.valid)):
            bury(taken.bad(bad), self._topology, producer, ledger)

    def _pass_on(self, partition: int, batch: EventBatch, producer: Producer) -> None:
        # A source partition keeps its own partition, and with it the order of its events.
        for piece in batch.pieces(PIECE_BYTES):
            message = piece.written(self._pipeline.name)
            producer.give(self._topology.clean.name, message, partition)
