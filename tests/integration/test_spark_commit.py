"""The transactions of `enrich` on a real broker, without Spark: who writes, who is fenced."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import closing, suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka import Producer as KafkaProducer
from confluent_kafka.admin import AdminClient

from dovetail.errors import ConfigError, Unavailable
from dovetail.pipeline.spec import Engine, Pipeline
from dovetail.settings import Settings
from dovetail.stream.engines import left_by_services, require_services
from dovetail.stream.handler import Move
from dovetail.stream.old_states import OldStates
from dovetail.stream.places import AstrayError
from dovetail.stream.rdkafka import GroupMetadata, KafkaFailure, Producer
from dovetail.stream.slot_state import SlotState
from dovetail.stream.states import StatesReader, write_slots
from dovetail.stream.takeover import Written, producer_of
from dovetail.stream.topics import ensure_topics
from dovetail.topology import ENRICH, INGEST, Topology
from dovetail.verify import read_all
from services.spark.enrich import Enrichment
from services.spark.enrich_commit import NodeTransaction, _driver, take_over, write_states

SLOTS, NODES = 4, 2


class Nodes:
    """Whoever may work for a node: each has clients of its own, as in a process of its own."""

    def __init__(self, settings, topology):
        self.settings, self.topology = settings, topology
        self._open = []

    def one(self, node=0):
        states = StatesReader(self.settings, self.topology.states)
        transaction = NodeTransaction(self.settings, self.topology, states, node)
        self._open.append((states, transaction))
        return transaction

    def take_over(self):
        return take_over(self.settings, self.topology)

    def outputs(self):
        return sorted(m.value().decode() for m in read_all(self.settings, self.topology.enriched))

    def forget_the_group(self):
        """As a broker does."""
        admin = AdminClient({"bootstrap.servers": self.settings.bootstrap})
        told = admin.delete_consumer_groups([self.topology.group(ENRICH)])
        for future in told.values():
            # Of a group that has never committed anything there is nothing to delete.
            with suppress(KafkaException):
                future.result(30)

    def leave_as_0_2_0_did(self, run, slots):
        """The number of a run, and the slots' states, as offsets of a group that nobody joins."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.settings.bootstrap,
                "group.id": self.topology.group(ENRICH),
                "enable.auto.commit": False,
            }
        )
        with closing(consumer):
            mapped = self.topology.mapped.name
            texts = [TopicPartition(mapped, n, 1, state.text) for n, state in slots.items()]
            number = TopicPartition(self.topology.clean.name, 0, run)
            consumer.commit(offsets=[number, *texts], asynchronous=False)

    def ingest(self, **further):
        """A consumer of the services' ingest."""
        group = self.topology.group(INGEST)
        return Consumer(self.settings.client({"group.id": group, **further}))

    def delete_the_states(self):
        admin = AdminClient({"bootstrap.servers": self.settings.bootstrap})
        name = self.topology.states.name
        admin.delete_topics([name])[name].result(30)
        deadline = time.monotonic() + 30
        while name in admin.list_topics(timeout=30).topics:
            assert time.monotonic() < deadline
            time.sleep(0.1)

    def application(self):
        """The driver's part of it, which needs no Spark before there are events."""
        spark = SimpleNamespace(sparkContext=SimpleNamespace(master="local[2]"))
        pipeline = self.topology.pipeline
        return Enrichment(self.settings, pipeline, spark, lambda *_: None, 1_000)

    def begin(self):
        """Begin a run as far as to where its slots read on."""
        application = self.application()
        return application._placed(*application._take_over())

    def close(self):
        for states, transaction in self._open:
            transaction.drop()
            states.close()


@pytest.fixture
def nodes(bootstrap, kafka_namespace):
    spec = {
        "name": f"{kafka_namespace}sales",
        "source": {"fields": {"sku": "int"}, "partitions": 2},
        "key": "sku",
        "master": {"table": "products", "columns": ["price"]},
        "engine": "spark",
        "slots": SLOTS,
        "nodes": NODES,
    }
    topology = Topology(Pipeline.model_validate(spec))
    settings = Settings(bootstrap, "postgresql://nobody@nowhere/none", Path("unused"))
    ensure_topics(settings, topology.topics())
    nodes = Nodes(settings, topology)
    yield nodes
    nodes.close()


def answer(transaction, text, states):
    """Send an output, and give the states that go with it."""
    transaction.producer.send(f"{transaction._topology.enriched.name}", text.encode(), 0)
    return {
        slot: SlotState(
            (states.get(slot) or SlotState()).counts + Counter({"in": 1, "enriched": 1}),
            {0: (states.get(slot) or SlotState()).position(0) + 1},
        )
        for slot in transaction.slots
    }


def test_output_and_states_become_visible_together(nodes):
    run, states = nodes.take_over()
    assert (run, states) == (1, {})
    first = nodes.one()
    done = answer(first, "a", first.begin(run))
    assert nodes.outputs() == []
    first.commit(done)
    assert nodes.outputs() == ["a"]
    assert nodes.one().begin(run) == done
    assert nodes.one(1).begin(run) == {}, "another node's slots are another's"


def test_of_two_that_work_for_a_node_at_once_one_writes(nodes):
    run, _ = nodes.take_over()
    first, second = nodes.one(), nodes.one()
    lost = answer(first, "first", first.begin(run))
    kept = answer(second, "second", second.begin(run))
    with pytest.raises(KafkaFailure):
        first.commit(lost)
    second.commit(kept)
    assert nodes.outputs() == ["second"]


def test_who_comes_after_a_commit_finds_it(nodes):
    run, _ = nodes.take_over()
    first, second = nodes.one(), nodes.one()
    done = answer(first, "a", first.begin(run))
    first.commit(done)
    assert second.begin(run) == done
    further = answer(second, "b", done)
    second.commit(further)
    # The first one's producer is fenced, and it knows before it has worked in vain.
    assert first.begin(run) == further
    first.commit(answer(first, "c", further))
    assert nodes.outputs() == ["a", "b", "c"]


def test_who_knows_that_all_was_committed_fences_the_last_one_and_goes_on(nodes):
    run, _ = nodes.take_over()
    first, second = nodes.one(), nodes.one()
    done = answer(first, "a", first.begin(run))
    first.commit(done)
    assert first.begin(run) == done
    late = answer(first, "late", done)
    assert second.begin(run, settled=True) == done
    further = answer(second, "b", done)
    with pytest.raises(KafkaFailure):
        first.commit(late)
    second.commit(further)
    assert nodes.outputs() == ["a", "b"]


def test_a_producer_is_kept_as_long_as_nobody_else_commits(nodes):
    run, _ = nodes.take_over()
    one = nodes.one()
    states = one.begin(run)
    producer = one.producer
    for text in ("a", "b", "c"):
        states = answer(one, text, states)
        one.commit(states)
        assert one.begin(run) == states
        assert one.producer is producer
    assert nodes.outputs() == ["a", "b", "c"]


@pytest.mark.parametrize("begun", [True, False], ids=["in-mid-transaction", "about-to-begin"])
def test_a_new_run_ends_the_one_before(nodes, begun):
    run, _ = nodes.take_over()
    left_behind = nodes.one(1)
    if begun:
        lost = answer(left_behind, "late", left_behind.begin(run))
    later, states = nodes.take_over()
    assert (later, states) == (run + 1, {})
    if begun:
        with pytest.raises(KafkaFailure):
            left_behind.commit(lost)
    else:
        with pytest.raises(Unavailable, match=r"run 1 of .* is over"):
            left_behind.begin(run)
    present = nodes.one(1)
    present.commit(answer(present, "present", present.begin(later)))
    assert nodes.outputs() == ["present"]


def test_what_is_dropped_was_never_written(nodes):
    run, _ = nodes.take_over()
    one = nodes.one()
    answer(one, "undone", one.begin(run))
    one.drop()
    assert nodes.outputs() == []
    again = answer(one, "done", one.begin(run))
    one.commit(again)
    assert nodes.outputs() == ["done"]


def test_states_are_written_alone_and_only_by_the_run_that_holds(nodes):
    run, _ = nodes.take_over()
    one = nodes.one()
    one.commit(answer(one, "first", one.begin(run)))
    later, states = nodes.take_over()
    known = {slot: states.get(slot, SlotState()) for slot in range(SLOTS)}
    moved = {slot: state.moved(5, {0: 0}) for slot, state in known.items()}
    with pytest.raises(Unavailable, match="is over"):
        write_states(nodes.settings, nodes.topology, run, moved)
    write_states(nodes.settings, nodes.topology, later, moved)
    assert nodes.take_over()[1] == moved
    assert nodes.outputs() == ["first"]


def test_states_that_are_written_alone_are_written_all_or_none(nodes, monkeypatch):
    """Of a loss that is counted in one slot, no part may be passed by the other slots alone."""
    run, _ = nodes.take_over()
    placed = {slot: SlotState().placed(0, 1_000, 600 * (slot == 0)) for slot in range(SLOTS)}
    commits = []

    def commit(producer, timeout_s, once=Producer.commit):
        if commits:
            raise KeyboardInterrupt
        commits.append(producer)
        once(producer, timeout_s)

    with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
        patch.setattr(Producer, "commit", commit)
        write_states(nodes.settings, nodes.topology, run, placed)
    assert nodes.take_over()[1] in ({}, placed)


def test_a_driver_whose_place_is_taken_writes_no_states(nodes):
    """Neither if it has begun to, nor if it begins later."""
    run, _ = nodes.take_over()
    behind = _driver(nodes.settings, nodes.topology)
    behind.begin()
    write_slots(behind, nodes.topology.states, {0: SlotState(Counter({"in": 1}))})
    later, _ = nodes.take_over()
    with closing(behind), pytest.raises(KafkaFailure):
        behind.commit(30)
    with pytest.raises(Unavailable, match="is over"):
        write_states(nodes.settings, nodes.topology, run, {0: SlotState()})
    assert nodes.take_over() == (later + 1, {})


def test_the_states_outlive_what_a_broker_forgets_of_a_group(nodes):
    """After a week without members (offsets.retention.minutes) a group is gone: enrich has none."""
    run, _ = nodes.take_over()
    done = {}
    for node in range(NODES):
        one = nodes.one(node)
        states = answer(one, f"{node}", one.begin(run))
        one.commit(states)
        done |= states
    nodes.forget_the_group()
    assert nodes.take_over() == (run + 1, done)


def test_a_state_has_room_for_any_number_of_source_partitions_and_all_tables(nodes):
    run, _ = nodes.take_over()
    one = nodes.one()
    one.begin(run)
    wide = SlotState(
        Counter({"in": 10**12, "enriched": 10**12}),
        {number: 10**12 + number for number in range(2_000)},
        (Counter({"in": 3, "outputs": 3}), Counter()),
    )
    states = dict.fromkeys(one.slots, wide)
    one.commit(states)
    assert nodes.one().begin(run) == states


def test_the_latest_state_is_found_behind_many_that_were_aborted(nodes):
    run, _ = nodes.take_over()
    one = nodes.one()
    done = answer(one, "a", one.begin(run))
    one.commit(done)
    slot = one.slots[0]
    for _ in range(20):
        one.begin(run)
        write_slots(one.producer, nodes.topology.states, {slot: SlotState()})
        one.producer.flush(30)
        one.producer.abort(30)
    assert nodes.one().begin(run) == done


def test_the_states_of_an_older_release_are_taken_over_once(nodes):
    left = {
        slot: SlotState(Counter({"in": 5 + slot, "enriched": 5 + slot}), {0: 7, 1: slot})
        for slot in range(SLOTS)
    }
    nodes.leave_as_0_2_0_did(41, left)
    assert nodes.take_over() == (42, left)
    with closing(OldStates(nodes.settings, nodes.topology)) as old:
        assert old.read().run == 42, "what is left of the older run reads that it is over"
    one = nodes.one()
    done = answer(one, "a", one.begin(42))
    one.commit(done)
    run, found = nodes.take_over()
    assert run == 43
    assert found == left | done


def left_by_ingest(nodes):
    """The services' ingest has taken so much of the source, and all of it is answered."""
    source = nodes.topology.source.name
    fill(nodes, 20)
    with closing(nodes.ingest()) as ingest:
        ingest.commit(offsets=[TopicPartition(source, 0, 5)], asynchronous=False)


def left_by_0_2_0(nodes):
    fill(nodes, 20)
    nodes.leave_as_0_2_0_did(41, dict.fromkeys(range(SLOTS), SlotState(positions={0: 5, 1: 0})))


def fill(nodes, events):
    producer = KafkaProducer(nodes.settings.client())
    for _ in range(events):
        producer.produce(nodes.topology.source.name, b"{}", partition=0)
    assert producer.flush(30) == 0


@pytest.mark.parametrize("left", [left_by_ingest, left_by_0_2_0])
def test_when_the_states_are_deleted_nothing_older_is_begun_with(nodes, left):
    left(nodes)
    begun = nodes.begin()
    assert {state.position(0) for state in begun.values()} == {5}
    run, _ = nodes.take_over()
    for node in range(NODES):
        one = nodes.one(node)
        one.commit(answer(one, f"{node}", one.begin(run)))
    assert {state.position(0) for state in nodes.begin().values()} == {6}
    nodes.delete_the_states()
    for _ in range(2):
        with pytest.raises(AstrayError, match=r"states has nothing of what was read, and it has"):
            nodes.begin()
    # Whoever knows where it ended says so, and it goes on there.
    nodes.application().move(Move(1, {0: 6, 1: 0}))
    assert {state.position(0) for state in nodes.begin().values()} == {6}


def test_a_first_run_that_got_no_further_than_its_number_is_a_first_one_still(nodes):
    left_by_ingest(nodes)
    nodes.take_over()
    assert {state.position(0) for state in nodes.begin().values()} == {5}


def test_the_services_refuse_what_spark_has_run(nodes):
    services = nodes.topology.pipeline.model_copy(update={"engine": Engine.SERVICES})
    require_services(nodes.settings, Topology(services))
    nodes.take_over()
    nodes.forget_the_group()
    with pytest.raises(ConfigError, match="was run by Spark"):
        require_services(nodes.settings, Topology(services))


def test_the_services_refuse_what_an_older_release_has_run_on_spark(nodes):
    nodes.leave_as_0_2_0_did(1, {0: SlotState()})
    services = nodes.topology.pipeline.model_copy(update={"engine": Engine.SERVICES})
    with pytest.raises(ConfigError, match="was run by Spark"):
        require_services(nodes.settings, Topology(services))


def test_spark_waits_as_long_as_ingest_is_a_member_of_its_group(nodes):
    assert left_by_services(nodes.settings, nodes.topology) == {}
    member = f"{nodes.topology.group(INGEST)}.0"
    ingest = nodes.ingest(**{"group.instance.id": member, "session.timeout.ms": 6_000})
    with closing(ingest):
        ingest.subscribe([nodes.topology.source.name])
        deadline = time.monotonic() + 60
        while not ingest.assignment():
            assert time.monotonic() < deadline
            ingest.poll(0.1)
        with pytest.raises(Unavailable, match=f"the services run the pipeline still .{member}"):
            left_by_services(nodes.settings, nodes.topology)


def test_what_ingest_had_under_way_when_spark_took_over_is_never_committed(nodes):
    """It was still for so long that it is no member any more, and goes on then."""
    group, source = nodes.topology.group(INGEST), nodes.topology.source.name
    with closing(nodes.ingest()) as ingest:
        ingest.commit(offsets=[TopicPartition(source, 0, 5)], asynchronous=False)
    with closing(producer_of(nodes.settings, f"{group}.0", Written(()))) as still:
        still.begin()
        still.send(nodes.topology.clean.name, b"taken", 0)
        still.send_offsets(source, {0: (9, "")}, GroupMetadata.of_group(group), 30)
        assert left_by_services(nodes.settings, nodes.topology) == {0: 5}
        with pytest.raises(KafkaFailure):
            still.commit(30)
    assert left_by_services(nodes.settings, nodes.topology) == {0: 5}
