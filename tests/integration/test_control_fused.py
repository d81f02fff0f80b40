"""Control of a pipeline in the layout fused: one process does what four services do else."""

from __future__ import annotations

import threading
import time
from contextlib import closing

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from dovetail.contracts.control_pb2 import Heartbeat
from dovetail.stream.topics import admin_of, beginnings
from dovetail.topology import INGEST, MAPPER, NODE, STATS_TOPIC
from services.access.roles import Role
from services.control.purge import Purge
from services.control.store.commands import DRAIN
from services.control.store.pipelines import API, NewRevision
from tests.integration.control_kit import running_control
from tests.unit.cli_kit import Answer, served

LEDGER = "dead.empty=2,enriched=5,hits=4,in=12,outputs=5,shed.topw=3,unmatched=2"
CACHED = {"key": "1", "slot": 0, "hits": 7, "bytes": 50, "age_s": 1.0}
ANSWERS = {
    "GET /v1/cache": Answer(
        {
            "keys": [CACHED],
            "keys_held": 1,
            "used_bytes": 50,
            "budget_bytes": 1000,
            "event_bytes": None,
        }
    ),
    "GET /v1/cache/key": Answer({"cached": CACHED}),
    "GET /v1/algorithm": Answer({"algorithm": "auto", "reason": "a test"}),
}


class Node:
    """Says on the topic of heartbeats that it is there, and obeys whatever control orders."""

    def __init__(self, hub, url, number=0, partitions=(0,)):
        self._hub = hub
        self._url = url
        self._number = number
        self._partitions = partitions
        self.holds = False
        """Whether it answers still what it has taken, while it is told to take nothing more."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join(30)

    def _run(self):
        producer = Producer(self._hub.settings.client())
        while not self._stop.wait(0.2):
            producer.produce(STATS_TOPIC, self._beat().SerializeToString())
            producer.flush(5)

    def _beat(self):
        told = self._hub.commander.latest()[NODE]
        state = Heartbeat.STATE_READY
        if told.action == DRAIN:
            state = Heartbeat.STATE_DRAINING if self.holds else Heartbeat.STATE_PAUSED
        return Heartbeat(
            pipeline=self._hub.name,
            service=NODE,
            node=self._number,
            state=state,
            at_ms=time.time_ns() // 1_000_000,
            pid=7,
            url=self._url,
            figures={"held_bytes": 10.0, "budget_bytes": 100.0},
            partitions=self._partitions,
            revision=told.revision,
            command=told.number,
        )


@pytest.fixture(scope="module")
def control(stack, tmp_path_factory):
    folder = tmp_path_factory.mktemp("control")
    with running_control(stack, folder, layout="fused", nodes=1) as running:
        yield running


@pytest.fixture(scope="module")
def node(control):
    with served(ANSWERS) as stage, Node(control.hub, stage.url) as node:
        until(control.hub.monitor.members)
        yield node


def until(holds):
    deadline = time.monotonic() + 60
    while not (found := holds()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return found


def done(client, answer):
    assert answer.status_code == 202, answer.text
    number = answer.json()["job"]["id"] if "job" in answer.json() else answer.json()["id"]
    job = until(
        lambda: next(
            (one for one in [client.get(f"/v1/jobs/{number}").json()] if one["state"] != "running"),
            None,
        )
    )
    assert job["state"] == "done", job
    return job


def commit(hub, service, text="", offset=12, partition=0):
    topic = hub.topology.stage(service).reads.name
    group = hub.topology.group(service)
    with closing(Consumer(hub.settings.client({"group.id": group}))) as consumer:
        at = TopicPartition(topic, partition, offset, text)
        consumer.commit(offsets=[at], asynchronous=False)


def test_the_node_owns_every_slot_whatever_its_partitions_of_the_source_are(control, node):
    with control.client(Role.READ) as client:
        slots = client.get("/v1/slots").json()
        assert len(slots) == control.hub.pipeline.slots
        assert {(one["cache_phase"], one["disk_phase"]) for one in slots} == {(0, 0)}


def test_of_several_nodes_each_owns_the_slots_that_it_reads(stack, tmp_path):
    with running_control(stack, tmp_path, layout="fused", nodes=2, slots=4) as control:
        hub = control.hub
        with (
            served(ANSWERS) as stage,
            Node(hub, stage.url, 0, (0, 3)),
            Node(hub, stage.url, 1, (1, 2)),
            control.client(Role.READ) as client,
        ):
            until(lambda: len(hub.monitor.members()) == 2)
            slots = client.get("/v1/slots").json()
    assert [one["cache_phase"] for one in slots] == [0, 1, 1, 0]
    assert [one["disk_phase"] for one in slots] == [0, 1, 1, 0]


def test_it_is_asked_for_what_the_phases_are_asked_else(control, node):
    path = f"/v1/pipelines/{control.hub.name}"
    with control.client(Role.INSPECT) as client:
        shown = client.get(f"{path}/cache").json()
        assert shown["keys"] == [{**CACHED, "node": 0}]
        assert shown["missing"] == []
        found = client.get(f"{path}/lookup", params={"key": "1"}).json()
        assert (found["answered_by"], found["cached"]) == ("cache", CACHED)
        assert (found["cache_phase"], found["disk_phase"]) == (0, 0)
        runs = client.get(f"{path}/algorithm").json()
        assert [one["reason"] for one in runs["nodes"]] == ["a test"]


def test_the_picture_of_the_flow_is_one_stage(control):
    with control.client(Role.READ) as client:
        told = client.get(f"/v1/pipelines/{control.hub.name}/topology").json()
    topology = control.hub.topology
    assert [(one["service"], one["reads"]) for one in told["stages"]] == [
        (NODE, topology.source.name)
    ]
    roles = {one["name"]: one["role"] for one in told["topics"]}
    assert roles[topology.source_progress.name] == "source-progress"


def test_less_memory_is_one_order_for_the_process_that_has_both_budgets(control, node):
    path = f"/v1/pipelines/{control.hub.name}"
    with control.client(Role.OPERATE) as client:
        done(client, client.patch(path, json={"settings": {"memory": "12MiB"}}))
        assert client.get(path).json()["applied"] == {"node-0": 2}


def test_a_pipeline_is_drained_when_the_node_has_answered_what_it_has_taken(control, node):
    path = f"/v1/pipelines/{control.hub.name}"
    with control.client(Role.OPERATE) as client:
        node.holds = True
        begun = client.post(f"{path}/drain", json={})
        state = until(
            lambda: next(
                (one for one in [client.get(path).json()] if one["state"] != "running"), None
            )
        )
        assert (state["state"], state["reason"]) == (
            *("draining", "node-0 answers what it has taken"),
        )
        node.holds = False
        done(client, begun)
        assert client.get(path).json()["state"] == "drained"
        done(client, client.post(f"{path}/resume", json={"service": NODE}))
        assert client.get(path).json()["state"] == "running"
        refused = client.post(f"{path}/pause", json={"service": INGEST})
        assert (refused.status_code, "there are node" in refused.text) == (409, True)


def test_its_layout_changes_where_it_is_stopped_and_the_cure_says_how(control):
    path = f"/v1/pipelines/{control.hub.name}"
    with control.client(Role.OPERATE) as client:
        document = client.get(path).json()["document"]
        other = document.replace("layout: fused", "layout: split")
        assert other != document
        refused = client.put(path, json={"document": other})
    assert refused.status_code == 409
    (blame,) = refused.json()["problems"]
    assert blame["field"] == "layout"
    assert "drain it, stop it, and start it with the new file" in blame["text"]


def test_a_revision_stored_by_a_release_that_knew_no_layout_can_be_changed(control, node):
    hub = control.hub
    current = hub.current(hub.name)
    older = {name: value for name, value in current.parsed.items() if name != "layout"}
    assert older != current.parsed
    stored = NewRevision(current.document, older, [], API, "a test", "of an older release")
    assert hub.pipelines.revise(hub.name, current.revision, stored)
    path = f"/v1/pipelines/{hub.name}"
    with control.client(Role.OPERATE) as client:
        done(client, client.patch(path, json={"settings": {"algorithm": "srj"}}))


def test_its_letters_and_shed_events_are_counted_in_the_ledger_that_it_keeps(control):
    commit(control.hub, INGEST, LEDGER)
    with control.client(Role.READ) as client:
        told = client.get("/v1/audit").json()
        assert told["problems"] == []
        assert (told["in"], told["dead_lettered"], told["shed"]) == (12, 2, 3)
        assert told["dead_by_reason"] == {"empty": 2}
        assert told["shed_by_strategy"] == {"topw": 3}

        of = f'dovetail_pipeline_events_total{{outcome="%s",pipeline="{control.hub.name}",'
        wanted = {f'{of % "dead"}reason="empty"}} 2.0', f'{of % "shed"}reason="topw"}} 3.0'}
        until(lambda: wanted <= {*client.get("/metrics").text.splitlines()})
        backlog = f'dovetail_pipeline_backlog_events{{pipeline="{control.hub.name}",stage='
        lines = client.get("/metrics").text.splitlines()
        stages = [line.split('"')[3] for line in lines if line.startswith(backlog)]
        assert stages == [NODE], "no stage waits that is not there"


def test_what_the_split_layout_has_left_read_on_its_topics_is_purged(control):
    hub = control.hub
    producer = Producer(hub.settings.client())
    clean = hub.topology.clean
    for _ in range(5):
        producer.produce(clean.name, b"a batch", partition=0)
    assert producer.flush(30) == 0
    commit(hub, MAPPER, offset=4)
    with closing(Purge(hub.settings, hub.topology)) as purge:
        purge.run()
    assert until(lambda: beginnings(admin_of(hub.settings), clean)[0]) == 4
