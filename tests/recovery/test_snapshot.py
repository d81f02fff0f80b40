"""The snapshot's files are lost while nodes read them, and written anew."""

from __future__ import annotations

import pytest

from tests.recovery.kit import Dovetail, assert_exact, goes_on, sales, under_load

pytestmark = pytest.mark.timeout(900)


def test_a_lost_snapshot_is_written_anew(make_pipeline, tmp_path):
    content = sales(nodes=2)
    content["master"]["snapshot"] = str(tmp_path / "snapshots")
    made = make_pipeline(content)
    dovetail = Dovetail(made)
    dovetail("spark snapshot pipeline.yaml")
    (folder,) = (tmp_path / "snapshots").iterdir()
    with made as pipeline, under_load(pipeline) as load:
        goes_on(pipeline)
        # Who has the files open goes on with them.
        for file in (folder / "00000001").glob("slot-*/rows"):
            file.unlink()
        goes_on(pipeline)

        # Who starts anew cannot open them, says so, and waits.
        for name in ("disk_phase-0", "disk_phase-1"):
            pipeline.kill(name)
        # Slots move between the two for a while, and one without any waits for those.
        for name in ("disk_phase-0", "disk_phase-1"):
            pipeline.wait_until(
                lambda _, node=name: lost_snapshot(pipeline.not_ready_because(node)),
                "the disk phase says why it is not ready",
            )
        stuck = pipeline.wait_until(lambda seen: seen.backlogs["disk_phase"] > 500, "misses wait")
        pipeline.wait_until(lambda seen: seen.hits > stuck.hits, "the cache phase goes on")
        starts = pipeline.starts("disk_phase-0"), pipeline.starts("disk_phase-1")

        def told():
            return [
                one["reason"] for one in dovetail.json("nodes") if one["service"] == "disk_phase"
            ]

        dovetail.until(lambda: all(map(lost_snapshot, told())), "all nodes say why")

        dovetail("spark snapshot pipeline.yaml")
        assert (folder / "current").readlink().name == "00000002"
        pipeline.wait_until_ready()
        goes_on(pipeline)
        assert (pipeline.starts("disk_phase-0"), pipeline.starts("disk_phase-1")) == starts
        load.stop()
        assert_exact(pipeline, dovetail, load.sent)


def lost_snapshot(reason):
    return "is missing" in reason and "dovetail spark snapshot" in reason
