"""`make run LAYOUT=fused`: one process beside control, and the demo's pipeline with one node."""

from __future__ import annotations

import argparse
import sys

import pytest

from deploy.local.home import CHECKOUT, Home
from deploy.local.ports import Ports
from deploy.local.run import add_arguments, overrides
from deploy.local.services import Services
from deploy.resources import memory_of
from dovetail.pipeline.load import load_pipeline
from dovetail.pipeline.spec import Layout
from dovetail.testing.pipeline import RunningPipeline
from dovetail.topology import CACHE_PHASE, CONTROL, NODE, Topology

FILE = CHECKOUT / "pipeline.yaml"
FUSED = load_pipeline(FILE, {"DOVETAIL_LAYOUT": "fused", "DOVETAIL_NODES": "1"})


def overridden(*words, **environment):
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return overrides(parser.parse_args(words), environment)


def test_the_demos_pipeline_runs_fused_on_one_node():
    environment = overridden("--layout", "fused")
    pipeline = load_pipeline(FILE, environment)
    assert (pipeline.layout, pipeline.nodes) == (Layout.FUSED, 1)


def test_nodes_that_somebody_has_asked_for_are_not_taken_away():
    assert "DOVETAIL_NODES" not in overridden("--layout", "fused", DOVETAIL_NODES="2")


@pytest.mark.parametrize("words", [(), ("--layout", "split"), ("--engine", "spark")])
def test_nothing_else_changes_how_many_nodes_there_are(words):
    assert "DOVETAIL_NODES" not in overridden(*words)


def test_the_node_is_one_process(tmp_path):
    home = Home(tmp_path)
    services = Services(home, FUSED, FILE, {}, Ports(home, {}, {}), print)
    assert [one.name for one in services.all] == [CONTROL, "node-0"]
    node = services.all[1]
    assert node.process._command[:3] == [sys.executable, "-m", "services.node.main"]


def test_a_node_more_is_one_process_more(tmp_path):
    home = Home(tmp_path)
    two = FUSED.model_copy(update={"nodes": 2})
    services = Services(home, two, FILE, {}, Ports(home, {}, {}), print)
    assert {stage.service for stage in services._stages} == {NODE}
    assert [one.name for one in services.all] == [CONTROL, "node-0", "node-1"]


def test_who_does_the_work_of_a_stage_is_the_node():
    pipeline = RunningPipeline.__new__(RunningPipeline)
    pipeline.topology = Topology(FUSED)
    assert {pipeline.process_of(name) for name in ("ingest", "cache_phase-0", "node")} == {"node-0"}
    assert pipeline.process_of(CONTROL) == CONTROL
    assert not pipeline.has_phases


def test_each_table_of_a_chain_and_each_number_has_a_node_of_its_own():
    pipeline = RunningPipeline.__new__(RunningPipeline)
    pipeline.topology = Topology(FUSED.model_copy(update={"nodes": 2}))
    assert pipeline.process_of("disk_phase-1") == "node-1"
    assert pipeline.process_of("cache_phase.2-1") == "node.2-1"


def test_its_process_has_room_for_both_budgets():
    phase, node = memory_of(CACHE_PHASE, FUSED), memory_of(NODE, FUSED)
    assert node.limit >= phase.limit
    assert node.request >= phase.request
    assert node.limit > FUSED.memory
