"""Exactly once: a node's part of a batch is one Kafka transaction.

    1. take over the node's transactional id: whoever else works for the node is fenced, and what
       it left open is undone
    2. read the run's number and the states of the node's slots; another run's number ends it here
    3. send the answers to the events that the states do not cover yet
    4. send the new states, positions and counts, to `states`
    5. commit

A task that is tried again, or twice at once, writes once: the later one has fenced the earlier
one, or finds what that one has committed. So does a batch that is run again, whole or in part.

A process that was left behind by a dead driver may start such a task late. That is what the run's
number is for: a new driver writes the next one first, under an id of its own, then fences every
node's id. Whoever took over before that is fenced; whoever does so later reads the number and
stops.

An id that is still ours needs no new producer: nobody has committed for these slots since we did.

Spark gives a node's part to any worker, so an id often changes hands between two batches. Where the
driver knows that the batch before was committed, by all nodes of this run, nothing of the id can be
open, and to fence its last holder is all there is to do.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from dovetail.errors import Unavailable
from dovetail.permissions import transacts, writes
from dovetail.stream.acls import refusal
from dovetail.stream.old_states import OldStates
from dovetail.stream.rdkafka import KafkaFailure, Producer
from dovetail.stream.rdkafka.producer import QUEUE_BYTES, QUEUE_MESSAGES
from dovetail.stream.states import States, StatesReader, write_run, write_slots
from dovetail.stream.takeover import Written
from dovetail.stream.takeover import take_over as take_id_over
from dovetail.topology import ENRICH, LARGEST_MESSAGE_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dovetail.settings import Settings
    from dovetail.stream.slot_state import SlotState
    from dovetail.topology import Topology

_TIMEOUT_S = 30.0
_TRANSACTION_MS = 600_000
"""What a node may take for its part of a batch; to read R, most of it (enrich_size.py). Only one
that is never tried again keeps readers of the output waiting for so long."""

_NOTHING = Written(())


def take_over(settings: Settings, topology: Topology) -> tuple[int, dict[int, SlotState]]:
    """Begin a run: end every other one, and say what they have committed."""
    with (
        closing(StatesReader(settings, topology.states)) as states,
        closing(_driver(settings, topology)) as producer,
    ):
        last = states.read((), settled=True).run
        if last:
            run = last + 1
            _write(producer, topology, run, {})
            _fence(settings, topology, Written((topology.states,)))
        else:
            run = _begin_first(settings, topology, producer)
        found = states.read(settled=True)
    require_run(topology.group(ENRICH), found, run)
    return run, found.slots


def _begin_first(settings: Settings, topology: Topology, producer: Producer) -> int:
    """Begin a run that finds no other's number, with what an older release has left, if it has."""
    with closing(OldStates(settings, topology)) as old:
        run = old.read().run + 1
        if run > 1:
            old.end(run)
        group = topology.group(ENRICH)
        _fence(settings, topology, Written((topology.states,), group, topology.mapped))
        # Nobody writes there any more. In one transaction: they are taken over once, or not yet.
        _write(producer, topology, run, old.read().slots)
    return run


def _fence(settings: Settings, topology: Topology, written: Written) -> None:
    """End whoever works for a node, of every number of nodes that there may have been."""
    for node in range(topology.pipeline.slots):
        taken_over(settings, _id(topology, node), written).close()


def _write(
    producer: Producer, topology: Topology, run: int, slots: Mapping[int, SlotState]
) -> None:
    producer.begin()
    write_slots(producer, topology.states, slots)
    write_run(producer, topology.states, run)
    producer.commit(_TIMEOUT_S)


def require_run(group: str, states: States, run: int) -> None:
    if states.run != run:
        raise Unavailable(f"run {run} of {group} is over: run {states.run} has taken its place")


def write_states(
    settings: Settings, topology: Topology, run: int, wanted: Mapping[int, SlotState]
) -> None:
    """Write slots' states and nothing else, all of them or none, as the run of this number.

    Before its nodes begin: it is one transaction because it is the driver's, and not theirs.
    """
    with (
        closing(StatesReader(settings, topology.states)) as states,
        closing(_driver(settings, topology)) as producer,
    ):
        require_run(topology.group(ENRICH), states.read((), settled=True), run)
        _write(producer, topology, run, wanted)


def note_states(settings: Settings, topology: Topology, run: int) -> None:
    """Note elsewhere that all slots' states are on their topic, so that it is missed if deleted."""
    with closing(OldStates(settings, topology)) as old:
        old.note(run)


def _driver(settings: Settings, topology: Topology) -> Producer:
    """A producer by the driver's own id: another driver is fenced by that."""
    return taken_over(settings, topology.group(ENRICH), Written((topology.states,)))


class NodeTransaction:
    """One node's transactions, a batch each, from one process."""

    def __init__(
        self, settings: Settings, topology: Topology, states: StatesReader, node: int
    ) -> None:
        self._settings = settings
        self._topology = topology
        self._states = states
        self._node = node
        self._last: dict[int, SlotState] | None = None
        self._producer: Producer | None = None
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
        if self._producer is not None and self._read().slots != self._last:
            self.drop()
        if self._producer is None:
            written = _NOTHING if settled else _written(self._topology)
            self._producer = taken_over(self._settings, _id(self._topology, self._node), written)
        found = self._read()
        require_run(self._topology.group(ENRICH), found, run)
        self._producer.begin()
        return found.slots

    def commit(self, states: dict[int, SlotState]) -> None:
        # Step 4
        write_slots(self.producer, self._topology.states, states)
        # Step 5
        self.producer.commit(_TIMEOUT_S)
        self._states.wrote(states)
        self._last = states

    def _read(self) -> States:
        return self._states.read(self.slots, settled=True)

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
    return Written((topology.enriched, *aside, topology.states))


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
