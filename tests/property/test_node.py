"""A node over partitions of the source that are undone, restarted and moved at any moment.

Kafka is played by what it promises: a partition's log, and a commit that takes outputs, offset,
ledger and progress together or not at all. The real broker's turn is in tests/e2e and tests/chaos.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.contracts.progress_pb2 import Progress
from dovetail.errors import Unavailable
from dovetail.join.algorithms import ALGORITHMS, Parameters
from dovetail.join.caching import SharedCache
from dovetail.join.columns import Column
from dovetail.join.engine import Engine
from dovetail.join.line import Line
from dovetail.join.mapper import Mapper
from dovetail.join.pool import BYTES_A_BLOCK
from dovetail.node.answers import VIA_CACHE, VIA_DISK, Answers, takes_anything
from dovetail.node.cache import CacheHalf
from dovetail.node.disk import DiskHalf
from dovetail.node.intake import Intake
from dovetail.node.master import MasterJoin
from dovetail.node.source_window import SourceWindow
from dovetail.pipeline.spec import Pipeline
from dovetail.service.metrics import Latency
from dovetail.stream.ledger import Ledger, parse
from dovetail.stream.rdkafka import Records
from dovetail.testing.fakes import InMemoryMaster, RecordingProducer, join_keys
from dovetail.topology import Topology
from services.node.handler import Around, SourceNode
from services.warm import MemoryMigrations

PARTITIONS = 3
SLOTS = 4
DISK_BUFFER = 4096
BAD = b"{"
MAPPER = Mapper(SLOTS, int_key=True)


def pipeline(algorithm="auto", **settings):
    return Pipeline.model_validate(
        {
            "name": "sales",
            "source": {"fields": {"id": "int"}},
            "key": "id",
            "master": {"table": "goods", "columns": ["name"]},
            "slots": SLOTS,
            "layout": "fused",
            "algorithm": str(algorithm),
            **settings,
        }
    )


@dataclass
class Broker:
    """The source's logs, and what is committed."""

    topology: Topology
    logs: dict[int, list] = field(default_factory=lambda: defaultdict(list))
    """By partition, offset and event; some offsets are nobody's, as a transaction's end is."""
    committed: dict[int, tuple[int, str]] = field(default_factory=dict)
    progress: dict[int, Progress] = field(default_factory=dict)
    outputs: Counter = field(default_factory=Counter)
    sink: dict[int, list] = field(default_factory=lambda: defaultdict(list))
    """The origins of each slot's outputs, in order."""

    def commit(self, offsets, producer):
        self.committed.update(offsets)
        for message in producer.sent[self.topology.node_progress.name]:
            progress = Progress.FromString(message.value)
            assert message.partition == progress.slot % SLOTS
            self.progress[progress.slot] = progress
        for name in ("enriched", "unmatched", "dead_letter"):
            for message in producer.sent[getattr(self.topology, name).name]:
                self.outputs[message.headers[b"origin"], message.value] += 1
        for message in producer.sent[self.topology.enriched.name]:
            self.sink[message.partition].append(message)

    def read(self, partition, number):
        found = self.progress[partition]
        assert found.number == number
        return found


class Node:
    """A handler with the loop around it, a turn at a time."""

    def __init__(self, broker, rows, algorithm, memory, line=None):
        self._broker = broker
        topology, spec = broker.topology, broker.topology.pipeline
        master = InMemoryMaster(rows)
        self._ticks = 0

        engine = Engine(
            algorithm,
            master.facts,
            memory,
            parameters=Parameters(keys=2, pages=1),
            disk_buffer=DISK_BUFFER,
        )
        window = SourceWindow(40, 2)
        cache = Answers.of(topology, VIA_CACHE, takes_anything)
        disk = Answers.of(topology, VIA_DISK, takes_anything)
        half = CacheHalf(spec, cache, SharedCache(engine), 64, self._clock)
        join = MasterJoin(engine, master, now=self._clock)
        both = DiskHalf(disk, join, window, line, half.sift)
        around = Around(
            topology,
            half,
            both,
            MemoryMigrations(),
            broker.read,
            Latency(),
            clock=self._clock,
        )
        self.handler = SourceNode(around, window, Intake(spec))
        self.ledger = Ledger()
        self.positions = {}

    def _clock(self):
        """Time that passes with every look at it: a step takes some turns of its own."""
        self._ticks += 1
        return self._ticks * 0.02

    def assign(self, partition):
        self.handler.assign([partition])
        self._rewind([partition])

    def revoke(self, partition):
        del self.positions[partition]
        self.ledger.close(partition)
        self.handler.drop()
        self._rewind(self.positions)

    def _rewind(self, partitions):
        for partition in list(partitions):
            offset, text = self._broker.committed.get(partition, (0, ""))
            self.positions[partition] = offset
            self.ledger.open(partition, text)
            self.handler.open(partition, self.ledger)

    def turn(self, events, *, fails):
        """Take so many events of each partition if there is room; commit, or undo everything."""
        self.handler.between_steps()
        taken = []
        if not self.handler.full:
            for partition, position in self.positions.items():
                log = self._broker.logs[partition]
                new = [(partition, *one) for one in log if one[0] >= position][:events]
                taken += new
                if new:
                    self.positions[partition] = new[-1][1] + 1
        if not taken and not self.handler.busy:
            return False
        producer = RecordingProducer()
        try:
            self.handler.handle(records(taken), producer, self.ledger)
        except Unavailable:
            fails = True
        offsets = self.handler.offsets(dict(self.positions), {one[0] for one in taken})
        if fails:
            self.ledger.abort()
            self.handler.drop()
            self._rewind(self.positions)
            return True
        texts = {one: (offset, self.ledger.text(one)) for one, offset in offsets.items()}
        self._broker.commit(texts, producer)
        self.ledger.commit()
        return True


def records(taken):
    values = Column.of([event for _, _, event in taken])
    return Records(
        np.array([partition for partition, _, _ in taken], np.int32),
        np.array([offset for _, offset, _ in taken], np.int64),
        np.zeros(len(taken), np.int64),
        values.data,
        values.bounds,
        np.zeros(len(taken), np.bool_),
    )


class Cluster:
    """Two nodes that share the source's partitions; the first has them all to begin with."""

    def __init__(self, new_node):
        self._new_node = new_node
        self._nodes = [new_node(), new_node()]
        self._owner = dict.fromkeys(range(PARTITIONS), 0)
        for partition in self._owner:
            self._nodes[0].assign(partition)

    def turn(self, which, events):
        self._nodes[which].turn(events, fails=False)

    def undo(self, which, events):
        self._nodes[which].turn(events, fails=True)

    def kill(self, which, _):
        self._nodes[which] = self._new_node()
        for partition, owner in self._owner.items():
            if owner == which:
                self._nodes[which].assign(partition)

    def move(self, partition, to):
        if self._owner[partition] != to:
            self._nodes[self._owner[partition]].revoke(partition)
            self._owner[partition] = to
            self._nodes[to].assign(partition)

    def drain(self):
        for node in self._nodes:
            turns = 0
            while node.turn(7, fails=False):
                turns += 1
                assert turns < 10_000


def filled(topology, keys_of_partitions):
    """Logs of events with these keys; None is a bad event, and a gap of the log."""
    broker, events = Broker(topology), {}
    for number, keys in enumerate(keys_of_partitions):
        offset = 0
        for key in keys:
            events[number, offset] = key
            broker.logs[number].append((offset, shown(key)))
            offset += 1 if key is not None else 2
    return broker, events


def shown(key):
    return BAD if key is None else json.dumps({"id": key}).encode()


def joined(events, rows):
    """What SQL would give, event by event."""
    expected = Counter()
    for (partition, offset), key in events.items():
        origin = b"sales/%d/%d" % (partition, offset)
        event = shown(key)
        for row in rows.get(key, ()):
            expected[origin, event[:-1] + b"," + row[1:]] += 1
        if not rows.get(key):
            expected[origin, event] += 1
    return expected


ROWS = st.dictionaries(
    st.integers(0, 20),
    st.lists(st.integers(0, 99).map(lambda n: b'{"name":%d}' % n), min_size=1, max_size=3),
    min_size=1,
)
KEYS = st.lists(
    st.lists(st.one_of(st.none(), st.integers(0, 25)), max_size=50),
    min_size=PARTITIONS,
    max_size=PARTITIONS,
)
DEEDS = st.lists(
    st.one_of(
        st.tuples(st.just("turn"), st.integers(0, 1), st.integers(1, 9)),
        st.tuples(st.just("undo"), st.integers(0, 1), st.integers(1, 9)),
        st.tuples(st.just("kill"), st.integers(0, 1), st.just(0)),
        st.tuples(st.just("move"), st.integers(0, PARTITIONS - 1), st.integers(0, 1)),
    ),
    max_size=30,
)


def run(topology, rows, keys, deeds, algorithm, pool, within=None):
    broker, events = filled(topology, keys)
    memory = DISK_BUFFER + 200 + pool * BYTES_A_BLOCK

    def new_node():
        line = None if within is None else Line(within, 1 << 16)
        return Node(broker, rows, algorithm, memory, line)

    cluster = Cluster(new_node)
    for deed, which, more in deeds:
        getattr(cluster, deed)(which, more)
    cluster.drain()
    assert broker.outputs == joined(events, rows)
    taken = sum((parse(text) for _, text in broker.committed.values()), Counter())
    dead = sum(key is None for key in events.values())
    answered = taken["enriched"] + taken["unmatched"]
    assert taken["in"] == answered + taken["dead.invalid-json"] == len(events)
    assert taken["dead.invalid-json"] == dead
    for partition, log in broker.logs.items():
        if log:
            assert broker.committed[partition][0] == log[-1][0] + 1
    for slot, messages in broker.sink.items():
        of = [json.loads(message.value)["id"] for message in messages]
        assert (MAPPER.slots(join_keys(of)) == slot).all()
    return broker


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@given(rows=ROWS, keys=KEYS, deeds=DEEDS, pool=st.integers(64, 120))
@settings(max_examples=40, deadline=None)
def test_every_event_is_answered_once_whatever_happens_to_its_partition(
    algorithm, rows, keys, deeds, pool
):
    run(Topology(pipeline(algorithm)), rows, keys, deeds, algorithm, pool)


@pytest.mark.parametrize("algorithm", ["meshjoin", "srj", "ssbj"])
@given(rows=ROWS, keys=KEYS, deeds=DEEDS, pool=st.integers(64, 120))
@settings(max_examples=30, deadline=None)
def test_outputs_of_a_partition_keep_its_order(algorithm, rows, keys, deeds, pool):
    topology = Topology(pipeline(algorithm, order="source"))
    broker = run(topology, rows, keys, deeds, algorithm, pool, within=0)
    for messages in broker.sink.values():
        last: dict[bytes, int] = {}
        for message in messages:
            _, partition, offset = message.headers[b"origin"].split(b"/")
            assert last.get(partition, -1) <= int(offset)
            last[partition] = int(offset)
