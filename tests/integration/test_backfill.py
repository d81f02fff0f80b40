"""Backfill's tasks on a real broker and a real table: completed once, whatever is run again."""

from __future__ import annotations

import time
from collections import Counter

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from dovetail.errors import ConfigError, Unavailable
from dovetail.node.step import TOO_LARGE
from dovetail.stream.late import read_late, unbalanced
from dovetail.stream.rdkafka import KafkaFailure
from dovetail.stream.topics import admin_of, ends, ensure_topics
from dovetail.stream.whole import read_all
from dovetail.verify import ends_of, verify
from dovetail.verify.reading import headers_of
from services.spark.backfill import require_completable
from services.spark.backfill_commit import NodeTransaction
from tests.integration.backfill_kit import NODES, SetAside


@pytest.fixture
def aside(bootstrap, database, kafka_namespace):
    def make(**changes):
        made = SetAside(bootstrap, database, kafka_namespace, **changes)
        made.master("CREATE TABLE IF NOT EXISTS goods (id int, name text)")
        return made

    return make


def counts_of(aside):
    return read_late(aside.settings, aside.topology).counts


def test_each_event_goes_where_it_belongs_and_stays_completable(aside):
    sales = aside()
    sales.master("INSERT INTO goods VALUES (1, 'one'), (2, 'two'), (2, 'zwei')")
    topology = sales.topology
    sales.add(topology.shed, 1, 2, 7)
    sales.add(topology.unmatched, 2, 8, 9)
    sales.add(topology.parked, 1, 7)

    done = sales.run()
    assert sales.keys_on(topology.enriched) == {1: 2, 2: 4}
    assert (done["late"], done["outputs"], done["still"]) == (4, 6, 2)
    # What was shed or parked is seen on `unmatched` once; what is there already is not repeated.
    assert sales.keys_on(topology.unmatched) == {2: 1, 8: 1, 9: 1, 7: 2}
    assert sales.keys_on(topology.still_unmatched) == {8: 1, 9: 1}
    assert unbalanced(counts_of(sales)) == []
    for message in read_all(sales.settings, topology.enriched):
        assert headers_of(message)["via"] == "late"

    sales.master("INSERT INTO goods VALUES (8, 'eight'), (7, 'seven')")
    done = sales.run()
    assert sales.keys_on(topology.enriched) == {1: 2, 2: 4, 8: 1, 7: 2}
    assert (done["of.unmatched"], done["still"]) == (3, 1)
    again = sales.run()
    assert (again["late"], again["still"]) == (0, 1)
    assert sales.keys_on(topology.enriched) == {1: 2, 2: 4, 8: 1, 7: 2}
    assert unbalanced(counts_of(sales)) == []


@pytest.mark.parametrize("kind", ["left", "semi", "anti"])
def test_each_kind_of_join_by_the_rows_of_now(aside, kind):
    columns = ["name"] if kind == "left" else []
    sales = aside(join=kind, master={"table": "goods", "key": "id", "columns": columns})
    sales.master("INSERT INTO goods VALUES (1, 'one'), (1, 'uno')")
    topology = sales.topology
    sales.add(topology.shed, 1, 5)
    if kind != "left":
        sales.add(topology.unmatched, 1, 6)
    done = sales.run()
    outputs = {"left": {1: 2, 5: 1}, "semi": {1: 2}, "anti": {5: 1, 6: 1}}[kind]
    assert sales.keys_on(topology.enriched) == outputs
    assert done["late"] == {"left": 2, "semi": 2, "anti": 2}[kind]
    assert done["unmatched"] == (kind != "left")
    assert unbalanced(counts_of(sales)) == []


def test_portions_and_parts_of_them_that_are_run_again_are_written_once(aside):
    sales = aside()
    sales.master("INSERT INTO goods SELECT n, 'row ' || n FROM generate_series(0, 59) n")
    topology = sales.topology
    sales.add(topology.shed, *range(40))
    sales.add(topology.unmatched, *range(20, 80))
    # Killed after one node's part of the second portion: some slots are ahead.
    sales.run(most=15, portions=2, nodes=[1])
    places = read_late(sales.settings, topology).positions(topology)
    assert places[topology.shed.name] == {15, 30}
    # Then with portions of another size, and killed again; then to its end.
    sales.run(most=7, portions=3, nodes=[0])
    sales.add(topology.shed, *range(10))
    sales.run()
    expected = Counter(range(40)) + Counter(range(20, 60)) + Counter(range(10))
    assert sales.keys_on(topology.enriched) == expected
    assert max(sales.on(topology.enriched).values()) == 1
    assert sales.keys_on(topology.still_unmatched).keys() == set(range(60, 80))
    counts = counts_of(sales)
    assert counts["late"] == expected.total()
    assert unbalanced(counts) == []


def test_a_task_that_is_run_twice_writes_once(aside):
    sales = aside()
    sales.master("INSERT INTO goods VALUES (1, 'one')")
    sales.add(sales.topology.shed, *[1] * 10)
    run, _, [portion] = sales.begin()
    for _ in range(2):
        for node in range(NODES):
            sales.task(run, portion, node)
    assert sales.keys_on(sales.topology.enriched) == {1: 10}


def test_what_a_dead_driver_left_behind_is_fenced_or_stops(aside):
    sales = aside()
    sales.master("INSERT INTO goods VALUES (1, 'one')")
    sales.add(sales.topology.shed, *[1] * 10)
    run, _, [portion] = sales.begin()
    begun = NodeTransaction(sales.settings, sales.topology, 0, run)
    begun.producer.send(sales.topology.enriched.name, b"by a zombie", 0)
    sales.run()
    with pytest.raises(KafkaFailure):
        begun.commit({})
    begun.drop()
    with pytest.raises(Unavailable, match=f"run {run} of .* is over"):
        sales.task(run, portion, 0)
    assert sales.keys_on(sales.topology.enriched) == {1: 10}


def test_a_key_with_more_rows_than_memory_is_completed_row_by_row(aside):
    sales = aside()
    topology = sales.topology
    # 9 MB of rows for a node of 4 MiB, parked and met for the first time.
    sales.master(
        "INSERT INTO goods SELECT 1, repeat('x', 300) || n FROM generate_series(1, 30000) n"
    )
    sales.master("INSERT INTO goods VALUES (2, 'two')")
    sales.add(topology.parked, 1, 3)
    sales.add(topology.shed, 1, 2)
    done = sales.run()
    assert sales.keys_on(topology.enriched) == {1: 60_000, 2: 1}
    assert max(sales.on(topology.enriched).values()) == 1
    assert (done["late"], done["outputs"], done["unmatched"]) == (3, 60_001, 1)
    assert (done["of.parked"], done["of.shed"]) == (2, 2)
    assert unbalanced(counts_of(sales)) == []


def set_largest(sales, size):
    entry = ConfigEntry("max.message.bytes", str(size), incremental_operation=AlterConfigOpType.SET)
    sink = ConfigResource(
        ResourceType.TOPIC, sales.topology.enriched.name, incremental_configs=[entry]
    )
    admin = admin_of(sales.settings)
    for future in admin.incremental_alter_configs([sink]).values():
        future.result(30)


def test_an_output_too_large_among_more_rows_than_memory_parks_its_event_alone(aside):
    sales = aside()
    set_largest(sales, 1_048_588)
    topology = sales.topology
    # Of key 1 one row among 9 MB of them is too large, and not the first that is read.
    sales.master(
        "INSERT INTO goods SELECT n %% 2 + 1, repeat('x', 300) || n"
        " FROM generate_series(1, 60000) n"
    )
    sales.master("INSERT INTO goods VALUES (1, repeat('y', 1100000)), (3, 'three')")
    sales.add(topology.parked, 1, 2, 2)
    sales.add(topology.unmatched, 1)
    sales.add(topology.shed, 1, 3)
    sales.add(topology.shed, 3, origin="somewhere/0/1")
    done = sales.run()
    assert sales.keys_on(topology.enriched) == {2: 60_000, 3: 1}
    assert max(sales.on(topology.enriched).values()) == 1
    assert (done["late"], done["parked"], done["strange"]) == (3, 3, 1)
    parked = [headers_of(one) for one in read_all(sales.settings, topology.parked)][3:]
    assert [one["reason"] for one in parked] == [TOO_LARGE.decode()] * 3
    assert "takes messages of 1,048,588" in parked[0]["detail"]
    assert unbalanced(counts_of(sales)) == []
    assert sales.run()["late"] == 0


def test_what_stays_parked_as_too_large_is_parked_to_verify_as_well(aside):
    sales = aside()
    sales.master("INSERT INTO goods VALUES (1, 'one'), (2, 'two')")
    topology = sales.topology
    sales.add(topology.parked, 1, reason=TOO_LARGE)
    sales.add(topology.parked, 2)
    begun = ends_of(sales.settings, topology)
    sales.add(topology.shed, 1, 2)
    sales.run()
    sales.add(topology.parked, 1, 2, reason=TOO_LARGE)
    sales.run()
    sales.add(topology.parked, 2)
    assert sales.keys_on(topology.enriched) == {1: 1, 2: 2}
    for begin, parked in ((None, 4), (begun, 3)):
        verdict = verify(sales.settings, sales.pipeline, topology, begin=begin)
        assert verdict.differences == []
        assert verdict.parked == parked


def test_strange_messages_are_passed_over_and_counted(aside):
    sales = aside()
    sales.master("INSERT INTO goods VALUES (1, 'one')")
    sales.add(sales.topology.shed, 1)
    sales.add(sales.topology.shed, 1, origin="somewhere/0/1")
    done = sales.run()
    assert (done["late"], done["strange"]) == (1, 1)


def test_events_of_another_key_are_refused_with_the_cure(aside):
    sales = aside()
    sales.add(sales.topology.shed, 1)
    fields = {"sale": "int", "product": "int"}
    changed = aside(source={"fields": fields, "partitions": 2}, key="product")
    with pytest.raises(ConfigError, match=r"with the file that .* had then"):
        changed.run()


def test_what_was_deleted_before_it_was_looked_at_is_told(aside):
    sales = aside()
    sales.master("INSERT INTO goods VALUES (1, 'one')")
    sales.add(sales.topology.shed, *[1] * 10)
    gone = TopicPartition(sales.topology.shed.name, 0, 4)
    admin = admin_of(sales.settings)
    for deletion in admin.delete_records([gone]).values():
        deletion.result(30)
    done = sales.run()
    assert (done["lost"], done["late"], done["of.shed"]) == (4, 6, 6)


def test_a_topic_that_was_made_anew_is_noticed(aside):
    sales = aside()
    sales.master("INSERT INTO goods VALUES (1, 'one')")
    sales.add(sales.topology.shed, 1)
    sales.run()
    shed = sales.topology.shed
    admin = admin_of(sales.settings)
    for deletion in admin.delete_topics([shed.name]).values():
        deletion.result(30)
    made_anew(sales.settings, shed)
    with pytest.raises(ConfigError, match=r"ends at 0, but 1 of it were looked at"):
        sales.run()


def made_anew(settings, topic):
    """Create a topic whose deletion may not have been heard of everywhere."""
    for _ in range(100):
        ensure_topics(settings, [topic])
        if ends(admin_of(settings), topic) == [0]:
            return
        time.sleep(0.1)
    pytest.fail(f"{topic.name} is not deleted")


def test_a_chain_is_refused_with_what_to_do(aside):
    then = [{"key": "sale", "master": {"table": "goods", "key": "id", "columns": {"name": "n"}}}]
    chain = aside(then=then)
    with pytest.raises(
        ConfigError, match=r"chain of 2 tables .* send the events of .*sales.unmatched"
    ):
        require_completable(chain.settings, chain.pipeline)
