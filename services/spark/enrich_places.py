"""From where the slots read on, by their positions and what the broker has of the source."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from dovetail.stream.places import new_places, require_within
from dovetail.stream.slot_state import beginnings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dovetail.stream.places import Span
    from dovetail.stream.slot_state import SlotState
    from dovetail.topology import Topic

log = logging.getLogger(__name__)


def placed(
    source: Topic, states: dict[int, SlotState], spans: Mapping[int, Span]
) -> dict[int, SlotState]:
    """The slots' states with a place for each partition of the source."""
    slots = list(states.values())
    known = {number for state in slots for number in state.positions}
    # A slot ahead of the others would pass over whatever comes to stand below its position.
    furthest = {n: max(state.position(n) for state in slots) for n in known & spans.keys()}
    ends = {number: end for state in slots for number, end in state.cut.items()}
    require_within(source, furthest, spans, ends)
    read_to = {
        number: at if number in known else None
        for number, at in beginnings(slots, len(spans)).items()
    }
    found = dict(states)
    for number, place in new_places(source, read_to, spans).items():
        # Who of them has read further has missed less. What a slot has missed nobody knows, but
        # all of them together: one of them counts it.
        missed = [max(0, place.offset - state.position(number)) for state in slots]
        lost = sum(missed) // len(slots) if place.lost else 0
        for slot, state in found.items():
            counted = lost if slot == number % len(slots) else 0
            found[slot] = state.placed(number, place.offset, counted)
        if lost:
            log.error(
                "events were deleted before they were read: keep them longer (retention.ms)",
                extra={"partition": number, "events": lost, "from": place.offset},
            )
    return found
