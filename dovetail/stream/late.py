"""What backfill has behind it: the latest message of each slot's partition of `backfill`.

    late=120,of.shed=90,of.unmatched=40,outputs=131,unmatched=10,@0=1205,@1=88

Counts of events (ledger.py), and for each of its inputs the offset below which every event of the
slot was looked at: 0 is shed, 1 unmatched, 2 parked, 3 still-unmatched. They are written in the
transaction that carries the answers.

Not beside an offset, as the stages' ledgers are: a broker forgets the offsets of a group that has
rested for a week (`offsets.retention.minutes`), and then everything would be completed once more.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException

from dovetail.errors import Unavailable
from dovetail.stream import ledger
from dovetail.stream.slot_state import SlotState
from dovetail.stream.topics import admin_of, ends
from dovetail.stream.whole import place_of, read_all

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

    from dovetail.settings import Settings
    from dovetail.topology import Topic, Topology

SHED, UNMATCHED, PARKED, STILL_UNMATCHED = range(4)
"""The inputs, by number."""
KEY = b"latest"
"""Of every message: the latest one is kept."""
_TIMEOUT_S = 30


def inputs_of(topology: Topology) -> tuple[Topic, ...]:
    """By their numbers; each has one partition."""
    return (topology.shed, topology.unmatched, topology.parked, topology.still_unmatched)


def run_partition(topology: Topology) -> int:
    """Where the number of the present run stands."""
    return topology.pipeline.slots


@dataclass(frozen=True, slots=True)
class Late:
    run: int = 0
    slots: dict[int, SlotState] = field(default_factory=dict)
    """Without those of which nothing was committed yet."""

    @property
    def counts(self) -> Counter[str]:
        return sum((state.counts for state in self.slots.values()), Counter())

    def positions(self, topology: Topology) -> dict[str, set[int]]:
        """For each input where the slots are: all at one place, unless a run was interrupted."""
        slots = range(topology.pipeline.slots)
        states = [self.slots.get(slot, SlotState()) for slot in slots]
        return {
            topic.name: {state.position(number) for state in states}
            for number, topic in enumerate(inputs_of(topology))
        }


def read_late(settings: Settings, topology: Topology) -> Late:
    """What is committed by now."""
    latest = {
        place_of(message)[0]: (message.value() or b"").decode()
        for message in read_all(settings, topology.backfill)
    }
    run = int(latest.pop(run_partition(topology), "0"))
    return Late(run, {slot: SlotState.parse(text) for slot, text in sorted(latest.items())})


def unbalanced(counts: Counter[str]) -> list[str]:
    """Say if backfill has not given out what it took."""
    taken = sum(
        counts[ledger.of(outcome)] for outcome in (ledger.SHED, ledger.UNMATCHED, ledger.PARKED)
    )
    given = counts[ledger.LATE] + counts[ledger.UNMATCHED]
    return [] if taken == given else [f"backfill took {taken:,} events and gave out {given:,}"]


class LateReader:
    """Reads it again and again: nothing is read but where the topic ends, unless it has grown."""

    def __init__(
        self, settings: Settings, topology: Topology, admin: AdminClient | None = None
    ) -> None:
        self._settings = settings
        self._topology = topology
        self._admin = admin or admin_of(settings)
        self._is_there = False
        self._ends: list[int] = []
        self._late = Late()

    def read(self) -> Late:
        topic = self._topology.backfill
        if not self._is_there:
            self._is_there = self._exists(topic)
        if self._is_there:
            now = ends(self._admin, topic)
            if now != self._ends and any(now):
                self._late = read_late(self._settings, self._topology)
            self._ends = now
        return self._late

    def _exists(self, topic: Topic) -> bool:
        """Whether there is the topic: not of a pipeline that no service has been started for."""
        try:
            return topic.name in self._admin.list_topics(timeout=_TIMEOUT_S).topics
        except KafkaException as error:
            raise Unavailable(f"{topic.name} cannot be read: {error}") from error
