"""Batches that go from a map task to a node by a file."""

from __future__ import annotations

import errno
import os

import numpy as np
import pytest

from dovetail.errors import Unavailable
from dovetail.stream.rdkafka import Parcel
from services.spark.enrich_shelf import Shelf, taken


def parcel(content):
    made = Parcel(len(content))
    made.data[:] = np.frombuffer(content, np.uint8)
    return made


def test_what_is_put_is_taken(tmp_path):
    contents = [b"first", b"x" * 300_000, b"last"]
    with Shelf(tmp_path) as one, Shelf(tmp_path) as other:
        places = [
            (one.put(parcel(content)), other.put(parcel(content[::-1]))) for content in contents
        ]
    for content, (mine, others) in zip(contents, places, strict=True):
        assert bytes(taken(mine)) == content
        assert bytes(taken(others)) == content[::-1]
    assert taken(places[0][0]).flags.writeable  # as kernels want it
    assert len(list(tmp_path.iterdir())) == 2


def test_a_task_that_has_nothing_writes_nothing(tmp_path):
    with Shelf(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_folder_in_which_nothing_can_be_written_is_named(tmp_path):
    with pytest.raises(
        Unavailable, match=r"away/\w+ cannot be written \(No such file.* SPARK_LOCAL_DIRS"
    ):
        Shelf(tmp_path / "away").put(parcel(b"lost"))


def test_a_full_disk_is_told_at_the_latest_when_the_task_ends(tmp_path):
    shelf = Shelf(tmp_path)
    shelf._file = open("/dev/full", "wb")  # noqa: PTH123, SIM115 - closed by the shelf
    shelf.put(parcel(b"little, which waits in the file's buffer"))
    with pytest.raises(Unavailable, match=os.strerror(errno.ENOSPC)):
        shelf.close()


def test_what_has_gone_or_was_cut_meanwhile_is_noticed(tmp_path):
    with Shelf(tmp_path) as shelf:
        place = shelf.put(parcel(b"123456789"))
    (file,) = tmp_path.iterdir()
    os.truncate(file, 5)
    with pytest.raises(Unavailable, match="has been cut: 9 bytes are not there behind 0"):
        taken(place)
    file.unlink()
    with pytest.raises(Unavailable, match="cannot be read"):
        taken(place)
