"""Exactly once: a node's part of a batch is one Kafka transaction.

    1. take over the node's transactional id: whoever else works for the node is fenced, and what
       it left open is undone
    2. read the run's number and the states of the node's slots; another run's number ends it here
    3. send the answers to the events that the states do not cover yet
    4. send the new states, positions and counts, into the transaction
    5. commit

A task that is tried again, or twice at once, writes once: the later one has fenced the earlier
one, or finds what that one has committed. So does a batch that is run again, whole or in part.

A process that was left behind by a dead driver may start such a task late. That is what the run's
number is for: a new driver writes the next one first, then fences every node's id. Whoever took
over before that is fenced; whoever does so later reads the number and stops.

An id that is still ours needs no new producer: nobody has committed for these slots since we did.

Spark gives a node's part to any worker, so an id often changes hands between two batches. Where the
driver knows that the batch before was committed, by all nodes of this run, nothing of the id can be
open, and to fence its last holder is all there is to do.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from dovetail.errors import Unavailable
from dovetail.permissions import Operation, Permission, Resource, transacts, writes
from dovetail.stream import ledger
from dovetail.stream.acls import refusal
from dovetail.stream.rdkafka import GroupMetadata, KafkaFailure, Producer
from dovetail.stream.rdkafka.producer import QUEUE_BYTES, QUEUE_MESSAGES
from dovetail.stream.refusals import failure as failure_of
from dovetail.stream.slot_state import SlotState
from dovetail.stream.takeover import Written
from dovetail.stream.takeover import take_over as take_id_over
from dovetail.topology import ENRICH, LARGEST_MESSAGE_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dovetail.errors import DovetailError
    from dovetail.settings import Settings
    from dovetail.topology import Topology

_TIMEOUT_S = 30.0
_PAUSE_S = 0.1
_MOVING = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)
"""A group's coordinator goes to another broker, or is only being made: it is asked again."""
_TRANSACTION_MS = 600_000
"""What a node may take for its part of a batch. Only one that is never tried again keeps readers
of the output waiting for so long."""

_NOTHING = Written(())


@dataclass(frozen=True, slots=True)
class Committed:
    run: int
    slots: dict[int, SlotState]
    """Without those that have never committed anything."""


class States:
    """Reads and numbers what is committed, without ever joining the group."""

    def __init__(self, settings: Settings, topology: Topology) -> None:
        self._settings = settings
        self._group = topology.group(ENRICH)
        self._links = [link.mapped.name for link in topology.links]
        # Any partition that is not a slot's: nothing else is committed for it in this group.
        self._run = TopicPartition(topology.clean.name, 0)
        self._consumer = Consumer(
            settings.client(
                {
                    "group.id": self._group,
                    "enable.auto.commit": False,
                    # Waits for the end of transactions that have offsets of these slots under way.
                    "isolation.level": "read_committed",
                    "log_level": 0,
                }
            )
        )

    def read(self, slots: Iterable[int]) -> Committed:
        run, *found = self._committed(
            [self._run, *(TopicPartition(link, slot) for slot in slots for link in self._links)]
        )
        texts: dict[int, list[str]] = {}
        for at in found:
            if at.offset >= 0:
                texts.setdefault(at.partition, []).append((at.metadata or "").rstrip("\0"))
        states = {slot: SlotState.parse(*of_links) for slot, of_links in texts.items()}
        return Committed(max(0, run.offset), states)

    def _committed(self, asked: list[TopicPartition]) -> list[TopicPartition]:
        until = time.monotonic() + _TIMEOUT_S
        while True:
            try:
                return self._consumer.committed(asked, timeout=_TIMEOUT_S)
            except KafkaException as error:
                if error.args[0].code() not in _MOVING or time.monotonic() > until:
                    told = f"what {self._group} committed cannot be read"
                    raise self._failure(error, told) from error
            time.sleep(_PAUSE_S)

    def number(self, run: int) -> None:
        """Write down which run is the present one."""
        at = TopicPartition(self._run.topic, self._run.partition, run)
        try:
            self._consumer.commit(offsets=[at], asynchronous=False)
        except KafkaException as error:
            raise self._failure(error, f"run {run} of {self._group} cannot be begun") from error

    def _failure(self, error: KafkaException, text: str) -> DovetailError:
        needed = (
            Permission(Resource.GROUP, self._group, Operation.READ),
            Permission(Resource.TOPIC, self._run.topic, Operation.READ),
            *(Permission(Resource.TOPIC, link, Operation.READ) for link in self._links),
        )
        return failure_of(self._settings, error, text, needed)

    def close(self) -> None:
        self._consumer.close()


def take_over(settings: Settings, topology: Topology) -> tuple[int, dict[int, SlotState]]:
    """Begin a run: end every other one, and say what they have committed."""
    states = States(settings, topology)
    slots = range(topology.pipeline.slots)
    try:
        run = states.read(()).run + 1
        states.number(run)
        # Of every number of nodes that there may have been.
        for node in slots:
            taken_over(settings, _id(topology, node)).close()
        return run, states.read(slots).slots
    finally:
        states.close()


def write_states(
    settings: Settings, topology: Topology, run: int, wanted: dict[int, SlotState]
) -> None:
    """Write slots' states and nothing else, node by node, as the run of this number."""
    states = States(settings, topology)
    try:
        for node in range(topology.pipeline.nodes):
            transaction = NodeTransaction(settings, topology, states, node)
            try:
                transaction.begin(run)
                transaction.commit({slot: wanted[slot] for slot in transaction.slots})
            finally:
                transaction.drop()
    finally:
        states.close()


class NodeTransaction:
    """One node's transactions, a batch each, from one process."""

    def __init__(self, settings: Settings, topology: Topology, states: States, node: int) -> None:
        self._settings = settings
        self._topology = topology
        self._states = states
        self._node = node
        self._last: dict[int, SlotState] | None = None
        self._producer: Producer | None = None
        self._group = GroupMetadata.of_group(topology.group(ENRICH))
        self.slots = range(node, topology.pipeline.slots, topology.pipeline.nodes)

    @property
    def producer(self) -> Producer:
        assert self._producer is not None, "begin() comes first"
        return self._producer

    def begin(self, run: int, *, settled: bool = False) -> dict[int, SlotState]:
        """Begin a transaction; return the states of the node's slots.

        `settled`: the id's last transaction is known to be committed, by whichever worker.
        """
        # Steps 1 and 2
        found = self._states.read(self.slots)
        if self._producer is None or found.slots != self._last:
            self.drop()
            written = _NOTHING if settled else _written(self._topology)
            self._producer = taken_over(self._settings, _id(self._topology, self._node), written)
            found = self._states.read(self.slots)
        if found.run != run:
            raise Unavailable(
                f"run {run} of {self._topology.group(ENRICH)} is over: run {found.run} has taken "
                f"its place"
            )
        self._producer.begin()
        return found.slots

    def commit(self, states: dict[int, SlotState]) -> None:
        # Step 4
        for link in self._topology.links:
            of_link = {slot: state.of_link(link.number) for slot, state in states.items()}
            offsets = {slot: (one.counts[ledger.IN], one.text) for slot, one in of_link.items()}
            self.producer.send_offsets(link.mapped.name, offsets, self._group, _TIMEOUT_S)
        # Step 5
        self.producer.commit(_TIMEOUT_S)
        self._last = states

    def drop(self) -> None:
        """Undo what is under way, if anything is, and let go of the producer."""
        self._last = None
        if self._producer is not None:
            producer, self._producer = self._producer, None
            try:
                producer.abort(_TIMEOUT_S)
            except KafkaFailure:
                pass  # there was none, or another has undone it
            finally:
                producer.close()


def _id(topology: Topology, node: int) -> str:
    return f"{topology.group(ENRICH)}.{node}"


def _written(topology: Topology) -> Written:
    aside = (topology.unmatched, topology.dead_letter, topology.shed, topology.parked)
    return Written((topology.enriched, *aside), topology.group(ENRICH), topology.mapped)


def taken_over(settings: Settings, name: str, written: Written = _NOTHING) -> Producer:
    """Take over a transactional id: settles whatever its last holder left open."""
    producer = Producer(
        settings.client(
            {
                "transactional.id": name,
                "client.id": name,
                "transaction.timeout.ms": _TRANSACTION_MS,
                "retry.backoff.ms": 5,
                "linger.ms": 20,
                "message.max.bytes": LARGEST_MESSAGE_BYTES,
                "batch.size": 1 << 20,
                "queue.buffering.max.messages": QUEUE_MESSAGES,
                "queue.buffering.max.kbytes": QUEUE_BYTES >> 10,
            }
        )
    )
    try:
        take_id_over(settings, producer, written)
    except KafkaFailure as failure:
        producer.close()
        if failure.refused:
            needed = (
                transacts(name),
                *(writes(topic.name) for topic in written.topics),
            )
            raise refusal(settings, failure, needed) from failure
        raise
    except BaseException:
        producer.close()
        raise
    return producer
