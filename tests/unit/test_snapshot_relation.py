"""A snapshot answers what the engine wants: the right rows, whole keys, within the bytes given."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

import numpy as np
import pytest

from dovetail.errors import MasterDataError, TooManyRowsError
from dovetail.join.algorithms import ALGORITHMS
from dovetail.join.columns import Column, JoinKeys
from dovetail.join.engine import Engine, fed
from dovetail.join.entry import MasterRows
from dovetail.join.exchange import NOTES_A_ROW, Events, Keys, Pages, Partition
from dovetail.join.phase import Relation
from dovetail.master.snapshot.files import Caching
from dovetail.master.snapshot.order import sorted_rows
from dovetail.master.snapshot.relation import SnapshotRelation
from dovetail.master.snapshot.writer import write_snapshot
from tests.unit.engine_kit import rows_each
from tests.unit.test_snapshot_writer import int_rows, listed, text_rows

AMPLE = 1 << 24


def snapshot_of(tmp_path, rows, page_bytes=8192, **options):
    key = "text" if len(rows.keys.texts.data) else "int"
    write_snapshot(tmp_path / "r", [sorted_rows(rows)], key=key, page_bytes=page_bytes)
    return SnapshotRelation(tmp_path / "r", **options)


def in_pages_of(tmp_path, rows_a_page, keys, **options):
    """Rows of 24 bytes, their keys with 8 of them, in pages of so many."""
    relation = snapshot_of(tmp_path, int_rows(keys, size=24), 32 * rows_a_page, **options)
    assert relation.manifest.rows_a_page == rows_a_page
    return relation


def one(key):
    return JoinKeys.of_ints(np.array([key], np.int64))


def keys_read(read):
    return read.rows.keys.values.tolist()


STRADDLING = [1, 2, 2, 2, 2, 2, 2, 5, 6, 7, 7, 9]
"""In pages of three: 1 2 2 | 2 2 2 | 2 5 6 | 7 7 9."""


def test_facts_say_what_the_largest_page_takes(tmp_path):
    sizes = [10, 500, 20, 7, 300, 1, 2]
    rows = Column.of([b"x" * size for size in sizes])
    relation = snapshot_of(tmp_path, MasterRows(JoinKeys.of_ints(np.arange(7)), rows), 300)
    facts = relation.facts
    taken = [
        relation.read(Pages(page, 1, facts.pages), AMPLE).nbytes for page in range(facts.pages)
    ]
    assert facts.pages > 1
    assert facts.page_bytes == max(taken)
    assert facts.unique


@pytest.mark.parametrize("read_ahead", [True, False])
@pytest.mark.parametrize("direct", [True, False])
def test_a_scan_passes_every_row_once_a_cycle(tmp_path, read_ahead, direct):
    rows = sorted_rows(text_rows(range(3000)))
    relation = snapshot_of(tmp_path, rows, 700, read_ahead=read_ahead, direct=direct)
    pages = relation.facts.pages
    page, seen = 0, []
    while page < 2 * pages:
        read = relation.read(Pages(page % pages, 7, pages), AMPLE)
        assert read.covers == len(read.ends)
        assert read.ends[-1] == len(read.rows)
        assert page // pages == (page + read.covers - 1) // pages, "a read ends where R does"
        seen += listed(read.rows)
        page += read.covers
    assert seen == 2 * listed(rows)


def test_pages_read_ahead_are_those_that_come_next(tmp_path):
    relation = in_pages_of(tmp_path, 2, list(range(20)))
    for first, count, keys, why in [
        (0, 2, [0, 1, 2, 3], "nothing was read ahead"),
        (2, 1, [4, 5], "fewer than were read ahead"),
        (3, 4, [6, 7], "no more than were read ahead"),
        (8, 4, [16, 17, 18, 19], "others than were read ahead, up to R's end"),
        (0, 1, [0, 1], "ahead beyond R's end comes its start"),
    ]:
        read = relation.read(Pages(first, count, 10), AMPLE)
        assert (keys_read(read), 2 * read.covers) == (keys, len(keys)), why
        assert read.ends.tolist() == list(range(2, len(keys) + 1, 2))
    relation.close()


def test_a_long_read_ends_with_a_block_of_every_file_unless_it_is_the_last(tmp_path):
    relation = in_pages_of(tmp_path, 64, list(range(64 * 100)))  # 8 pages are whole blocks
    for first, count, covers in [(0, 45, 40), (40, 45, 40), (80, 45, 20), (3, 45, 45), (0, 9, 9)]:
        read = relation.read(Pages(first, count, 100), 1_000_000)
        assert read.covers == covers
        assert keys_read(read) == list(range(64 * first, 64 * (first + covers)))
    relation.close()


def buffers_of(relation):
    scanner, looker = relation._scanner, relation._looker
    return [*scanner._ahead._buffers, *looker._ahead._buffers, looker._buffer]


@pytest.mark.parametrize("read_ahead", [True, False])
@pytest.mark.parametrize("most", [60_000, 200_000, 1_000_000, 4_300_000])
def test_all_buffers_together_stay_within_the_bytes_given(tmp_path, read_ahead, most):
    relation = in_pages_of(tmp_path, 50, list(range(40_000)), read_ahead=read_ahead)
    pages = relation.facts.pages
    requests = [
        Pages(3, pages, pages),
        Partition(one(777)),
        Keys(JoinKeys.of_ints(np.arange(0, 40_000, 39))),
        Pages(pages - 2, 7, pages),
    ]
    for request in requests:
        read = relation.read(request, most)
        assert read.covers > 0
        assert read.nbytes <= most
        held = sum(len(buffer.bytes) for buffer in buffers_of(relation))
        copied = read.nbytes if isinstance(request, Keys) else NOTES_A_ROW * len(read.rows)
        assert held + copied <= most


def test_a_small_buffer_is_used_for_one_long_read_not_for_two(tmp_path):
    relation = in_pages_of(tmp_path, 50, list(range(1000)))
    assert relation.read(Pages(0, 4, 20), relation.facts.page_bytes).covers == 1
    assert relation.read(Pages(0, 20, 20), 1_000_000).covers == 20
    assert relation._scanner._ahead._ahead is None
    relation.read(Pages(0, 20, 20), 4_300_000)
    assert relation._scanner._ahead._ahead is not None
    relation.close()


@pytest.mark.parametrize(
    ("key", "pages", "found"),
    [
        (1, 1, [1]),  # 2 goes on behind the page and was not asked for
        (2, 1, [1, 2, 2, 2, 2, 2, 2, 5, 6]),
        (5, 1, [5, 6]),
        (3, 1, [5, 6]),  # absent
        (7, 1, [7, 7, 9]),
        (0, 1, [1]),
        (99, 1, [7, 7, 9]),
        (2, 2, [1, 2, 2, 2, 2, 2, 2, 5, 6]),
        (9, 2, [5, 6, 7, 7, 9]),
        (5, 4, STRADDLING),
        (5, 100, STRADDLING),
    ],
)
def test_a_partition_holds_whole_keys_and_all_rows_of_the_one_asked_for(
    tmp_path, key, pages, found
):
    relation = in_pages_of(tmp_path, 3, STRADDLING, partition_pages=pages)
    assert keys_read(relation.read(Partition(one(key)), AMPLE)) == found


@pytest.mark.parametrize("rows_a_page", [1, 2, 3, 5, 12])
@pytest.mark.parametrize("pages", [1, 2, 3])
def test_no_partition_has_a_part_of_a_key_only(tmp_path, rows_a_page, pages):
    relation = in_pages_of(tmp_path, rows_a_page, STRADDLING, partition_pages=pages)
    for key in range(-1, 12):
        read = keys_read(relation.read(Partition(one(key)), AMPLE))
        assert read.count(key) == STRADDLING.count(key)
        assert all(read.count(other) == STRADDLING.count(other) for other in read)


def test_a_key_whose_own_rows_do_not_fit_is_refused(tmp_path):
    relation = in_pages_of(tmp_path, 3, STRADDLING)
    for asked in (Partition(one(2)), Keys(one(2))):
        with pytest.raises(TooManyRowsError, match=r"join key 2 take 456 bytes.*more memory"):
            relation.read(asked, 300)
        assert keys_read(relation.read(asked, 456)) == [2] * 6
    assert keys_read(relation.read(Partition(one(9)), 300)) == [7, 7, 9]


WIDE = 20
"""The key with a row of 100,000 bytes; the others have 60."""


def wide_snapshot(tmp_path, *, text):
    keys = [key for key in range(40) for _ in range(1 + key % 3)]
    master = text_rows(keys).keys if text else JoinKeys.of_ints(np.array(keys, np.int64))
    rows = Column.of(
        [b"{%d}" % i + b"x" * (99_000 if k == WIDE else 60) for i, k in enumerate(keys)]
    )
    master = MasterRows(master, rows)
    relation = snapshot_of(tmp_path, master, 40_000, direct=False)
    assert 1 < relation.facts.pages < 30, "there are neighbours"
    return relation, master


@pytest.mark.parametrize("text", [False, True])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_wide_row_parks_its_own_key_alone(tmp_path, algorithm, text):
    relation, _ = wide_snapshot(tmp_path, text=text)
    engine = Engine(algorithm, Relation(), 100_000, disk_buffer=30_000)
    engine.renew(relation.facts)  # as a new version is taken over
    asked = (text_rows(range(45)) if text else int_rows(range(45))).keys
    events = Events(asked, Column.of([b"{}"] * 45), np.arange(45))
    assert engine.offer(events).accepted == 45
    rows, parked = {}, []
    while (request := engine.wants()) is not None:
        try:
            for answers in fed(engine, relation.read(request, engine.disk_buffer)):
                rows |= zip(answers.ids.tolist(), rows_each(answers), strict=True)
        except TooManyRowsError:
            parked += engine.dismiss().ids.tolist()
    assert parked == [WIDE]
    assert rows == {k: 1 + k % 3 if k < 40 else 0 for k in range(45) if k != WIDE}


@pytest.mark.parametrize("text", [False, True])
@pytest.mark.parametrize("most", [1_000, 30_000, 150_000])
def test_a_page_that_does_not_fit_comes_in_parts(tmp_path, most, text):
    relation, master = wide_snapshot(tmp_path, text=text)
    pages = relation.facts.pages
    page, place, seen = 0, 0, []
    while page < pages:
        read = relation.read(Pages(page, pages - page, pages, place), most)
        assert read.nbytes <= most or len(read.rows) == 1
        assert read.ends[-1] == len(read.rows)
        seen += listed(read.rows)
        page, place = page + read.covers, read.place
    assert sorted(seen) == sorted(listed(master))


@pytest.mark.parametrize("depth", [1, 8])
@pytest.mark.parametrize("rows_a_page", [1, 3, 12])
def test_keys_bring_all_their_rows_and_no_others(tmp_path, depth, rows_a_page):
    relation = in_pages_of(tmp_path, rows_a_page, STRADDLING, queue_depth=depth)
    for asked in ([2], [7, 1], [9, 2, 5], [0], [3, 99], list(range(-1, 12))):
        read = relation.read(Keys(JoinKeys.of_ints(np.array(asked))), AMPLE)
        assert read.covers == len(asked)
        expected = [(k, b"", b"{%022d}" % i) for i, k in enumerate(STRADDLING) if k in asked]
        assert sorted(listed(read.rows)) == expected


@pytest.mark.parametrize("most", [40_000, 100_000, 300_000, AMPLE])
def test_keys_whose_rows_do_not_fit_are_left_for_the_next_request(tmp_path, most):
    chance = np.random.default_rng(5)
    rows = text_rows(chance.integers(0, 400, 3000).tolist())
    relation = snapshot_of(tmp_path, rows, 1000)
    asked = text_rows(chance.permutation(500).tolist()).keys
    found, at = [], 0
    while at < len(asked):
        read = relation.read(Keys(asked.slice(at, len(asked))), most)
        assert read.covers > 0
        assert read.nbytes <= most
        wanted = set(asked.slice(at, at + read.covers).texts)
        assert {text for _, text, _ in listed(read.rows)} <= wanted
        found += listed(read.rows)
        at += read.covers
    assert sorted(found) == sorted(listed(rows))


def test_texts_that_share_a_hash_come_once(tmp_path):
    texts = Column.of([b"a", b"b", b"c"])
    keys = JoinKeys(np.array([4, 4, 9], np.int64), texts)
    relation = snapshot_of(tmp_path, MasterRows(keys, Column.of([b"{}", b"{1}", b"{22}"])))
    read = relation.read(Keys(keys), AMPLE)
    assert read.covers == 3
    assert listed(read.rows) == [(4, b"a", b"{}"), (4, b"b", b"{1}"), (9, b"c", b"{22}")]


@pytest.mark.parametrize("rows", [int_rows([]), int_rows([7])])
def test_an_empty_relation_and_one_of_one_row_can_be_asked_anything(tmp_path, rows):
    relation = snapshot_of(tmp_path, rows)
    held = rows.keys.values.tolist()
    assert relation.facts.pages == 1
    for _ in range(3):
        read = relation.read(Pages(0, 1, 1), AMPLE)
        assert (keys_read(read), read.covers, read.ends.tolist()) == (held, 1, [len(held)])
    for key in (0, 7, 8):
        assert keys_read(relation.read(Partition(one(key)), AMPLE)) == held
    read = relation.read(Keys(JoinKeys.of_ints(np.array([0, 7, 8]))), AMPLE)
    assert (keys_read(read), read.covers) == (held, 3)


def test_what_is_read_suits_the_kernels(tmp_path):
    """Numba compiles anew for read-only or unaligned arrays, in the middle of the stream."""
    relation = snapshot_of(tmp_path, text_rows(range(500)), 600)
    for request in (Pages(3, 4, relation.facts.pages), Partition(text_rows([7]).keys)):
        rows = relation.read(request, AMPLE).rows
        for array in (rows.keys.values, *columns(rows.keys.texts), *columns(rows.rows)):
            assert array.flags.c_contiguous
            assert array.flags.writeable
            assert array.flags.aligned


def columns(column):
    return column.data, column.bounds


def test_a_file_that_is_cut_while_in_use_is_noticed(tmp_path):
    relation = in_pages_of(tmp_path, 100, list(range(10_000)), read_ahead=False)
    os.truncate(tmp_path / "r" / "rows", 4096)
    with pytest.raises(MasterDataError, match="rows ends after 4096 bytes, and 240000 were"):
        relation.read(Pages(0, 100, 100), AMPLE)


def test_what_goes_wrong_ahead_of_its_request_is_told_when_that_comes(tmp_path):
    relation = in_pages_of(tmp_path, 128, list(range(12_800)))
    os.truncate(tmp_path / "r" / "rows", 128 * 24 * 4)
    assert relation.read(Pages(0, 4, 100), AMPLE).covers == 4
    with pytest.raises(MasterDataError, match="rows ends after 12288 bytes"):
        relation.read(Pages(4, 4, 100), AMPLE)
    assert relation.read(Pages(0, 4, 100), AMPLE).covers == 4
    relation.close()


def test_the_example_of_the_documentation_runs():
    page = Path(__file__).parents[2] / "docs" / "snapshots.md"
    (example,) = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    exec(compile(example, str(page), "exec"), {})


def test_reads_go_past_the_page_cache_or_say_that_they_do_not(tmp_path, monkeypatch, caplog):
    rows = int_rows(range(100))
    write_snapshot(tmp_path / "r", [rows], key="int")
    with SnapshotRelation(tmp_path / "r", direct=False) as relation:
        assert relation.caching is Caching.THROUGH

    really = os.open

    def refusing(path, flags, *rest, **named):
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, "Invalid argument")
        return really(path, flags, *rest, **named)

    monkeypatch.setattr(os, "open", refusing)
    with SnapshotRelation(tmp_path / "r") as relation:
        assert relation.caching is Caching.DROPPED
        assert "direct I/O refused" in caplog.text
        assert listed(relation.read(Pages(0, 1, 1), AMPLE).rows) == listed(rows)
