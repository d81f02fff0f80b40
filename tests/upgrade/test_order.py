"""The order in which processes are exchanged, here and in docs/operations.md."""

from __future__ import annotations

import re

from deploy.local.home import CHECKOUT
from dovetail.pipeline.load import load_pipeline
from dovetail.topology import Topology
from tests.upgrade.rollout import against_the_flow, at_once

NAMES = [one.name for one in Topology(load_pipeline(CHECKOUT / "pipeline.yaml", {})).processes]
SECTION = re.compile(r"^### The order\n(.*?)^###", re.DOTALL | re.MULTILINE)


def test_the_order_is_the_documented_one():
    section = SECTION.search((CHECKOUT / "docs" / "operations.md").read_text())[1]
    documented = re.findall(r"^\d\. \*\*(\w+)\*\*", section, re.MULTILINE)
    services = [wave[0].rpartition("-")[0] or wave[0] for wave in against_the_flow(NAMES)]
    assert list(dict.fromkeys(services)) == documented


def test_of_a_phase_the_last_node_comes_first():
    order = [name for (name,) in against_the_flow(NAMES)]
    assert order == [
        *("control", "disk_phase-1", "disk_phase-0", "cache_phase-1", "cache_phase-0"),
        *("mapper", "ingest"),
    ]


def test_helm_takes_all_services_at_once_and_nodes_one_by_one():
    assert at_once(NAMES) == [
        ["control", "ingest", "mapper", "cache_phase-1", "disk_phase-1"],
        ["cache_phase-0", "disk_phase-0"],
    ]
