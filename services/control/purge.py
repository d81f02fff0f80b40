"""Deletes from the internal topics what their stage has read and committed.

So they hold what is in flight and nothing else, and no retention has to be guessed that is
long enough for the slowest stage and short enough for the disk.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException

from dovetail.topology import Keeps

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

    from dovetail.topology import Topology

log = logging.getLogger(__name__)


def purge(admin: AdminClient, topology: Topology) -> None:
    for stage in topology.stages:
        if stage.reads.keeps is not Keeps.UNREAD:
            continue
        group = ConsumerGroupTopicPartitions(topology.group(stage.service))
        [future] = admin.list_consumer_group_offsets([group]).values()
        read = [
            partition
            for partition in future.result().topic_partitions
            if partition.topic == stage.reads.name and partition.offset > 0
        ]
        for deletion in admin.delete_records(read).values() if read else ():
            try:
                deletion.result()
            except KafkaException as error:
                log.warning("not purged", extra={"topic": stage.reads.name, "reason": str(error)})
