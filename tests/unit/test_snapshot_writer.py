"""Snapshots are written whole and in order, or not at all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest

from dovetail.errors import ConfigError, MasterDataError
from dovetail.join.columns import Column, JoinKeys
from dovetail.join.entry import MasterRows
from dovetail.join.exchange import Pages
from dovetail.join.keys import hash_text_many
from dovetail.join.mapper import Mapper
from dovetail.master.snapshot.manifest import load
from dovetail.master.snapshot.order import sorted_rows
from dovetail.master.snapshot.relation import SnapshotRelation
from dovetail.master.snapshot.split import slot_folder, write_slots
from dovetail.master.snapshot.writer import write_snapshot


def int_rows(keys, size=None):
    rows = [b"{%d}" % i if size is None else b"{%0*d}" % (size - 2, i) for i in range(len(keys))]
    return MasterRows(JoinKeys.of_ints(np.array(keys, np.int64)), Column.of(rows))


def text_rows(names):
    texts = Column.of([b"name-%d" % name for name in names])
    rows = Column.of([b"{%d}" % name for name in names])
    return MasterRows(JoinKeys(hash_text_many(texts.data, texts.bounds), texts), rows)


def listed(rows):
    return list(zip(rows.keys.values.tolist(), rows.keys.texts, rows.rows, strict=True))


def all_rows(folder):
    with SnapshotRelation(folder) as relation:
        pages = relation.facts.pages
        return listed(relation.read(Pages(0, pages, pages), 1 << 30).rows)


def test_parts_become_one_sorted_relation(tmp_path):
    parts = [int_rows([1, 2]), int_rows([]), int_rows([2, 5]), int_rows([9])]
    manifest = write_snapshot(tmp_path / "r", parts, key="int", schema="price numeric")
    assert (manifest.rows, manifest.unique, manifest.schema) == (5, False, "price numeric")
    assert load(tmp_path / "r") == manifest
    assert [key for key, _, _ in all_rows(tmp_path / "r")] == [1, 2, 2, 5, 9]


@pytest.mark.parametrize("parts", [[[3, 2]], [[1, 3], [2]], [[1], [], [0]]])
def test_rows_that_are_not_sorted_are_refused(tmp_path, parts):
    with pytest.raises(MasterDataError, match=r"belongs before row .* sorted_rows"):
        write_snapshot(tmp_path / "r", [int_rows(part) for part in parts], key="int")
    assert list(tmp_path.iterdir()) == []


def test_texts_of_one_hash_are_sorted_by_their_bytes(tmp_path):
    texts = Column.of([b"b", b"ab", b"a"])
    rows = MasterRows(JoinKeys(np.zeros(3, np.int64), texts), Column.of([b"{1}", b"{2}", b"{3}"]))
    with pytest.raises(MasterDataError, match="row 1 belongs before row 0"):
        write_snapshot(tmp_path / "r", [rows], key="text")
    assert write_snapshot(tmp_path / "r", [sorted_rows(rows)], key="text").unique
    assert [text for _, text, _ in all_rows(tmp_path / "r")] == [b"a", b"ab", b"b"]


def test_keys_are_found_to_be_unique_or_not_across_parts(tmp_path):
    assert write_snapshot(tmp_path / "a", [int_rows([1]), int_rows([2])], key="int").unique
    assert not write_snapshot(tmp_path / "b", [int_rows([1]), int_rows([1])], key="int").unique


def test_rows_of_one_width_need_no_bounds(tmp_path):
    same = write_snapshot(tmp_path / "a", [int_rows([1, 2], size=30)], key="int")
    assert same.row_width == 30
    assert not (tmp_path / "a" / "bounds").exists()
    parts = [int_rows([1, 2], size=30), int_rows([3], size=31)]
    assert write_snapshot(tmp_path / "b", parts, key="int").row_width is None
    assert [len(row) for _, _, row in all_rows(tmp_path / "b")] == [30, 30, 31]


def test_a_page_takes_about_as_many_bytes_as_were_asked_for(tmp_path):
    rows = int_rows(range(1000), size=120)
    manifest = write_snapshot(tmp_path / "r", [rows], key="int", page_bytes=8192)
    assert manifest.rows_a_page == 8192 // 128
    assert manifest.pages == -(-1000 // manifest.rows_a_page)


def test_what_was_interrupted_is_never_seen_and_leaves_nothing(tmp_path):
    def parts():
        yield int_rows([1, 2])
        raise RuntimeError("the database went away")

    with pytest.raises(RuntimeError):
        write_snapshot(tmp_path / "r", parts(), key="int")
    assert list(tmp_path.iterdir()) == []


def test_what_was_killed_is_never_seen_and_can_be_written_again(tmp_path):
    script = (
        "import os, sys\nfrom pathlib import Path\n"
        "from dovetail.master.snapshot.writer import write_snapshot\n"
        "from tests.unit.test_snapshot_writer import int_rows\n"
        "def parts():\n    yield int_rows([1, 2])\n    os._exit(9)\n"
        "write_snapshot(Path(sys.argv[1]), parts(), key='int')\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "r")]
    killed = subprocess.run(command, cwd=Path(__file__).parents[2], check=False)
    assert killed.returncode == 9
    assert [path.suffix for path in tmp_path.iterdir()] == [".partial"]
    with pytest.raises(MasterDataError, match="not a snapshot"):
        SnapshotRelation(tmp_path / "r")
    write_snapshot(tmp_path / "r", [int_rows([1])], key="int")
    assert len(all_rows(tmp_path / "r")) == 1


def test_a_snapshot_is_never_overwritten(tmp_path):
    write_snapshot(tmp_path / "r", [int_rows([1])], key="int")
    with pytest.raises(MasterDataError, match=r"exists already.*name a new folder"):
        write_snapshot(tmp_path / "r", [int_rows([2])], key="int")
    assert [key for key, _, _ in all_rows(tmp_path / "r")] == [1]


def test_every_key_is_in_the_snapshot_of_its_slot(tmp_path):
    for name, rows in [("int", int_rows([7, 3, 3, 900, -5] * 20)), ("text", text_rows(range(60)))]:
        manifests = write_slots(tmp_path / name, rows, 4, key=name)
        assert sum(manifest.rows for manifest in manifests) == len(rows)
        found = []
        for slot in range(4):
            held = all_rows(slot_folder(tmp_path / name, slot))
            keys = JoinKeys.of_ints(np.array([value for value, _, _ in held], np.int64))
            assert set(Mapper(4, int_key=name == "int").slots(keys)) <= {slot}
            found += held
        assert sorted(found) == sorted(listed(rows))


def test_a_row_of_another_slot_is_refused(tmp_path):
    keys = np.arange(100)
    mine = Mapper(4, int_key=True).slots(JoinKeys.of_ints(keys)) == 2
    write_snapshot(tmp_path / "a", [int_rows(keys[mine])], key="int", slots=4, slot=2)
    with pytest.raises(MasterDataError, match="is not of slot 2 of 4"):
        write_snapshot(tmp_path / "b", [int_rows(keys)], key="int", slots=4, slot=2)
    with pytest.raises(ConfigError, match="slot 4 of 4"):
        write_snapshot(tmp_path / "c", [], key="int", slots=4, slot=4)


def test_texts_are_not_taken_for_ints(tmp_path):
    with pytest.raises(MasterDataError, match="key='text'"):
        write_snapshot(tmp_path / "r", [sorted_rows(text_rows([1]))], key="int")


def test_a_sort_keeps_the_rows_of_a_key_in_their_order():
    texts = Column.of([b"y", b"x", b"y", b"x"])
    keys = JoinKeys(hash_text_many(texts.data, texts.bounds), texts)
    rows = sorted_rows(MasterRows(keys, Column.of([b"0", b"1", b"2", b"3"])))
    held = dict.fromkeys(rows.keys.texts, b"")
    for text, row in zip(rows.keys.texts, rows.rows, strict=True):
        held[text] += row
    assert held == {b"x": b"13", b"y": b"02"}


def damage(folder, name, change):
    path = folder / name
    path.write_bytes(change(path.read_bytes()))


def test_a_folder_without_a_manifest_is_no_snapshot(tmp_path):
    with pytest.raises(MasterDataError, match=r"no manifest\.json.*write one first"):
        SnapshotRelation(tmp_path)


def test_a_foreign_format_is_refused(tmp_path):
    write_snapshot(tmp_path / "r", [int_rows([1])], key="int")
    damage(
        tmp_path / "r", "manifest.json", lambda text: text.replace(b'"format": 1', b'"format": 7')
    )
    with pytest.raises(MasterDataError, match="format 7, and this release reads format 1"):
        SnapshotRelation(tmp_path / "r")


def test_a_damaged_manifest_is_refused(tmp_path):
    write_snapshot(tmp_path / "r", [int_rows([1])], key="int")
    held = msgspec.json.decode((tmp_path / "r" / "manifest.json").read_bytes())
    del held["rows_a_page"]
    (tmp_path / "r" / "manifest.json").write_bytes(msgspec.json.encode(held))
    with pytest.raises(MasterDataError, match=r"damaged.*rows_a_page.*write the snapshot anew"):
        SnapshotRelation(tmp_path / "r")


@pytest.mark.parametrize("name", ["keys", "rows", "bounds", "texts", "text_bounds", "pages"])
def test_a_file_that_was_cut_or_lost_is_noticed(tmp_path, name):
    write_snapshot(tmp_path / "r", [sorted_rows(text_rows(range(20)))], key="text")
    damage(tmp_path / "r", name, lambda content: content[:-1])
    with pytest.raises(MasterDataError, match=f"{name} has .* bytes.*not whole"):
        SnapshotRelation(tmp_path / "r")
    (tmp_path / "r" / name).unlink()
    with pytest.raises(MasterDataError, match=f"{name} is missing"):
        SnapshotRelation(tmp_path / "r")


@pytest.mark.parametrize("name", ["keys", "rows", "bounds", "texts", "text_bounds", "pages"])
def test_verify_notices_a_flipped_bit(tmp_path, name):
    write_snapshot(tmp_path / "r", [sorted_rows(text_rows(range(20)))], key="text")
    with SnapshotRelation(tmp_path / "r") as relation:
        relation.verify()
        damage(tmp_path / "r", name, lambda content: content[:-1] + bytes([content[-1] ^ 4]))
        with pytest.raises(MasterDataError, match=f"{name} is damaged: its checksum"):
            relation.verify()
