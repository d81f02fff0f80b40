"""Versions appear whole, are taken over between cycles, and go when nobody reads them."""

from __future__ import annotations

import logging
import os
import shutil

import numpy as np
import pytest

from dovetail.errors import MasterDataError, Unavailable
from dovetail.join.columns import Column, JoinKeys
from dovetail.join.entry import MasterRows
from dovetail.join.exchange import Keys, Pages
from dovetail.join.mapper import Mapper
from dovetail.master.snapshot.current import CurrentSnapshot
from dovetail.master.snapshot.files import Caching
from dovetail.master.snapshot.versions import Hold, Versions, versions_of
from tests.unit.snapshot_kit import COMMAND, fill, pipeline_of, publish

SLOTS = 4
AMPLE = 1 << 20
OF = pipeline_of("int", SLOTS)


def rows_of(keys, tag):
    rows = Column.of([b'{"r":"%s-%d"}' % (tag.encode(), key) for key in keys])
    return MasterRows(JoinKeys.of_ints(np.array(keys, np.int64)), rows)


@pytest.fixture
def versions(tmp_path):
    return versions_of(tmp_path, OF.name)


@pytest.fixture
def current(versions):
    relation = CurrentSnapshot(versions, OF, COMMAND)
    yield relation
    relation.close()


def cycle(relation):
    """All rows of a cycle, one read after another; what renew gives comes first."""
    facts = relation.renew()
    pages = relation.facts.pages
    rows, page = [], 0
    while page < pages:
        read = relation.read(Pages(page, 1, pages), AMPLE)
        rows += [row.decode() for row in read.rows.rows]
        page += read.covers
    return facts, sorted(rows)


def test_a_version_is_seen_when_all_of_it_is_there(versions):
    with versions.next() as (number, unseen):
        fill(unseen, number, OF, rows_of(range(10), "a"))
        assert versions.numbers() == []
        assert versions.current() is None
    assert versions.numbers() == [1]
    assert versions.current() == 1
    with Hold(versions.path(1)) as hold:
        assert hold.version.rows == 10
        assert [hold.slot(slot).name for slot in range(SLOTS)] == [
            f"slot-{slot:05}" for slot in range(SLOTS)
        ]


def test_one_that_was_not_finished_leaves_nothing(versions):
    publish(versions, OF, rows_of([1], "a"))

    def broken_off():
        with versions.next() as (number, unseen):
            fill(unseen, number, OF, rows_of([1], "b"))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        broken_off()
    assert (versions.current(), versions.numbers()) == (1, [1])
    assert sorted(path.name for path in versions.folder.iterdir()) == ["00000001", "current"]


def test_what_a_killed_writer_left_is_removed_by_the_next(versions):
    remains = versions.folder / ".00000001.abc.partial" / "slot-00000"
    remains.mkdir(parents=True)
    assert publish(versions, OF, rows_of([1], "a")) == 1
    assert sorted(path.name for path in versions.folder.iterdir()) == ["00000001", "current"]


def test_the_last_two_are_kept_and_whatever_is_read(versions):
    publish(versions, OF, rows_of([1], "a"))
    with Hold(versions.path(1)):
        for tag in "bcd":
            publish(versions, OF, rows_of([1], tag))
        assert versions.numbers() == [1, 3, 4]
    publish(versions, OF, rows_of([1], "e"))
    assert versions.numbers() == [4, 5]


def test_another_number_than_the_newest_may_be_made_current(versions, current):
    for tag in "ab":
        publish(versions, OF, rows_of([1], tag))
    (versions.folder / "current").unlink()
    (versions.folder / "current").symlink_to("00000001")
    assert cycle(current)[1] == ['{"r":"a-1"}']


def test_without_a_snapshot_the_command_is_named(versions, current):
    assert COMMAND in current.waiting_for()
    assert current.facts.pages == 1
    with pytest.raises(Unavailable, match=COMMAND):
        current.renew()
    with pytest.raises(Unavailable, match=COMMAND):
        current.read(Keys(JoinKeys.of_ints(np.array([1]))), AMPLE)
    publish(versions, OF, rows_of([1], "a"))
    assert not current.waiting_for()
    assert cycle(current)[1] == ['{"r":"a-1"}']


def test_a_version_is_taken_over_between_cycles_and_not_within_one(versions, current):
    publish(versions, OF, rows_of(range(8), "a"), page_bytes=1)
    facts, rows = cycle(current)
    assert facts is not None
    assert rows == sorted(f'{{"r":"a-{key}"}}' for key in range(8))
    assert current.renew() is None, "nothing has changed"
    read = current.read(Pages(0, 1, facts.pages), AMPLE)
    publish(versions, OF, rows_of(range(9), "b"), page_bytes=1)
    on = current.read(Pages(read.covers, facts.pages, facts.pages), AMPLE)
    assert b"a-" in on.rows.rows[0]
    facts, rows = cycle(current)
    assert facts.rows == 9
    assert rows == sorted(f'{{"r":"b-{key}"}}' for key in range(9))


def test_a_lookup_is_answered_by_the_version_that_is_current_by_then(versions, current):
    publish(versions, OF, rows_of(range(8), "a"))
    wanted = Keys(JoinKeys.of_ints(np.array([3, 5])))
    assert sorted(current.read(wanted, AMPLE).rows.rows) == [b'{"r":"a-3"}', b'{"r":"a-5"}']
    publish(versions, OF, rows_of(range(8), "b"))
    assert sorted(current.read(wanted, AMPLE).rows.rows) == [b'{"r":"b-3"}', b'{"r":"b-5"}']
    assert current.renew() is not None, "pages are to be counted anew after it"


def test_only_the_slots_that_are_kept_are_scanned(versions, current):
    publish(versions, OF, rows_of(range(50), "a"))
    cycle(current)
    slots = Mapper(SLOTS, int_key=True).slots(JoinKeys.of_ints(np.arange(50)))
    current.keep(frozenset({1, 3}))
    facts, rows = cycle(current)
    assert facts is not None
    mine = np.flatnonzero(np.isin(slots, [1, 3])).tolist()
    assert rows == sorted(f'{{"r":"a-{key}"}}' for key in mine)
    current.keep(frozenset())
    assert current.renew() is not None


@pytest.mark.parametrize(
    "other",
    [pipeline_of("int", SLOTS + 1), pipeline_of("int", SLOTS, join="semi")],
    ids=["other slots", "keys alone"],
)
def test_a_version_of_something_else_is_not_taken_over(versions, current, other, caplog):
    rows = rows_of(range(8), "b")
    publish(versions, other, rows)
    assert COMMAND in current.waiting_for()
    with pytest.raises(Unavailable, match=COMMAND):
        current.renew()
    publish(versions, OF, rows_of(range(8), "a"))
    assert len(cycle(current)[1]) == 8
    publish(versions, other, rows)
    with caplog.at_level(logging.WARNING):
        assert cycle(current) == (None, sorted(f'{{"r":"a-{key}"}}' for key in range(8)))
    assert "was written for" in caplog.records[0].reason


@pytest.mark.parametrize("is_cached", [True, False])
def test_how_a_version_is_read_is_asked_with_its_size(versions, is_cached):
    asked = []

    def answer(size):
        asked.append(size)
        return is_cached

    relation = CurrentSnapshot(versions, OF, COMMAND, is_cached=answer)
    publish(versions, OF, rows_of(range(8), "a"))
    assert cycle(relation)[1] == sorted(f'{{"r":"a-{key}"}}' for key in range(8))
    files = [path for path in versions.path(1).rglob("slot-*/*") if path.suffix != ".json"]
    assert asked == [sum(path.stat().st_size for path in files)]
    parts = relation._relation._parts.values()
    assert all((part.caching is Caching.THROUGH) is is_cached for part in parts)
    relation.close()


def test_a_damaged_version_is_not_taken_over(versions, current, caplog):
    publish(versions, OF, rows_of(range(8), "a"))
    cycle(current)
    number = publish(versions, OF, rows_of(range(8), "b"))
    manifest = versions.path(number) / "slot-00002" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"rows"', '"rows" '))
    with caplog.at_level(logging.WARNING):
        assert cycle(current) == (None, sorted(f'{{"r":"a-{key}"}}' for key in range(8)))
    assert "slot-00002" in caplog.records[0].reason


def keys_of(slots, count=50):
    """Keys of these slots alone."""
    of = Mapper(SLOTS, int_key=True).slots(JoinKeys.of_ints(np.arange(count)))
    return JoinKeys.of_ints(np.flatnonzero(np.isin(of, slots)))


def test_files_that_are_deleted_are_read_on_until_slots_move_and_then_waited_for(versions, current):
    publish(versions, OF, rows_of(range(50), "a"))
    current.keep(frozenset({1}))
    cycle(current)
    shutil.rmtree(versions.folder)
    assert len(current.read(Keys(keys_of([1])), AMPLE).rows) > 0
    assert not current.waiting_for()
    current.keep(frozenset({1, 3}))
    with pytest.raises(Unavailable, match=COMMAND):
        current.read(Keys(keys_of([3])), AMPLE)
    with pytest.raises(Unavailable, match=COMMAND):
        current.renew()
    assert COMMAND in current.waiting_for()
    # It gets the number of the one that was lost.
    assert publish(versions, OF, rows_of(range(50), "b")) == 1
    assert not current.waiting_for()
    assert all(b"b-" in row for row in current.read(Keys(keys_of([1, 3])), AMPLE).rows.rows)


def test_a_version_written_anew_under_the_number_of_a_lost_one_is_taken_over(versions, current):
    publish(versions, OF, rows_of(range(8), "a"))
    cycle(current)
    shutil.rmtree(versions.folder)
    assert publish(versions, OF, rows_of(range(8), "b")) == 1
    facts, rows = cycle(current)
    assert facts is not None
    assert rows == sorted(f'{{"r":"b-{key}"}}' for key in range(8))


def test_while_a_slots_file_is_missing_or_cut_the_reason_is_told(versions, current):
    publish(versions, OF, rows_of(range(8), "a"))
    file = versions.path(1) / "slot-00002" / "rows"
    whole = file.read_bytes()
    for damage in (lambda: file.write_bytes(whole[:-1]), file.unlink):
        damage()
        assert "slot-00002" in current.waiting_for()
        assert COMMAND in current.waiting_for()
        with pytest.raises(Unavailable, match="slot-00002"):
            current.renew()
    publish(versions, OF, rows_of(range(8), "b"))
    assert not current.waiting_for()
    assert len(cycle(current)[1]) == 8


def test_a_file_that_is_cut_while_it_is_read_is_waited_for(versions, current):
    publish(versions, OF, rows_of(range(50), "a"))
    cycle(current)
    for file in versions.path(1).glob("slot-*/rows"):
        os.truncate(file, 0)
    with pytest.raises(Unavailable, match=COMMAND):
        current.read(Keys(keys_of(range(SLOTS))), AMPLE)
    publish(versions, OF, rows_of(range(50), "b"))
    assert len(cycle(current)[1]) == 50


def test_a_current_that_is_no_link_is_named(tmp_path):
    (tmp_path / "current").write_text("00000001")
    with pytest.raises(MasterDataError, match="no link"):
        Versions(tmp_path).current()
