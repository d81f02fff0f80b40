"""Nodes are lost, added and removed under load; slots move with them."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pytest
import yaml

from deploy.local.kernels import kept_in
from tests.recovery.kit import Dovetail, assert_exact, goes_on, sales, under_load

pytestmark = pytest.mark.timeout(900)


def test_a_lost_node_is_started_elsewhere(make_pipeline, stack, tmp_path):
    disk, image = tmp_path / "disk", Path(kept_in(stack.home)["NUMBA_CACHE_DIR"])
    shutil.copytree(image, disk)
    made = make_pipeline(sales(nodes=2), NUMBA_CACHE_DIR=str(disk))
    with made as pipeline, under_load(pipeline) as load:
        dovetail = Dovetail(pipeline)
        goes_on(pipeline)
        dovetail.wait_for_owners(0, 1)

        # A machine is gone, with its disk: the other one has its slots.
        pipeline.remove_node(1, signal.SIGKILL)
        shutil.rmtree(disk)
        dovetail.wait_for_owners(0)
        nodes = dovetail.json("nodes", code=1)
        gone = {(one["service"], one["node"]) for one in nodes if one["state"] == "gone"}
        assert gone == {("cache_phase", 1), ("disk_phase", 1)}
        goes_on(pipeline)

        # The same node on another machine, with nothing but the image.
        shutil.copytree(image, disk)
        pipeline.add_node(1)
        dovetail.wait_for_owners(0, 1)
        dovetail("nodes")
        goes_on(pipeline)
        # It obeys like any other.
        dovetail("drain --why 'a node was lost'")
        dovetail.until(lambda: dovetail.json("status --once")["state"] == "drained", "drained")
        dovetail("audit pipeline.yaml")
        dovetail("resume")

        # Lost again, and back before anybody has noticed: it keeps its slots.
        before = dovetail.owners()
        pipeline.remove_node(1, signal.SIGKILL)
        pipeline.add_node(1)
        assert dovetail.wait_for_owners(0, 1) == before
        goes_on(pipeline)

        # Under another number: it answers all the same.
        pipeline.remove_node(1, signal.SIGKILL)
        pipeline.add_node(2)
        dovetail.wait_for_owners(0, 2)
        goes_on(pipeline)
        load.stop()
        assert_exact(pipeline, dovetail, load.sent)


def test_nodes_are_added_and_removed_and_slots_move_with_them(make_pipeline):
    with make_pipeline(sales(nodes=2)) as pipeline, under_load(pipeline) as load:
        dovetail = Dovetail(pipeline)
        goes_on(pipeline)
        two = dovetail.wait_for_owners(0, 1)

        pipeline.add_node(2)
        three = dovetail.wait_for_owners(0, 1, 2)
        for phase, nodes in three.items():
            for node in (0, 1):
                assert nodes[node] < two[phase][node], "who was there gives slots, and takes none"
            assert max(map(len, nodes.values())) - min(map(len, nodes.values())) <= 1
        set_nodes(pipeline, 3)
        goes_on(pipeline)
        dovetail("drain --why 'see whether all obey'")
        dovetail("resume")

        pipeline.remove_node(2)
        left = dovetail.wait_for_owners(0, 1)
        for phase, nodes in left.items():
            for node in (0, 1):
                assert nodes[node] > three[phase][node], "who stays takes slots, and gives none"
        set_nodes(pipeline, 2)
        goes_on(pipeline)
        dovetail.until(lambda: dovetail.json("status --once")["state"] == "running", "it runs")
        dovetail("nodes")
        load.stop()
        assert_exact(pipeline, dovetail, load.sent)


def set_nodes(pipeline, count):
    """Write `nodes` into the pipeline's file, and let control read it."""
    file = pipeline.settings.pipeline
    file.write_text(yaml.safe_dump({**yaml.safe_load(file.read_text()), "nodes": count}))
    before = pipeline.pid("control")
    pipeline.send_signal("control", signal.SIGTERM)
    pipeline.wait_until(lambda _: pipeline.pid("control") != before, "control is another")
    pipeline.wait_until_ready()
