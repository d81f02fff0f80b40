"""What backfill has behind it: the states of its slots on `backfill` (states.py).

    late=120,of.shed=90,of.unmatched=40,outputs=131,unmatched=10,@0=1205,@1=88

Counts of events (ledger.py), and for each of its inputs the offset below which every event of the
slot was looked at: 0 is shed, 1 unmatched, 2 parked, 3 still-unmatched.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from dovetail.stream import ledger
from dovetail.stream.slot_state import SlotState
from dovetail.stream.states import States, StatesReader

if TYPE_CHECKING:
    from collections import Counter

    from confluent_kafka.admin import AdminClient

    from dovetail.settings import Settings
    from dovetail.topology import Topic, Topology

SHED, UNMATCHED, PARKED, STILL_UNMATCHED = range(4)
"""The inputs, by number."""


def inputs_of(topology: Topology) -> tuple[Topic, ...]:
    """By their numbers; each has one partition."""
    return (topology.shed, topology.unmatched, topology.parked, topology.still_unmatched)


class Late(States):
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
    with closing(LateReader(settings, topology)) as reader:
        return reader.read()


def unbalanced(counts: Counter[str]) -> list[str]:
    """Say if backfill has not given out what it took."""
    taken = sum(
        counts[ledger.of(outcome)] for outcome in (ledger.SHED, ledger.UNMATCHED, ledger.PARKED)
    )
    given = counts[ledger.LATE] + counts[ledger.UNMATCHED] + counts[ledger.PARKED]
    return [] if taken == given else [f"backfill took {taken:,} events and gave out {given:,}"]


class LateReader:
    """Reads it again and again."""

    def __init__(
        self, settings: Settings, topology: Topology, admin: AdminClient | None = None
    ) -> None:
        self._states = StatesReader(settings, topology.backfill, admin)

    def read(self) -> Late:
        found = self._states.read()
        return Late(found.run, found.slots)

    def close(self) -> None:
        self._states.close()
