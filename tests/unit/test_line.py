from __future__ import annotations

import numpy as np
import pytest

from dovetail.errors import Unavailable
from dovetail.join.columns import Column
from dovetail.join.entry import Entries, MasterRows
from dovetail.join.exchange import Answers
from dovetail.join.line import Line
from dovetail.testing.fakes import join_keys

PLENTY = 1 << 20


def answers(*numbers, event=b"{}"):
    """Answers whose events all have the one key 1, with one row."""
    key = join_keys([1])
    entry = Entries.of(key, MasterRows(key, Column.of([b'{"name":"x"}'])))
    starts = np.zeros(len(numbers), np.int64)
    return Answers(Column.of([event] * len(numbers)), np.array(numbers), entry.data, starts)


def due(line, *waiting):
    """Whose turn it is, slice by slice; the others have to find room."""
    left = []
    while (found := line.due(np.array([one for one in waiting if one not in left]))) is not None:
        left += found.answers.ids.tolist()
    line.require_room(len(waiting))
    return left


def test_within_no_distance_an_answer_waits_for_all_before_it():
    line = Line(0, PLENTY)
    line.stand(answers(3, 2), cached=False)
    assert due(line, 1, 2, 3, 4) == []
    line.stand(answers(1), cached=False)
    assert due(line, 1, 2, 3, 4) == [1, 2, 3]
    assert len(line) == line.nbytes == 0


def test_within_a_distance_of_the_oldest_without_an_answer_an_answer_may_leave():
    line = Line(2, PLENTY)
    line.stand(answers(23, 20, 19), cached=False)
    assert due(line, 18, 19, 20, 21, 22, 23) == [19, 20]
    line.stand(answers(22), cached=False)
    assert due(line, 18, 21, 22, 23) == []
    line.stand(answers(18), cached=False)
    assert due(line, 18, 21, 22, 23) == [18, 22, 23]


def test_when_nothing_waits_but_the_line_all_of_it_leaves():
    line = Line(0, PLENTY)
    line.stand(answers(7, 5), cached=True)
    assert due(line, 5, 7) == [5, 7]


def test_what_leaves_knows_whose_answer_it_is_and_keeps_its_own_entry():
    line = Line(0, PLENTY)
    line.stand(answers(2, 4, event=b'{"a":1}'), cached=True)
    line.stand(answers(1, 3), cached=False)
    found = line.due(np.array([1, 2, 3, 4, 5]))
    assert found.answers.ids.tolist() == [1, 2, 3, 4]
    assert found.cached.tolist() == [False, True, False, True]
    assert list(found.answers.events) == [b"{}", b'{"a":1}', b"{}", b'{"a":1}']
    one = answers(1).entries.tobytes()
    sent = found.answers.entries.tobytes()
    assert [sent[at : at + len(one)] for at in found.answers.starts] == [one] * 4


def test_no_more_events_are_let_in_than_their_answers_would_find_room():
    line = Line(0, 10_240)
    assert line.lets_in(0) == 20, "half a KiB each, as long as none is known"
    assert line.lets_in(15) == 5
    assert line.lets_in(50) == 0
    for number in range(1, 101):
        line.stand(answers(number, event=b"x" * 2_000), cached=False)
        due(line, number)
    assert line.lets_in(0) == 4


def test_the_oldest_event_is_always_let_in():
    line = Line(0, 100)
    line.stand(answers(5, 6, 7, 8), cached=True)
    assert line.lets_in(0) == 1
    assert line.lets_in(1) == 0


def test_a_batch_comes_in_if_it_finds_room_or_the_line_is_empty():
    line = Line(0, 1_000)
    assert line.takes(5_000)
    line.stand(answers(2), cached=True)
    assert line.takes(1_000 - line.nbytes)
    assert not line.takes(1_001 - line.nbytes)


def test_answers_without_room_undo_the_step_and_fewer_are_let_in_until_the_stretch_is_past():
    line = Line(0, 10_240)
    before = line.lets_in(0)
    line.stand(answers(*range(2, 12), event=b"x" * 1_200), cached=False)
    with pytest.raises(Unavailable, match="more memory would let in more"):
        due(line, *range(1, 12))
    line.clear()
    after = line.lets_in(0)
    assert 0 < after < before / 2

    for number in range(1, 12):
        line.stand(answers(number, event=b"x" * 1_200), cached=False)
        assert due(line, *range(number, 12)) == [number]
    cautious = line.lets_in(0)
    line.stand(answers(12, event=b"x" * 1_200), cached=False)
    assert due(line, 12) == [12]
    assert line.lets_in(0) == pytest.approx(2 * cautious, abs=1)


def test_hits_alone_undo_nothing_however_large():
    line = Line(0, 100)
    line.stand(answers(*range(2, 50)), cached=True)
    assert due(line, *range(1, 50)) == []
    assert line.nbytes > 100


def test_what_leaves_at_a_time_is_a_slice():
    line = Line(0, 8_000)
    line.stand(answers(*range(1, 31), event=b"x" * 200), cached=False)
    first = line.due(np.arange(1, 31)).answers
    assert first.ids.tolist() == list(range(1, len(first) + 1))
    assert first.events.size <= 1_000
    assert due(line, *range(len(first) + 1, 31)) == list(range(len(first) + 1, 31))


def test_an_entry_is_held_once_however_many_events_it_answers():
    line = Line(0, PLENTY)
    key = join_keys([1])
    entry = Entries.of(key, MasterRows(key, Column.of([b'{"name":"%s"}' % (b"x" * 5_000)])))
    other = Entries.concatenate([entry, entry])
    starts = np.zeros(100, np.int64)
    numbers = np.arange(2, 102)
    line.stand(Answers(Column.of([b"{}"] * 100), numbers, other.data, starts), cached=False)
    assert line.nbytes < 10_000


def test_the_last_in_line_are_turned_away_when_there_is_no_room():
    line = Line(0, 10_240)
    before = line.lets_in(0)
    line.stand(answers(*range(2, 52, 2), event=b"x" * 400), cached=False)
    line.stand(answers(*range(3, 53, 2), event=b"x" * 400), cached=False)
    away = line.turn_away(52)
    gone = sorted(number for part in away for number in part.ids.tolist())
    assert gone == list(range(gone[0], 52 + 1))[: len(gone)]
    assert line.nbytes <= 10_240
    assert len(line) + len(gone) == 50
    assert line.turn_away(52) == []
    line.clear()
    assert line.lets_in(0) < before, "and fewer are let in"
