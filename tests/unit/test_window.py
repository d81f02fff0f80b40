from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dovetail.node.source_window import SourceWindow, answered_below
from dovetail.node.window import Window
from dovetail.testing.fakes import event_batch


def batch(count, first_offset=0):
    return event_batch(
        [(key, b"{}") for key in range(count)], partition=7, first_offset=first_offset
    )


def come(window, slot, offset, batch):
    """Hand a batch in that there is room for."""
    window.expect(slot, offset, batch)
    return window.enter(slot, offset, batch)


@pytest.fixture
def window():
    """Batches 17 and 18 of slot 0 and batch 4 of slot 1, of three events each."""
    window = Window(12)
    come(window, 0, 17, batch(3, 100))
    come(window, 1, 4, batch(3, 200))
    come(window, 0, 18, batch(3, 300))
    return window


def test_an_event_is_known_by_its_number(window):
    [one, other] = window.finish(np.array([8, 4, 1]))
    assert (one.slot, one.places.tolist(), one.offsets.tolist()) == (0, [0, 2], [302, 101])
    assert (other.slot, other.places.tolist(), other.offsets.tolist()) == (1, [1], [201])
    assert set(one.partitions.tolist()) == {7}


def test_a_slot_stays_at_its_oldest_batch_that_waits(window):
    window.finish(np.array([0, 1, 6, 7, 8, 3]))
    window.advance()
    assert (window.oldest(0), window.oldest(1)) == (17, 4)
    window.finish(np.array([2]))
    window.advance()
    assert (window.oldest(0), window.oldest(1)) == (None, 4)


def test_progress_says_what_is_answered_at_and_above_the_oldest_batch(window):
    window.finish(np.array([1, 6, 7, 8]))
    window.advance()
    progress = window.progress(0, 5)
    assert (progress.slot, progress.number) == (0, 5)
    assert [(one.offset, one.events, one.bits) for one in progress.answered] == [
        (17, 3, b"\x02"),
        (18, 3, b"\x07"),
    ]
    assert window.progress(1, 5) is None


def test_what_the_last_owner_answered_is_not_answered_again(window):
    window.finish(np.array([1, 6, 7, 8]))
    after = Window(12)
    after.recall(window.progress(0, 5))
    places, numbers = come(after, 0, 17, batch(3, 100))
    assert (places.tolist(), numbers.tolist()) == ([0, 2], [0, 2])
    after.finish(numbers)
    after.advance()
    assert after.oldest(0) is None


def test_what_is_recalled_of_batches_to_come_stays_in_the_progress(window):
    window.finish(np.array([1, 6, 7, 8]))
    after = Window(12)
    after.recall(window.progress(0, 5))
    come(after, 0, 17, batch(3, 100))
    assert after.progress(0, 6).answered == window.progress(0, 6).answered


def test_room_comes_back_when_the_oldest_batch_of_all_is_answered(window):
    assert window.room == 3
    window.finish(np.arange(3, 9))
    window.advance()
    assert window.room == 3, "batch 17 came first and waits"
    window.finish(np.arange(3))
    window.advance()
    assert window.room == 12
    _, numbers = come(window, 2, 0, batch(12, 500))
    [one] = window.finish(numbers)
    assert one.offsets.tolist() == list(range(500, 512))


def test_what_is_dropped_is_as_if_it_never_came(window):
    window.clear()
    assert window.room == 12
    assert window.oldest(0) is None
    assert window.progress(0, 1) is None


def test_of_the_source_all_that_was_read_is_answered_but_what_waits():
    window = SourceWindow(12)
    window.read(np.full(6, 7, np.int32), np.array([100, 101, 102, 105, 106, 107]))
    events = replace(batch(4, 100), slots=np.zeros(4, np.int32))
    come(window, 0, 0, replace(events, offsets=np.array([100, 101, 105, 106])))
    window.finish(np.array([1, 2]))
    window.advance()
    progress = window.progress(7, 4)
    assert window.oldest(7) == 100
    # 102 was bad, 103 and 104 are nobody's.
    assert [answered_below(progress, offset) for offset in (90, 101, 103, 200)] == [0, 0, 2, 6]
