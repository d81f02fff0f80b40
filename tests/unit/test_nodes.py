import threading

import numpy as np
import pytest

from dovetail.errors import ConfigError, MasterDataError
from dovetail.join.columns import Column, JoinKeys
from dovetail.join.engine import Engine
from dovetail.join.entry import MasterRows
from dovetail.join.mapper import Mapper
from dovetail.nodes import Node, Nodes, Slots
from tests.unit.engine_kit import events_of, relation_of, rows_each


def odd_or_even(keys):
    """PCSRJ's own slot function: even keys to node 0, odd ones to node 1."""
    return (keys.values & 1).astype(np.int32)


ODD_EVEN = Slots(odd_or_even, owners=[0, 1])


class Source:
    """A relation in memory, as a node reads it; `gate` holds reads back until it is open."""

    def __init__(self, keys, gate=None):
        self._relation = relation_of(keys)
        self._gate = gate
        self.facts = self._relation.facts
        self.reads = 0

    def read(self, request, most):
        if self._gate is not None:
            assert self._gate.wait(60)
        self.reads += 1
        return self._relation.read(request)


class Broken(Source):
    def read(self, request, most):
        raise MasterDataError("page 3 cannot be read: restore the table")


def node_over(source, algorithm="pcsrj"):
    return Node(Engine(algorithm, source.facts, 200_000), source)


def node_threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("node-")]


@pytest.fixture(autouse=True)
def _nothing_is_left_running():
    yield
    assert node_threads() == []


def rows_of(keys):
    rows = Column.of([b'{"r":%d}' % i for i in range(len(keys))])
    return MasterRows(JoinKeys.of_ints(np.array(keys, np.int64)), rows)


def test_odd_and_even_keys_are_two_slots_of_two_nodes():
    even, odd = ODD_EVEN.split_rows(rows_of([4, 7, -3, 0, 7]))
    assert even.keys.values.tolist() == [4, 0]
    assert odd.keys.values.tolist() == [7, -3, 7]
    assert list(odd.rows) == [b'{"r":1}', b'{"r":2}', b'{"r":4}']
    ((node, events),) = ODD_EVEN.split_events(events_of([5, 1]))
    assert (node, events.ids.tolist()) == (1, [0, 1])


def test_pcsrj_answers_odd_and_even_keys_on_their_own_nodes():
    keys = [key for key in range(10) for _ in range(key)]
    even, odd = (Source([k for k in keys if k % 2 == rest]) for rest in (0, 1))
    found = {}
    with Nodes([node_over(even), node_over(odd)], ODD_EVEN) as nodes:
        answered = nodes.offer(events_of([0, 1, 2, 3, 9, 8, 3, 10]))
        for answers in [*answered, *nodes.finish()]:
            found |= dict(zip(answers.ids.tolist(), rows_each(answers), strict=True))
    assert found == {0: 0, 1: 1, 2: 2, 3: 3, 4: 9, 5: 8, 6: 3, 7: 0}
    assert even.reads
    assert odd.reads


def test_a_split_relation_holds_every_row_on_the_node_of_its_slot():
    slots = Slots.in_turn(Mapper(12, int_key=True).slots, slots=12, nodes=5)
    rows = rows_of(range(100))
    parts = slots.split_rows(rows)
    assert len(parts) == 5
    assert sorted(k for part in parts for k in part.keys.values.tolist()) == list(range(100))
    for node, part in enumerate(parts):
        assert set(slots.nodes_of(part.keys).tolist()) == {node}


@pytest.mark.parametrize("slot", [-1, 2])
def test_a_slot_without_an_owner_is_refused(slot):
    slots = Slots(lambda keys: np.full(len(keys), slot, np.int32), owners=[0, 1])
    with pytest.raises(ConfigError, match="only slots 0 to 1 have an owner"):
        slots.split_events(events_of([1]))


def test_an_owner_that_is_not_there_is_refused():
    with pytest.raises(ConfigError, match="belong to 2 nodes, and there are 1"):
        Nodes([node_over(Source([1]))], ODD_EVEN)


def test_a_full_inbox_holds_the_caller_back():
    gate = threading.Event()
    first = Source(range(1000), gate)
    slots = Slots(lambda keys: np.zeros(len(keys), np.int32), owners=[0])
    offered = []

    def fill():
        for batch in range(20):
            nodes.offer(events_of([batch]))
            offered.append(batch)

    with Nodes([node_over(first, "inlj")], slots, depth=2) as nodes:
        caller = threading.Thread(target=fill)
        caller.start()
        caller.join(0.3)
        before = len(offered)
        gate.set()
        caller.join(60)
    assert before <= 4, "two let in before the first read, two in the inbox"
    assert len(offered) == 20


def test_answers_that_nobody_takes_hold_a_node_back():
    source = Source(range(1000))
    slots = Slots(lambda keys: np.zeros(len(keys), np.int32), owners=[0])
    with Nodes([node_over(source, "inlj")], slots, depth=2) as nodes:
        nodes.offer(events_of(range(500)))
        threading.Event().wait(0.3)
        assert source.reads <= 3, "two answers in the outbox, and one that waits"
        assert sum(len(answers) for answers in nodes.finish()) == 500
        assert source.reads == 500


def test_one_thread_may_offer_far_more_than_all_queues_hold():
    slots = Slots.in_turn(Mapper(4, int_key=True).slots, slots=4, nodes=2)
    sources = [Source(range(50)), Source(range(50))]
    ids = []
    with Nodes([node_over(source, "inlj") for source in sources], slots, depth=1) as nodes:
        for batch in range(200):
            for answers in nodes.offer(events_of([batch % 60, batch % 7])):
                ids += answers.ids.tolist()
        ids += [i for answers in nodes.finish() for i in answers.ids.tolist()]
    assert sorted(ids) == [0] * 200 + [1] * 200


@pytest.mark.parametrize("algorithm", ["meshjoin", "pcsrj", "srj"])
def test_a_batch_larger_than_a_nodes_memory_is_let_in_bit_by_bit(algorithm):
    source = Source(range(100))
    engine = Engine(algorithm, source.facts, 60_000, disk_buffer=40_000)
    with Nodes([Node(engine, source)], Slots(odd_or_even, [0, 0])) as nodes:
        nodes.offer(events_of([key % 120 for key in range(2000)]))
        ids = [i for answers in nodes.finish() for i in answers.ids.tolist()]
    assert sorted(ids) == list(range(2000))


def test_answers_come_without_the_end_of_the_stream():
    slots = Slots(lambda keys: np.zeros(len(keys), np.int32), owners=[0])
    with Nodes([node_over(Source([1, 2, 3]))], slots) as nodes:
        nodes.offer(events_of([2]))
        found = []
        while not found:
            found = nodes.ready()
        assert rows_each(found[0]) == [1]


@pytest.mark.parametrize("bad", [0, 1])
def test_an_error_in_a_node_is_raised_in_the_caller_with_its_message(bad):
    sources = [Source(range(9)), Source(range(9))]
    sources[bad] = Broken(range(9))

    def run():
        with Nodes([node_over(source) for source in sources], ODD_EVEN) as nodes:
            for _ in range(1000):
                nodes.offer(events_of([2, 3]))
            list(nodes.finish())

    with pytest.raises(MasterDataError, match="page 3 cannot be read") as raised:
        run()
    assert raised.value.__notes__ == [f"in node {bad}"]


def test_an_error_wakes_a_caller_that_waits_for_answers():
    with Nodes([node_over(Broken([1]))], Slots(odd_or_even, [0, 0])) as nodes:
        nodes.offer(events_of([1]))
        with pytest.raises(MasterDataError, match="page 3"):
            list(nodes.finish())


def test_closing_in_the_middle_of_the_stream_ends_all_threads():
    sources = [Source(range(5000)), Source(range(5000))]
    nodes = Nodes([node_over(source, "meshjoin") for source in sources], ODD_EVEN, depth=1)
    for batch in range(10):
        nodes.offer(events_of(range(batch, batch + 100)))
    assert len(node_threads()) == 2
    nodes.close()
    assert node_threads() == []
    nodes.close()


def test_closing_ends_nodes_whose_answers_nobody_takes():
    nodes = Nodes([node_over(Source(range(50)), "inlj")], Slots(odd_or_even, [0, 0]), depth=1)
    nodes.offer(events_of(range(40)))
    nodes.close()
    assert node_threads() == []


def test_no_events_are_taken_after_the_end_of_the_stream():
    with Nodes([node_over(Source([1]))], Slots(odd_or_even, [0, 0])) as nodes:
        assert list(nodes.finish()) == []
        with pytest.raises(ValueError, match="stream has ended"):
            nodes.offer(events_of([1]))
