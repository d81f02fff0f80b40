"""Exactly once: a node's part of a portion is one Kafka transaction.

    1. take over the node's transactional id: whoever else works for the node is fenced, and what
       it left open is undone
    2. read the run's number and the slots' states; another run's number ends it here
    3. send the answers to the events that the states do not cover yet
    4. send the new states, positions and counts, to `backfill`
    5. commit

As in `enrich` (enrich_commit.py). So a portion that is run again, whole or in part, by whomever, is
written once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.stream.late import Late, read_late
from dovetail.stream.rdkafka import KafkaFailure
from dovetail.stream.states import write_run, write_slots
from dovetail.stream.takeover import Written
from dovetail.topology import BACKFILL
from services.spark.enrich_commit import require_run, taken_over

if TYPE_CHECKING:
    from dovetail.settings import Settings
    from dovetail.stream.rdkafka import Producer
    from dovetail.stream.slot_state import SlotState
    from dovetail.topology import Topology

_TIMEOUT_S = 30.0


def take_over(settings: Settings, topology: Topology) -> Late:
    """Begin a run: end every other one, and say what they have committed."""
    producer = taken_over(settings, topology.group(BACKFILL), Written((topology.backfill,)))
    try:
        run = read_late(settings, topology).run + 1
        producer.begin()
        write_run(producer, topology.backfill, run)
        producer.commit(_TIMEOUT_S)
    finally:
        producer.close()
    # Of every number of nodes that there may have been.
    for node in range(topology.pipeline.slots):
        taken_over(settings, _id(topology, node)).close()
    late = read_late(settings, topology)
    require_run(topology.group(BACKFILL), late, run)
    return late


class NodeTransaction:
    """One node's transaction for one portion."""

    def __init__(self, settings: Settings, topology: Topology, node: int, run: int) -> None:
        # Steps 1 and 2
        self._topology = topology
        answers = (topology.enriched, topology.unmatched, topology.still_unmatched)
        written = Written((*answers, topology.parked, topology.backfill))
        self.producer: Producer = taken_over(settings, _id(topology, node), written)
        try:
            self.late = read_late(settings, topology)
            require_run(topology.group(BACKFILL), self.late, run)
            self.producer.begin()
        except BaseException:
            self.producer.close()
            raise

    def commit(self, states: dict[int, SlotState]) -> None:
        # Step 4
        write_slots(self.producer, self._topology.backfill, states)
        # Step 5
        self.producer.commit(_TIMEOUT_S)
        self.producer.close()

    def drop(self) -> None:
        """Undo what is under way, and let go of the producer."""
        try:
            self.producer.abort(_TIMEOUT_S)
        except KafkaFailure:
            pass  # another has undone it
        finally:
            self.producer.close()


def _id(topology: Topology, node: int) -> str:
    return f"{topology.group(BACKFILL)}.{node}"
