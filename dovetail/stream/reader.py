"""Batches out of an internal topic's messages, and what is none of the pipeline's own refused.

Only the pipeline's services write to these topics, so a message that is no batch, or another
pipeline's, or another slot's, is a mistake or an attack. It is passed over, kept whole on the
topic `foreign` with the reason and its place, logged and counted. If it was one of ours after all,
its events are missing from the conservation sum, and that says so.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from dovetail.stream.batch import UNMAPPED, EventBatch
from dovetail.stream.envelope import ForeignError
from dovetail.stream.provenance import ORIGIN, REASON

if TYPE_CHECKING:
    from dovetail.join.columns import Bytes
    from dovetail.stream.rdkafka import Producer, Records
    from dovetail.topology import Topic, Topology

log = logging.getLogger(__name__)


class BatchReader:
    def __init__(self, topology: Topology, topic: Topic) -> None:
        self._pipeline = topology.pipeline.name
        self._foreign = topology.foreign
        self._topic = topic.name
        self._by_slot = topic != topology.clean
        self.refused = 0

    def read(self, records: Records, producer: Producer) -> list[tuple[int, EventBatch]]:
        """Return each message's batch with its partition; an empty one where it is refused."""
        found = []
        bounds = records.bounds
        for row, partition in enumerate(records.partitions.tolist()):
            try:
                batch = self._open(partition, records.data[bounds[row] : bounds[row + 1]])
            except ForeignError as error:
                self._refuse(records, row, str(error), producer)
                batch = EventBatch.empty()
            found.append((partition, batch))
        return found

    def _open(self, partition: int, message: Bytes) -> EventBatch:
        head, batch = EventBatch.opened(message)
        if head.pipeline != self._pipeline:
            raise ForeignError(f"a message is of pipeline {head.pipeline!r}")
        slot = partition if self._by_slot else UNMAPPED
        if head.slot != slot:
            raise ForeignError(f"a message is of slot {head.slot}, and stands where {slot} does")
        return batch

    def _refuse(self, records: Records, row: int, reason: str, producer: Producer) -> None:
        place = f"{self._topic}/{records.partitions[row]}/{records.offsets[row]}"
        log.error(
            "message refused: it is none of ours",
            extra={"place": place, "reason": reason, "kept_on": self._foreign.name},
        )
        headers = ((ORIGIN, place.encode()), (REASON, reason.encode()))
        producer.send(self._foreign.name, records.value(row), 0, headers=headers)
        self.refused += 1
