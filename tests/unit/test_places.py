"""Where a stage reads on, by what is committed and what the broker has."""

from __future__ import annotations

import pytest

from dovetail.errors import Unavailable
from dovetail.stream.places import AstrayError, Cut, Place, Span, new_places
from dovetail.topology import Keeps, Topic

SOURCE = Topic("sales", 4, grows=True)
MAPPED = Topic("sales.mapped", 4, Keeps.UNREAD)
SPANS = {0: Span(0, 10), 1: Span(5, 10), 2: Span(7, 7)}


@pytest.mark.parametrize("topic", [SOURCE, MAPPED])
def test_what_is_there_is_read_on_and_what_is_new_from_its_first_record(topic):
    assert new_places(topic, {0: 0, 1: 5, 2: 7}, SPANS) == {}
    assert new_places(topic, {0: 10, 1: 10, 2: 7}, SPANS) == {}
    assert new_places(topic, {0: None, 1: None, 2: 7}, SPANS) == {0: Place(0), 1: Place(5)}


def test_what_the_source_has_deleted_unread_is_lost():
    assert new_places(SOURCE, {0: 3, 1: 3, 2: 0}, SPANS) == {1: Place(5, 2), 2: Place(7, 7)}


def test_what_an_internal_topic_has_deleted_unread_is_a_fault():
    with pytest.raises(AstrayError, match=r"1 of sales\.mapped begins at 5, and was read up to 3"):
        new_places(MAPPED, {1: 3}, SPANS)


@pytest.mark.parametrize(("topic", "cure"), [(SOURCE, "restart --offset 0=10"), (MAPPED, "docs/")])
def test_beyond_the_end_nobody_but_an_operator_knows(topic, cure):
    with pytest.raises(AstrayError, match="ends at 10, and was read up to 11") as caught:
        new_places(topic, {0: 11}, SPANS)
    assert cure in str(caught.value)


def test_all_that_are_beyond_their_end_are_told_at_once():
    with pytest.raises(AstrayError, match="restart --offset 0=10 --offset 2=7") as caught:
        new_places(SOURCE, {0: 11, 1: 5, 2: 9}, SPANS)
    assert caught.value.cut == {0: Cut(11, 10), 2: Cut(9, 7)}


def test_a_log_that_was_found_cut_is_cut_however_long_it_has_grown():
    grown = {0: Span(0, 99)}
    assert new_places(SOURCE, {0: 11}, grown) == {}
    with pytest.raises(AstrayError, match="ends at 10, and was read up to 11"):
        new_places(SOURCE, {0: 11}, grown, {0: 10})


def test_a_partition_that_not_all_brokers_know_yet_is_waited_for():
    with pytest.raises(Unavailable, match="partition 3 of sales is not known everywhere yet"):
        new_places(SOURCE, {3: None}, SPANS)
