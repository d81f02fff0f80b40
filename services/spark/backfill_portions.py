"""Which part of its inputs a backfill works on next: the portion.

A slot has looked at all of a portion or at nothing of it, as it is answered in one transaction. A
run that was killed may have left some slots a portion ahead: the next ends where they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dovetail.errors import ConfigError
from dovetail.stream.late import inputs_of
from dovetail.stream.topics import beginnings, ends

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from confluent_kafka.admin import AdminClient

    from dovetail.stream.late import Late
    from dovetail.stream.slot_state import SlotState
    from dovetail.topology import Topology


@dataclass(frozen=True, slots=True)
class Span:
    """Offsets of an input."""

    start: int
    end: int

    def __len__(self) -> int:
        return self.end - self.start

    def is_new_to(self, position: int) -> bool:
        """Whether a slot at this position has not looked at it."""
        assert position <= self.start or position >= self.end, "a slot is ahead by whole portions"
        return position < self.end


@dataclass(frozen=True, slots=True)
class Portion:
    spans: tuple[Span, ...]
    """Of each input, by number; empty where it has nothing more."""

    def __len__(self) -> int:
        return sum(map(len, self.spans))

    def inputs_for(self, state: SlotState) -> frozenset[int]:
        """The inputs whose events a slot has to answer now."""
        return frozenset(
            number
            for number, span in enumerate(self.spans)
            if len(span) and span.is_new_to(state.position(number))
        )

    def passed(self, state: SlotState) -> dict[int, int]:
        """Where a slot is when it has answered them."""
        return {
            number: max(span.end, state.position(number)) for number, span in enumerate(self.spans)
        }


@dataclass(frozen=True, slots=True)
class Work:
    """What a run has before it: of each input where slots are, and where it ends."""

    places: tuple[frozenset[int], ...]
    ends: tuple[int, ...]
    lost: int = 0
    """Messages that the broker has deleted before they were looked at."""

    def __len__(self) -> int:
        """Offsets, transactions' markers included."""
        return sum(end - min(places) for places, end in zip(self.places, self.ends, strict=True))

    def portions(self, most: int) -> Iterator[Portion]:
        """Of at most so many offsets of each input, until all slots are at the ends."""
        places = self.places
        while True:
            inputs = zip(places, self.ends, strict=True)
            spans = tuple(_next(of, end, most) for of, end in inputs)
            if not any(map(len, spans)):
                return
            yield Portion(spans)
            places = tuple(
                frozenset(max(place, span.end) for place in of)
                for of, span in zip(places, spans, strict=True)
            )


def work_of(admin: AdminClient, topology: Topology, late: Late) -> Work:
    """What there is to do by now; what comes later is the next run's."""
    places, until, lost = [], [], 0
    for topic, found in zip(inputs_of(topology), late.positions(topology).values(), strict=True):
        [first], [end] = beginnings(admin, topic), ends(admin, topic)
        if max(found) > end:
            raise ConfigError(
                f"{topic.name} ends at {end:,}, but {max(found):,} of it were looked at: it was "
                f"made anew. Delete {topology.backfill.name}, too, to begin anew"
            )
        lost += max(0, first - min(found))
        places.append(frozenset(max(first, place) for place in found))
        until.append(end)
    return Work(tuple(places), tuple(until), lost)


def _next(places: Iterable[int], end: int, most: int) -> Span:
    start = min(places)
    ahead = (place for place in places if place > start)
    return Span(start, max(start, min(end, start + most, *ahead)))
