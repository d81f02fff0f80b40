"""What the benchmark reads of a process, and the pipelines that it writes."""

import json
import os
import time

import yaml

from bench.measure import Meter, resident_now
from bench.trial import variant
from deploy.local.home import CHECKOUT, Home
from dovetail.pipeline.load import load_pipeline
from dovetail.topology import Topology


def burn(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def test_a_meter_that_begins_anew_forgets_what_was_before(tmp_path):
    home = Home(tmp_path)
    (home.run / "reader.pid").write_text(json.dumps({"name": "reader", "pid": os.getpid()}))
    meter = Meter(home)
    burn(0.5)
    meter.restart()
    burn(0.1)
    meter.sample()
    assert 0.08 < meter.cpu_s()["reader"] < 0.4


def test_memory_is_by_process_and_shared_pages_count_in_part(tmp_path):
    home = Home(tmp_path)
    for name in ("control", "generator"):
        record = {"name": name, "pid": os.getpid()}
        (home.run / f"{name}.pid").write_text(json.dumps(record))
    found = resident_now(home, ["control"])
    assert list(found) == ["control"]
    assert 0 < found["control"].own <= found["control"].pss <= found["control"].rss


def test_a_variant_is_the_same_pipeline_with_topics_of_its_own(tmp_path):
    changes = {"algorithm": "srj", "memory": 32 << 20, "nodes": 1}
    file = variant(CHECKOUT / "pipeline.yaml", tmp_path, "srj-split", changes)
    usual, pipeline = load_pipeline(CHECKOUT / "pipeline.yaml"), load_pipeline(file)
    assert (pipeline.name, pipeline.algorithm, pipeline.nodes) == ("sales-srj-split", "srj", 1)
    assert pipeline.memory == 32 << 20
    assert pipeline.master == usual.master
    ours, theirs = Topology(pipeline), Topology(usual)
    assert not {ours.source.name, ours.enriched.name} & {theirs.source.name, theirs.enriched.name}
    assert yaml.safe_load(file.read_text())["source"]["fields"]
