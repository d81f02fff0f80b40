from collections import Counter

import pytest

from dovetail.stream import ledger as outcome
from dovetail.stream.ledger import Ledger, dead, dead_letters, parse


@pytest.fixture
def ledger():
    ledger = Ledger()
    ledger.open(3, "in=10,clean=9,dead.invalid-json=1")
    return ledger


def test_a_partition_goes_on_from_what_its_last_owner_wrote(ledger):
    ledger.add(3, outcome.IN, 5)
    ledger.add(3, outcome.CLEAN, 4)
    ledger.add(3, dead("too-large"), 1)
    counts = parse(ledger.text(3))
    assert counts == {
        "in": 15,
        "clean": 13,
        "dead.invalid-json": 1,
        "dead.too-large": 1,
    }
    assert dead_letters(counts) == 2


def test_the_text_of_a_step_is_what_is_committed(ledger):
    ledger.add(3, outcome.IN, 5)
    written = ledger.text(3)
    ledger.commit()
    assert ledger.text(3) == written


def test_a_text_can_be_read_back_whatever_it_counts():
    ledger = Ledger()
    counts = {"in": 2**62, "dead.missing-key": 1, "outputs": 7}
    for name, count in counts.items():
        ledger.add(0, name, count)
    assert parse(ledger.text(0)) == counts
    reopened = Ledger()
    reopened.open(0, ledger.text(0))
    assert reopened.text(0) == ledger.text(0)


def test_an_offset_without_a_text_starts_from_nothing():
    assert parse("") == Counter()
    ledger = Ledger()
    ledger.open(0, "")
    assert ledger.text(0) == ""


def test_a_commit_returns_the_step_over_all_partitions_and_ends_it(ledger):
    ledger.add(3, outcome.IN, 5)
    ledger.add(4, outcome.IN, 2)
    assert ledger.commit() == {"in": 7}
    assert ledger.commit() == {}
    assert ledger.total() == {"in": 17, "clean": 9, "dead.invalid-json": 1}


def test_an_aborted_step_leaves_no_trace(ledger):
    before = ledger.text(3)
    ledger.add(3, outcome.IN, 5)
    ledger.add(4, outcome.IN, 5)
    ledger.abort()
    assert ledger.text(3) == before
    assert ledger.text(4) == ""
    assert ledger.commit() == {}


def test_a_step_done_again_counts_once(ledger):
    ledger.add(3, outcome.IN, 5)
    ledger.abort()
    ledger.add(3, outcome.IN, 5)
    ledger.commit()
    assert parse(ledger.text(3))["in"] == 15


def test_a_closed_partition_is_not_counted_any_more(ledger):
    ledger.add(3, outcome.IN, 5)
    ledger.close(3)
    assert ledger.text(3) == ""
    assert ledger.commit() == {}
    assert ledger.total() == {}
    ledger.close(3)


def test_nothing_is_written_of_what_did_not_happen(ledger):
    ledger.add(4, outcome.UNMATCHED, 0)
    assert ledger.text(4) == ""


def test_where_a_log_was_cut_stands_there_until_the_offset_is_moved():
    ledger = Ledger()
    ledger.open(0, "in=3")
    ledger.set_cut(0, 0)
    assert ledger.text(0) == "cut=0,in=3"
    later = Ledger()
    later.open(0, ledger.text(0))
    assert later.cut == {0: 0}
    assert later.total() == {"in": 3}
    later.set_moved(0, 7)
    assert later.cut == {}
    assert later.text(0) == "in=3,moved=7"
