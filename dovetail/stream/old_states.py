"""Slots' states as 0.2.0 kept them: beside the offsets of a group that nobody joins.

A broker forgets these, so they stand on a topic of their own now (states.py), and are taken over
from here once, by the first run that finds none there (services/spark/enrich_commit.py).

Beside the run's number is noted that they stand there, whenever a run has begun. So who finds none
there knows that somebody has deleted the topic, as long as the broker remembers the note: longer
than it remembers anything older, be it states as they were once or where the services' ingest was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaException, TopicPartition

from dovetail.permissions import Operation, Permission, Resource
from dovetail.stream.offsets import CommittedOffsets
from dovetail.stream.refusals import failure
from dovetail.stream.slot_state import SlotState
from dovetail.stream.states import States
from dovetail.topology import ENRICH

if TYPE_CHECKING:
    from dovetail.settings import Settings
    from dovetail.stream.offsets import Committed
    from dovetail.topology import Topology


class OldStates:
    """Reads them, without ever joining the group."""

    def __init__(self, settings: Settings, topology: Topology) -> None:
        self._settings = settings
        self._group = topology.group(ENRICH)
        # The run's number was the offset of a partition that is no slot's.
        self._run = topology.clean
        self._now = topology.states.name
        self._numbers = CommittedOffsets(settings, self._group, topology.clean)
        self._links = [
            CommittedOffsets(settings, self._group, link.mapped) for link in topology.links
        ]

    def read(self) -> States:
        run = self._numbers.read().get(0)
        if run is None:
            return States()
        if self._is_note(run):
            return States(run.offset)
        found = [link.read() for link in self._links]
        slots = {
            slot: SlotState.parse(*(of[slot].text.rstrip("\0") for of in found if slot in of))
            for slot in found[0]
        }
        return States(run.offset, slots)

    @property
    def are_elsewhere(self) -> bool:
        """Whether all slots' states were on the topic once."""
        run = self._numbers.read().get(0)
        return run is not None and self._is_note(run)

    def _is_note(self, run: Committed) -> bool:
        return run.text == self._now

    def end(self, run: int) -> None:
        """Number a run that is not there: what is left of an older one stops when it reads that."""
        self._number(run, self._now if self.are_elsewhere else "")

    def note(self, run: int) -> None:
        """Note that all slots' states are on the topic, as of this run."""
        self._number(run, self._now)

    def _number(self, run: int, text: str) -> None:
        consumer = Consumer(
            self._settings.client({"group.id": self._group, "enable.auto.commit": False})
        )
        try:
            at = TopicPartition(self._run.name, 0, run, metadata=text)
            consumer.commit(offsets=[at], asynchronous=False)
        except KafkaException as error:
            needed = (
                Permission(Resource.GROUP, self._group, Operation.READ),
                Permission(Resource.TOPIC, self._run.name, Operation.READ),
            )
            told = f"the run of {self._group} cannot be numbered"
            raise failure(self._settings, error, told, needed) from error
        finally:
            consumer.close()

    def close(self) -> None:
        for offsets in (self._numbers, *self._links):
            offsets.close()
