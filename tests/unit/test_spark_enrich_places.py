"""From where slots read on that a killed run has left at different places."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from dovetail.stream.places import AstrayError, Span
from dovetail.stream.slot_state import SlotState
from dovetail.topology import Topic
from services.spark.enrich_places import placed

SOURCE = Topic("sales", 1, grows=True)


def at(*positions):
    return {slot: SlotState(Counter(), {0: one}) for slot, one in enumerate(positions)}


def test_the_slot_that_is_ahead_must_not_be_beyond_the_end():
    """What comes to stand below its position would count as answered."""
    assert placed(SOURCE, at(1_000, 500), {0: Span(0, 1_000)}) == at(1_000, 500)
    with pytest.raises(AstrayError, match="ends at 700, and was read up to 1000"):
        placed(SOURCE, at(1_000, 500), {0: Span(0, 700)})


def test_a_source_that_was_found_cut_is_cut_however_long_it_has_grown():
    grown, states = {0: Span(0, 5_000)}, at(1_000, 500)
    assert placed(SOURCE, states, grown) == states
    told = {slot: replace(state, cut={0: 700}) for slot, state in states.items()}
    with pytest.raises(AstrayError, match="ends at 700, and was read up to 1000"):
        placed(SOURCE, told, grown)
    moved = {slot: state.moved(1, {0: 700}) for slot, state in told.items()}
    assert placed(SOURCE, moved, grown) == moved


def test_a_partition_that_nobody_knows_begins_with_its_first_record():
    found = placed(SOURCE, at(10, 10), {0: Span(0, 20), 1: Span(5, 20)})
    assert [state.positions for state in found.values()] == [{0: 10, 1: 5}] * 2
    assert not any(state.counts for state in found.values())


def test_what_was_deleted_unread_is_counted_once_by_whom_it_has_passed():
    found = placed(SOURCE, at(400, 800), {0: Span(1_000, 2_000)})
    assert sum((state.counts for state in found.values()), Counter()) == {"in": 400, "lost": 400}
    assert [state.positions for state in found.values()] == [{0: 1_000}] * 2
