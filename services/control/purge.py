"""Deletes from the internal topics what their stage has read and committed.

So they hold what is in flight and nothing else, and no retention has to be guessed that is
long enough for the slowest stage and short enough for the disk. In the layout `fused`, which has
none of these topics, it goes on with what the split one has left.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException, TopicPartition

from dovetail.stream.offsets import CommittedOffsets
from dovetail.stream.topics import admin_of
from dovetail.topology import Keeps

if TYPE_CHECKING:
    from dovetail.settings import Settings
    from dovetail.topology import Topology

log = logging.getLogger(__name__)


class Purge:
    def __init__(self, settings: Settings, topology: Topology) -> None:
        self._admin = admin_of(settings)
        self._offsets = {
            stage.reads.name: CommittedOffsets(settings, topology.group(stage.service), stage.reads)
            for stage in topology.ledgers
            if stage.reads.keeps is Keeps.UNREAD
        }

    def run(self) -> None:
        for topic, offsets in self._offsets.items():
            read = [
                TopicPartition(topic, number, at.offset)
                for number, at in offsets.read().items()
                if at.offset > 0
            ]
            for deletion in self._admin.delete_records(read).values() if read else ():
                try:
                    deletion.result()
                except KafkaException as error:
                    log.warning("not purged", extra={"topic": topic, "reason": str(error)})

    def close(self) -> None:
        for offsets in self._offsets.values():
            offsets.close()
