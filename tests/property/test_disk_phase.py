"""The disk phase over slots that are undone, restarted and moved at any moment.

Kafka is played by what it promises: a slot's log, and a commit that takes outputs, offset, ledger
and progress together or not at all. The real broker's turn is in tests/e2e and tests/chaos.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.contracts.progress_pb2 import Progress
from dovetail.errors import Unavailable
from dovetail.join.algorithms import ALGORITHMS, Parameters
from dovetail.join.emigration import Emigration
from dovetail.join.engine import Engine
from dovetail.join.mapper import Mapper
from dovetail.join.pool import BYTES_A_BLOCK
from dovetail.node.answers import takes_anything
from dovetail.node.master import MasterJoin
from dovetail.node.window import Window
from dovetail.pipeline.spec import Pipeline
from dovetail.service.metrics import Latency
from dovetail.stream.ledger import Ledger, parse
from dovetail.testing.fakes import (
    InMemoryMaster,
    RecordingProducer,
    event_batch,
    join_keys,
    records_of,
)
from dovetail.topology import Topology
from services.disk_phase.handler import DiskHandler

SLOTS = 3
DISK_BUFFER = 4096
PIPELINE = Pipeline.model_validate(
    {
        "name": "sales",
        "source": {"fields": {"id": "int"}},
        "key": "id",
        "master": {"table": "goods", "columns": ["name"]},
        "slots": SLOTS,
    }
)
TOPOLOGY = Topology(PIPELINE)
MAPPER = Mapper(SLOTS, int_key=True)


@dataclass
class Broker:
    """Slots' logs, and what is committed."""

    logs: dict[int, list] = field(default_factory=lambda: defaultdict(list))
    committed: dict[int, tuple[int, str]] = field(default_factory=dict)
    progress: dict[int, Progress] = field(default_factory=dict)
    outputs: Counter = field(default_factory=Counter)
    sink: dict[int, list] = field(default_factory=lambda: defaultdict(list))
    """The origins of each slot's outputs, in order."""

    def commit(self, offsets, producer):
        self.committed.update(offsets)
        for message in producer.sent[TOPOLOGY.progress.name]:
            self.progress[message.partition] = Progress.FromString(message.value)
        for topic in (TOPOLOGY.enriched, TOPOLOGY.unmatched):
            for message in producer.sent[topic.name]:
                self.outputs[message.headers[b"origin"], message.value] += 1
        for message in producer.sent[TOPOLOGY.enriched.name]:
            self.sink[message.partition].append(message.headers[b"origin"])

    def read(self, slot, number):
        found = self.progress[slot]
        assert found.number == number
        return found


class Node:
    """A handler with the loop around it, a turn at a time."""

    def __init__(self, broker, rows, algorithm, memory, pipeline=PIPELINE, line=None):
        self._broker = broker
        master = InMemoryMaster(rows)
        self._ticks = 0

        engine = Engine(
            algorithm,
            master.facts,
            memory,
            parameters=Parameters(keys=2, pages=1),
            disk_buffer=DISK_BUFFER,
            policy=Emigration(algorithm),
        )
        self.handler = DiskHandler(
            Topology(pipeline),
            MasterJoin(engine, master),
            Window(40),
            broker,
            memory,
            Latency(),
            takes_anything,
            self._clock,
            line,
        )
        self.ledger = Ledger()
        self.positions = {}

    def _clock(self):
        """Time that passes with every look at it: a step takes some turns of its own."""
        self._ticks += 1
        return self._ticks * 0.02

    def assign(self, slot):
        self._rewind([slot])

    def revoke(self, slot):
        del self.positions[slot]
        self.ledger.close(slot)
        self.handler.drop()
        self._rewind(self.positions)

    def _rewind(self, slots):
        for slot in list(slots):
            offset, text = self._broker.committed.get(slot, (0, ""))
            self.positions[slot] = offset
            self.ledger.open(slot, text)
            self.handler.open(slot, self.ledger)

    def turn(self, batches, *, fails):
        """Take so many batches of each slot if there is room; commit, or undo everything."""
        taken = []
        if not self.handler.full:
            for slot in self.positions:
                log = self._broker.logs[slot]
                for offset in range(self.positions[slot], len(log))[:batches]:
                    taken.append((slot, offset, log[offset]))
                    self.positions[slot] = offset + 1
        if not taken and not self.handler.busy:
            return False
        producer = RecordingProducer()
        records = records_of(
            [(slot, batch) for slot, _, batch in taken],
            offsets=[offset for _, offset, _ in taken],
        )
        try:
            self.handler.handle(records, producer, self.ledger)
        except Unavailable:
            fails = True
        touched = {slot for slot, _, _ in taken}
        offsets = self.handler.offsets(dict(self.positions), touched)
        if fails:
            self.ledger.abort()
            self.handler.drop()
            self._rewind(self.positions)
            return True
        texts = {slot: (offset, self.ledger.text(slot)) for slot, offset in offsets.items()}
        self._broker.commit(texts, producer)
        self.ledger.commit()
        return True


class Cluster:
    """Two nodes that share the slots; the first has them all to begin with."""

    def __init__(self, new_node):
        self._new_node = new_node
        self._nodes = [new_node(), new_node()]
        self._owner = dict.fromkeys(range(SLOTS), 0)
        for slot in self._owner:
            self._nodes[0].assign(slot)

    def turn(self, which, batches):
        self._nodes[which].turn(batches, fails=False)

    def undo(self, which, batches):
        self._nodes[which].turn(batches, fails=True)

    def kill(self, which, _):
        self._nodes[which] = self._new_node()
        for slot, owner in self._owner.items():
            if owner == which:
                self._nodes[which].assign(slot)

    def move(self, slot, to):
        if self._owner[slot] != to:
            self._nodes[self._owner[slot]].revoke(slot)
            self._owner[slot] = to
            self._nodes[to].assign(slot)

    def drain(self):
        for node in self._nodes:
            turns = 0
            while node.turn(3, fails=False):
                turns += 1
                assert turns < 10_000


def filled(keys_of_batches):
    """Batches on the slots of their keys, and the events by their source offset."""
    broker, events = Broker(), {}
    for keys in keys_of_batches:
        by_slot = defaultdict(list)
        for key in keys:
            offset = len(events)
            events[offset] = key
            by_slot[int(MAPPER.slots(join_keys([key]))[0])].append(offset)
        for slot, offsets in by_slot.items():
            batch = event_batch([(events[offset], shown(events[offset])) for offset in offsets])
            batch.offsets[:] = offsets
            broker.logs[slot].append(batch)
    return broker, events


def shown(key):
    return json.dumps({"id": key}).encode()


def joined(events, rows):
    """What SQL would give, event by event."""
    expected = Counter()
    for offset, key in events.items():
        origin = b"sales/0/%d" % offset
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
KEYS = st.lists(st.lists(st.integers(0, 25), min_size=1, max_size=6), min_size=1, max_size=25)
DEEDS = st.lists(
    st.one_of(
        st.tuples(st.just("turn"), st.integers(0, 1), st.integers(1, 3)),
        st.tuples(st.just("undo"), st.integers(0, 1), st.integers(1, 3)),
        st.tuples(st.just("kill"), st.integers(0, 1), st.just(0)),
        st.tuples(st.just("move"), st.integers(0, SLOTS - 1), st.integers(0, 1)),
    ),
    max_size=30,
)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@given(rows=ROWS, keys=KEYS, deeds=DEEDS, pool=st.integers(64, 120))
@settings(max_examples=40, deadline=None)
def test_every_event_is_answered_once_whatever_happens_to_its_slot(
    algorithm, rows, keys, deeds, pool
):
    broker, events = filled(keys)
    memory = DISK_BUFFER + 200 + pool * BYTES_A_BLOCK

    cluster = Cluster(lambda: Node(broker, rows, algorithm, memory))
    for deed, which, more in deeds:
        getattr(cluster, deed)(which, more)
    cluster.drain()
    assert broker.outputs == joined(events, rows)
    taken = sum((parse(text) for _, text in broker.committed.values()), Counter())
    assert taken["in"] == taken["enriched"] + taken["unmatched"] == len(events)
    for slot, log in broker.logs.items():
        assert broker.committed.get(slot, (0, ""))[0] == len(log)
