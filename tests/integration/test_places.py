"""Offsets that a real log does not have: before its beginning, beyond its end, and none."""

from __future__ import annotations

import contextlib
import threading
import time
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from dovetail.errors import ConfigError, Unavailable
from dovetail.pipeline.spec import Pipeline
from dovetail.settings import Settings
from dovetail.stream import forgotten
from dovetail.stream import loop as loops
from dovetail.stream.forgotten import require_remembered
from dovetail.stream.handler import Handler, Move, Step
from dovetail.stream.ledger import parse
from dovetail.stream.loop import Loop
from dovetail.stream.offsets import CommittedOffsets
from dovetail.stream.topics import admin_of, ensure_topics
from dovetail.topology import Keeps, Stage, Topic, Topology

SENT = 10


class Recorder(Handler):
    def __init__(self):
        self.seen = []
        self.no_room = False

    @property
    def full(self):
        return self.no_room

    def handle(self, records, _producer, ledger):
        for row, partition in enumerate(records.partitions.tolist()):
            self.seen.append(records.value(row))
            ledger.add(partition, "in", 1)
            ledger.add(partition, "clean", 1)


class Log:
    """A topic of one partition, and a stage that reads it."""

    def __init__(self, bootstrap, namespace, keeps=Keeps.BY_BROKER):
        self.settings = Settings(bootstrap, "postgresql://nowhere/none", "pipeline.yaml")
        self.topic = Topic(f"{namespace}source", 1, keeps)
        self.group = f"{self.topic.name}.group"
        ensure_topics(self.settings, [self.topic])
        self.offsets = CommittedOffsets(self.settings, self.group, self.topic)

    def send(self, first, end):
        producer = Producer(self.settings.client())
        for number in range(first, end):
            producer.produce(self.topic.name, b"%d" % number, partition=0)
        assert producer.flush(30) == 0

    def delete_before(self, offset):
        """As retention does with whole segments."""
        at = TopicPartition(self.topic.name, 0, offset)
        admin = admin_of(self.settings)  # kept: its answers end with it
        for deletion in admin.delete_records([at]).values():
            deletion.result(30)

    def commit(self, offset, text):
        """As a stage had, before the broker lost the end of the log."""
        consumer = Consumer(self.settings.client({"group.id": self.group}))
        at = TopicPartition(self.topic.name, 0, offset, metadata=text)
        consumer.commit(offsets=[at], asynchronous=False)
        consumer.close()

    @property
    def committed(self):
        """Offset and ledger of the partition."""
        try:
            at = self.offsets.read().get(0)
        except Unavailable:  # a broker that has just started has no coordinator yet
            return None
        return at and (at.offset, parse(at.text))

    @contextmanager
    def read(self):
        handler = Recorder()
        loop = Loop(
            Stage("test", self.topic, ()),
            self.group,
            self.settings,
            handler,
            Step(max_records=5, max_bytes=1 << 20, linger_s=0.05),
            lambda _counts, _seconds: None,
        )
        thread = threading.Thread(target=loop.run)
        thread.start()
        try:
            yield loop, handler
        finally:
            loop.stop()
            thread.join(60)
            assert not thread.is_alive()


@pytest.fixture
def log(bootstrap, kafka_namespace):
    return Log(bootstrap, kafka_namespace)


def values(first, end):
    return [b"%d" % number for number in range(first, end)]


def await_(condition, what):
    deadline = time.monotonic() + 90
    while not condition():
        assert time.monotonic() < deadline, what()
        time.sleep(0.05)


def test_where_it_begins_is_committed_before_anything_is_read(log):
    with log.read():
        await_(lambda: log.committed == (0, {}), lambda: log.committed)


def test_what_was_deleted_while_it_was_away_is_lost_and_counted_once(log):
    log.send(0, SENT)
    with log.read() as (_, handler):
        await_(lambda: (log.committed or (0,))[0] == SENT, lambda: log.committed)
        assert handler.seen == values(0, SENT)
    log.send(SENT, 2 * SENT)
    log.delete_before(SENT + 4)
    counted = {"in": 2 * SENT, "clean": 2 * SENT - 4, "lost": 4}
    for seen in (values(SENT + 4, 2 * SENT), []):
        with log.read() as (loop, handler):
            await_(lambda: log.committed == (2 * SENT, counted), lambda: log.committed)
            await_(lambda at=loop: at.ready, lambda at=loop: at.reason)
        assert handler.seen == seen


def test_what_is_deleted_in_front_of_a_slow_reader_is_lost_and_the_rest_is_read(log):
    with log.read() as (loop, handler):
        await_(lambda: loop.ready, lambda: loop.reason)
        handler.no_room = True
        time.sleep(loops._LASTING_S + 0.5)  # then nothing is fetched ahead
        log.send(0, SENT)
        log.delete_before(6)
        handler.no_room = False
        counted = {"in": SENT, "clean": SENT - 6, "lost": 6}
        await_(lambda: log.committed == (SENT, counted), lambda: log.committed)
    assert handler.seen == values(6, SENT)


def test_beyond_the_end_nothing_is_read_until_it_is_said_from_where(log):
    log.send(0, SENT)
    log.commit(3 * SENT, "clean=30,in=30")
    with log.read() as (loop, handler):
        await_(lambda: "ends at 10, and was read up to 30" in loop.reason, lambda: loop.reason)
        told = (3 * SENT, {"in": 30, "clean": 30, "cut": SENT})
        await_(lambda: log.committed == told, lambda: log.committed)
        assert handler.seen == []
    # Nothing but the ledger knows by now that the log was shorter once.
    log.send(SENT, 4 * SENT)
    with log.read() as (loop, handler):
        await_(lambda: "ends at 10, and was read up to 30" in loop.reason, lambda: loop.reason)
        assert handler.seen == []
        loop.paused, loop.move = True, Move(1, {0: SENT - 2})
        await_(lambda: log.committed[0] == SENT - 2, lambda: (log.committed, loop.reason))
        loop.paused = False
        counted = {"in": 62, "clean": 62, "moved": 1}
        await_(lambda: log.committed == (4 * SENT, counted), lambda: log.committed)
        assert handler.seen == values(SENT - 2, 4 * SENT)


def test_what_was_deleted_from_an_internal_topic_is_told(bootstrap, kafka_namespace):
    log = Log(bootstrap, kafka_namespace, Keeps.UNREAD)
    log.send(0, SENT)
    log.commit(2, "clean=2,in=2")
    log.delete_before(5)
    with log.read() as (loop, handler):
        await_(lambda: "begins at 5, and was read up to 2" in loop.reason, lambda: loop.reason)
    assert handler.seen == []


@pytest.fixture
def laid_out(bootstrap, kafka_namespace, monkeypatch):
    """A pipeline's topology by its layout and number of nodes; its topics are there."""
    monkeypatch.setattr(forgotten, "_SURELY_S", 0.5)

    def topology(layout="split", nodes=1):
        return Topology(
            Pipeline.model_validate(
                {
                    "name": f"{kafka_namespace}sales",
                    "source": {"fields": {"id": "int"}},
                    "key": "id",
                    "master": {"table": "goods"},
                    "join": "semi",
                    "slots": 2,
                    "layout": layout,
                    "nodes": nodes,
                }
            )
        )

    settings = Settings(bootstrap, "postgresql://nowhere/none", "pipeline.yaml")
    ensure_topics(settings, topology().topics())
    return settings, topology


def write(settings, *topics):
    producer = Producer(settings.client())
    for topic in topics:
        producer.produce(topic.name, b"anything", b"0", partition=1)
    assert producer.flush(30) == 0


def commit(settings, topology, stage):
    with contextlib.closing(
        Consumer(settings.client({"group.id": topology.group(stage.keeper)}))
    ) as consumer:
        at = TopicPartition(stage.reads.name, 0, 0)
        consumer.commit(offsets=[at], asynchronous=False)


@pytest.mark.parametrize("layout", ["split", "fused"])
def test_offsets_that_are_gone_are_noticed_by_what_was_written(laid_out, layout):
    settings, topology = laid_out[0], laid_out[1](layout)
    for stage in topology.stages:
        require_remembered(settings, topology, stage)
    if layout == "split":
        write(settings, topology.clean, topology.mapped, topology.missed, topology.progress)
    else:
        write(settings, topology.source_progress)
    for stage in topology.stages:
        with pytest.raises(ConfigError, match=f"forgotten what {topology.group(stage.keeper)} "):
            require_remembered(settings, topology, stage)


def test_offsets_that_are_gone_are_noticed_by_what_another_layout_has_written(laid_out):
    settings, of = laid_out
    write(settings, of("fused").source_progress)
    for topology, service in ((of("split"), "ingest"), (of("fused", 2), "intake")):
        with pytest.raises(ConfigError, match="source-progress"):
            require_remembered(settings, topology, topology.stage(service))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (("fused", 1), ("fused", 2)),
        (("fused", 1), ("split", 1)),
        (("fused", 2), ("split", 1)),
        (("fused", 2), ("fused", 1)),
        (("split", 1), ("fused", 1)),
        (("split", 1), ("fused", 2)),
    ],
)
def test_a_stage_that_a_layout_did_not_have_is_not_taken_for_a_forgotten_one(
    laid_out, before, after
):
    settings, of = laid_out
    old, new = of(*before), of(*after)
    for stage in old.stages:
        commit(settings, old, stage)
        write(settings, *(topic for topic in stage.writes if topic.partitions > 1))
    for stage in new.stages:
        require_remembered(settings, new, stage)
