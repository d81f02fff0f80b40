"""The columnar Kafka clients against a real broker, with confluent-kafka on the other side."""

from __future__ import annotations

import os
import time
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING

import confluent_kafka
import numpy as np
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from dovetail.stream.rdkafka import Consumer, KafkaFailure, Producer, Records

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

PATIENCE_S = 30.0
TIMEOUT_S = 20.0


@pytest.fixture
def new_topic(bootstrap: str) -> Iterator[Callable[..., str]]:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    made: list[str] = []

    def new(partitions: int = 1, **config: str) -> str:
        name = f"rdkafka-test-{uuid.uuid4().hex}"
        settings = {key.replace("_", "."): value for key, value in config.items()}
        admin.create_topics([NewTopic(name, partitions, 1, config=settings)])[name].result(30)
        made.append(name)
        return name

    yield new
    for deleted in admin.delete_topics(made).values():
        deleted.result(30)


@pytest.fixture
def topic(new_topic: Callable[..., str]) -> str:
    return new_topic()


class Group:
    """Opens consumers of one group and remembers what their callbacks were told."""

    def __init__(self, bootstrap: str, topic: str, **config: str) -> None:
        self._topic = topic
        self._config: dict[str, str | int | bool] = {
            "bootstrap.servers": bootstrap,
            "group.id": uuid.uuid4().hex,
            "auto.offset.reset": "earliest",
            **{key.replace("_", "."): value for key, value in config.items()},
        }
        self.told: dict[str, list[tuple[str, list[int]]]] = {}

    @contextmanager
    def member(self, name: str = "member") -> Iterator[Consumer]:
        told = self.told.setdefault(name, [])
        with Consumer(
            self._config,
            self._topic,
            lambda partitions: told.append(("assign", partitions)),
            lambda partitions: told.append(("revoke", partitions)),
        ) as consumer:
            yield consumer


def eventually(done: Callable[[], bool], *consumers: Consumer) -> None:
    """Keep the consumers polling until it is done; they must have nothing to read."""
    deadline = time.monotonic() + PATIENCE_S
    while not done():
        assert time.monotonic() < deadline, "it did not happen in time"
        for consumer in consumers:
            assert not len(consumer.consume(100, 0.05))


def read(consumer: Consumer, count: int, **limits: int) -> list[Records]:
    """Batches that together have at least so many records."""
    batches: list[Records] = []
    deadline = time.monotonic() + PATIENCE_S
    while sum(map(len, batches)) < count:
        assert time.monotonic() < deadline, f"only {sum(map(len, batches))} of {count} came"
        batch = consumer.consume(
            limits.get("max_records", 1000), 0.2, limits.get("max_bytes", 1 << 20)
        )
        if len(batch):
            batches.append(batch)
    return batches


def values(batches: Sequence[Records]) -> list[bytes | None]:
    return [batch.value(row) for batch in batches for row in range(len(batch))]


def column(rows: Sequence[bytes]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    ends = np.cumsum([0, *map(len, rows)])
    return np.frombuffer(b"".join(rows), np.uint8), ends.astype(np.int64)


def confluent_messages(bootstrap: str, topic: str, count: int) -> list[confluent_kafka.Message]:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": uuid.uuid4().hex,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    found: list[confluent_kafka.Message] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < count and time.monotonic() < deadline:
        found += consumer.consume(count, 0.5)
    consumer.close()
    assert len(found) == count
    return found


def send_all(bootstrap: str, topic: str, rows: Sequence[bytes], partition: int = 0) -> None:
    with Producer({"bootstrap.servers": bootstrap}) as producer:
        producer.send_many(topic, partition, *column(rows))
        producer.flush(TIMEOUT_S)


@contextmanager
def transactional(bootstrap: str, name: str = "") -> Iterator[Producer]:
    config = {"bootstrap.servers": bootstrap, "transactional.id": name or uuid.uuid4().hex}
    with Producer(config) as producer:
        producer.init_transactions(TIMEOUT_S)
        yield producer


def send_until_committed(producer: Producer, topic: str, value: bytes) -> None:
    """The loop that every transaction needs.

    Where the broker refused a message, librdkafka's next sequence number has a gap: that
    transaction fails too, and only its abort renews the producer's epoch.
    """
    for _ in range(3):
        try:
            producer.begin()
            producer.send(topic, value, 0)
            return producer.commit()
        except KafkaFailure as failure:
            if not failure.abortable:
                raise
            producer.abort()
    raise AssertionError("three aborts did not mend it")


# ── values there and back ────────────────────────────────────────────────────────────────


def test_messages_of_confluent_kafka_come_as_columns(
    bootstrap: str, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(2)
    writer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    sent = [(b"one", 0, 1_700_000_000_000), (b"", 0, 5), (None, 0, 6), (b"\0" * 5000, 1, 7)]
    for value, partition, timestamp in sent:
        writer.produce(topic, value, partition=partition, timestamp=timestamp)
    writer.flush()
    with Group(bootstrap, topic).member() as consumer:
        batches = read(consumer, 4)
    rows = {
        (int(batch.partitions[row]), int(batch.offsets[row])): (
            batch.value(row),
            int(batch.timestamps[row]),
        )
        for batch in batches
        for row in range(len(batch))
    }
    assert rows == {
        (0, 0): (b"one", 1_700_000_000_000),
        (0, 1): (b"", 5),
        (0, 2): (None, 6),
        (1, 0): (b"\0" * 5000, 7),
    }


def test_confluent_kafka_reads_what_send_many_wrote(
    bootstrap: str, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(3)
    with Producer({"bootstrap.servers": bootstrap}) as producer:
        producer.send_many(
            topic,
            np.array([0, 1, 2, 2], np.int32),
            *column([b"a", b"", b"ccc", b"dropped"]),
            keys=column([b"k0", b"", b"k2", b"k3"]),
            headers=[
                (b"fixed", b"same"),
                (b"own", column([b"x", b"yy", b"", b"z"])),
                (b"empty", b""),
            ],
            tombstones=np.array([False, False, False, True]),
        )
        producer.flush(TIMEOUT_S)
    found = {
        (m.partition(), m.offset()): (m.key(), m.value(), m.headers())
        for m in confluent_messages(bootstrap, topic, 4)
    }

    def headers(own: bytes) -> list[tuple[str, bytes]]:
        return [("fixed", b"same"), ("own", own), ("empty", b"")]

    assert found == {
        (0, 0): (b"k0", b"a", headers(b"x")),
        (1, 0): (b"", b"", headers(b"yy")),
        (2, 0): (b"k2", b"ccc", headers(b"")),
        (2, 1): (b"k3", None, headers(b"z")),
    }


def test_single_messages_keep_null_apart_from_empty(bootstrap: str, topic: str) -> None:
    with Producer({"bootstrap.servers": bootstrap}) as producer:
        producer.send(topic, b"value", 0, b"key", [(b"name", b"header")])
        producer.send(topic, b"", key=b"")
        producer.send(topic, None)
        producer.flush(TIMEOUT_S)
    found = [(m.key(), m.value(), m.headers()) for m in confluent_messages(bootstrap, topic, 3)]
    assert found == [
        (b"key", b"value", [("name", b"header")]),
        (b"", b"", None),
        (None, None, None),
    ]


def test_messages_without_a_partition_are_spread_by_key_as_confluent_kafka_does(
    bootstrap: str, new_topic: Callable[..., str]
) -> None:
    ours, theirs = new_topic(4), new_topic(4)
    keys = [str(number).encode() for number in range(50)]
    with Producer({"bootstrap.servers": bootstrap}) as producer:
        producer.send_many(ours, -1, *column(keys), keys=column(keys))
        producer.flush(TIMEOUT_S)
    writer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    for key in keys:
        writer.produce(theirs, key, key)
    writer.flush()
    spread = [
        {m.key(): m.partition() for m in confluent_messages(bootstrap, topic, 50)}
        for topic in (ours, theirs)
    ]
    assert spread[0] == spread[1]
    assert len(set(spread[0].values())) > 1


def test_a_full_queue_is_waited_out_and_every_row_is_sent_once(bootstrap: str, topic: str) -> None:
    rows = [str(number).encode() for number in range(5000)]
    with Producer(
        {"bootstrap.servers": bootstrap, "queue.buffering.max.messages": 64, "linger.ms": 0}
    ) as producer:
        producer.send_many(topic, 0, *column(rows))
        producer.flush(TIMEOUT_S)
    with Group(bootstrap, topic).member() as consumer:
        assert values(read(consumer, 5000)) == rows


def test_a_slice_of_a_larger_batch_is_sent_from_its_own_bounds(bootstrap: str, topic: str) -> None:
    data, bounds = column([b"zero", b"one", b"two", b"three"])
    with Producer({"bootstrap.servers": bootstrap}) as producer:
        producer.send_many(topic, 0, data, bounds[1:4])
        producer.flush(TIMEOUT_S)
    with Group(bootstrap, topic).member() as consumer:
        assert values(read(consumer, 2)) == [b"one", b"two"]


# ── reading in portions ──────────────────────────────────────────────────────────────────


def test_a_batch_keeps_to_its_bytes_and_loses_nothing(bootstrap: str, topic: str) -> None:
    rows = [bytes([number]) * 2000 for number in range(12)]
    send_all(bootstrap, topic, rows)
    with Group(bootstrap, topic).member() as consumer:
        batches = read(consumer, 12, max_bytes=4500)
    assert max(len(batch.data) for batch in batches) <= 4500
    assert values(batches) == rows


def test_a_value_larger_than_the_limit_comes_alone(bootstrap: str, topic: str) -> None:
    send_all(bootstrap, topic, [b"x" * 9000, b"y", b"z"])
    with Group(bootstrap, topic).member() as consumer:
        batches = read(consumer, 3, max_bytes=4000)
    assert len(batches[0]) == 1
    assert values(batches) == [b"x" * 9000, b"y", b"z"]


def test_what_was_fetched_but_not_returned_is_not_counted_as_read(
    bootstrap: str, topic: str
) -> None:
    send_all(bootstrap, topic, [b"x" * 2000] * 6)
    with Group(bootstrap, topic).member() as consumer:
        for read_so_far in range(1, 7):
            (batch,) = read(consumer, 1, max_bytes=2500)
            assert len(batch) == 1
            assert consumer.positions() == {0: read_so_far}
            assert consumer.lag() == {0: 6 - read_so_far}


def test_a_member_that_has_no_partitions_yet_has_nothing_to_rewind(
    bootstrap: str, topic: str
) -> None:
    send_all(bootstrap, topic, [b"a"])
    with Group(bootstrap, topic).member() as consumer:
        assert consumer.rewind(consumer.committed())
        assert values(read(consumer, 1)) == [b"a"]


def test_rewinding_without_a_commit_reads_from_the_start(bootstrap: str, topic: str) -> None:
    rows = [bytes([number]) * 2000 for number in range(20)]
    send_all(bootstrap, topic, rows)
    with Group(bootstrap, topic).member() as consumer:
        read(consumer, 1, max_bytes=8000)
        consumer.rewind(consumer.committed())
        assert consumer.positions() == {}
        assert values(read(consumer, 20)) == rows
        assert consumer.positions() == {0: 20}


def test_a_consumer_leaves_with_records_still_unreturned(bootstrap: str, topic: str) -> None:
    send_all(bootstrap, topic, [b"x" * 2000] * 20)
    group = Group(bootstrap, topic)
    with group.member() as consumer:
        read(consumer, 1, max_bytes=8000)
        assert len(consumer._held)
    assert group.told["member"] == [("assign", [0]), ("revoke", [0])]


def test_a_paused_partition_rests_until_it_is_resumed(
    bootstrap: str, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(2)
    group = Group(bootstrap, topic)
    with group.member() as consumer:
        eventually(lambda: consumer.assignment() == [0, 1], consumer)
        consumer.pause([0])
        send_all(bootstrap, topic, [b"paused"], 0)
        send_all(bootstrap, topic, [b"flowing"], 1)
        assert values(read(consumer, 1)) == [b"flowing"]
        assert not len(consumer.consume(10, 0.3))
        consumer.resume([0])
        assert values(read(consumer, 1)) == [b"paused"]


# ── transactions ─────────────────────────────────────────────────────────────────────────


def test_offsets_and_their_metadata_are_committed_with_the_messages(
    bootstrap: str, new_topic: Callable[..., str]
) -> None:
    source, target = new_topic(2), new_topic()
    send_all(bootstrap, source, [b"a", b"b", b"c"], 0)
    send_all(bootstrap, source, [b"d"], 1)
    group = Group(bootstrap, source)
    with group.member() as consumer, transactional(bootstrap) as producer:
        batches = read(consumer, 4)
        producer.begin()
        for batch in batches:
            producer.send_many(target, 0, batch.data, batch.bounds)
        offsets = {p: (offset, f"näher {p}") for p, offset in consumer.positions().items()}
        producer.send_offsets(source, offsets, consumer.group_metadata(), TIMEOUT_S)
        producer.commit()
        assert consumer.committed() == {0: (3, "näher 0"), 1: (1, "näher 1")}
    written = {m.value() for m in confluent_messages(bootstrap, target, 4)}
    assert written == {b"a", b"b", b"c", b"d"}
    send_all(bootstrap, source, [b"later"], 1)
    with group.member() as successor:
        assert values(read(successor, 1)) == [b"later"]


def test_rewinding_reads_again_from_the_committed_offset(
    bootstrap: str, new_topic: Callable[..., str]
) -> None:
    source = new_topic()
    send_all(bootstrap, source, [b"0", b"1", b"2", b"3", b"4"])
    with Group(bootstrap, source).member() as consumer, transactional(bootstrap) as producer:
        read(consumer, 5, max_records=2)
        producer.begin()
        producer.send_offsets(source, {0: (3, "")}, consumer.group_metadata(), TIMEOUT_S)
        producer.commit()
        consumer.rewind(consumer.committed())
        assert consumer.lag() == {0: 2}
        (batch,) = read(consumer, 1, max_records=1)
        assert values([batch]) == [b"3"]
        assert consumer.positions() == {0: 4}
        assert values(read(consumer, 1)) == [b"4"]


def test_an_aborted_transaction_is_invisible_and_stepped_over(bootstrap: str, topic: str) -> None:
    with transactional(bootstrap) as producer:
        producer.begin()
        producer.send_many(topic, 0, *column([b"never", b"seen"]))
        producer.flush(TIMEOUT_S)
        producer.abort()
        producer.begin()
        producer.send(topic, b"seen", 0)
        producer.commit()
    with Group(bootstrap, topic).member() as consumer:
        batches = read(consumer, 1)
        assert values(batches) == [b"seen"]
        # two aborted, their marker, one committed, its marker
        eventually(lambda: consumer.positions() == {0: 5}, consumer)
        assert consumer.lag() == {0: 0}


def test_a_fenced_producer_fails_for_good(bootstrap: str, topic: str) -> None:
    name = uuid.uuid4().hex
    with transactional(bootstrap, name) as old:
        old.begin()
        old.send(topic, b"from the old one", 0)
        old.flush(TIMEOUT_S)
        with transactional(bootstrap, name), pytest.raises(KafkaFailure) as caught:
            old.commit()
    assert (caught.value.fatal, caught.value.fenced) == (True, True)


def test_a_refused_message_fails_the_commit_and_an_abort_mends_it(
    bootstrap: str, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(max_message_bytes="1000")
    with transactional(bootstrap) as producer:
        producer.begin()
        producer.send(topic, os.urandom(5000), 0)
        with pytest.raises(KafkaFailure) as caught:
            producer.commit()
        assert (caught.value.abortable, caught.value.fatal) == (True, False)
        producer.abort()
        send_until_committed(producer, topic, b"small")
    with Group(bootstrap, topic).member() as consumer:
        assert values(read(consumer, 1)) == [b"small"]


def test_a_refused_message_fails_the_flush_of_a_plain_producer(
    bootstrap: str, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(max_message_bytes="1000")
    with Producer({"bootstrap.servers": bootstrap}) as producer:
        producer.send(topic, os.urandom(5000), 0)
        with pytest.raises(KafkaFailure, match="1 messages were not delivered") as caught:
            producer.flush(TIMEOUT_S)
    assert caught.value.name == "MSG_SIZE_TOO_LARGE"


def test_a_row_the_client_refuses_is_named(bootstrap: str, topic: str) -> None:
    with Producer({"bootstrap.servers": bootstrap, "message.max.bytes": 1000}) as producer:
        with pytest.raises(KafkaFailure, match="row 1 to"):
            producer.send_many(topic, 0, *column([b"fits", b"x" * 2000, b"after"]))
        producer.flush(TIMEOUT_S)
    with Group(bootstrap, topic).member() as consumer:
        assert values(read(consumer, 1)) == [b"fits"]


# ── the group ────────────────────────────────────────────────────────────────────────────


def test_an_eager_group_hands_over_everything_and_shares_it_anew(
    bootstrap: str, new_topic: Callable[..., str]
) -> None:
    group = Group(bootstrap, new_topic(4), partition_assignment_strategy="range")
    with group.member("first") as first:
        eventually(lambda: first.assignment() == [0, 1, 2, 3], first)
        with group.member("second") as second:
            eventually(lambda: len(second.assignment()) == 2, first, second)
            eventually(lambda: len(first.assignment()) == 2, first, second)
            assert sorted(first.assignment() + second.assignment()) == [0, 1, 2, 3]
        eventually(lambda: len(first.assignment()) == 4, first)
    shared = [partitions for event, partitions in group.told["first"] if len(partitions) == 2]
    assert group.told["first"] == [
        ("assign", [0, 1, 2, 3]),
        ("revoke", [0, 1, 2, 3]),
        ("assign", shared[0]),
        ("revoke", shared[0]),
        ("assign", [0, 1, 2, 3]),
        ("revoke", [0, 1, 2, 3]),
    ]


def test_a_cooperative_group_moves_only_what_changes_hands(
    bootstrap: str, new_topic: Callable[..., str]
) -> None:
    group = Group(bootstrap, new_topic(4), partition_assignment_strategy="cooperative-sticky")
    with group.member("first") as first:
        eventually(lambda: first.assignment() == [0, 1, 2, 3], first)
        with group.member("second") as second:
            eventually(lambda: len(second.assignment()) == 2, first, second)
            moved = second.assignment()
            assert sorted(first.assignment() + moved) == [0, 1, 2, 3]
        eventually(lambda: len(first.assignment()) == 4, first)
    told = [(event, partitions) for event, partitions in group.told["first"] if partitions]
    assert told == [
        ("assign", [0, 1, 2, 3]),
        ("revoke", moved),
        ("assign", moved),
        ("revoke", [0, 1, 2, 3]),
    ]


def test_a_partition_that_comes_back_is_read_from_its_committed_offset(
    bootstrap: str, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(2)
    for partition in (0, 1):
        send_all(bootstrap, topic, [b"0", b"1", b"2"], partition)
    group = Group(bootstrap, topic, partition_assignment_strategy="cooperative-sticky")
    with group.member("first") as first, transactional(bootstrap) as producer:
        read(first, 6)
        offsets = {0: (1, ""), 1: (1, "")}
        producer.begin()
        producer.send_offsets(topic, offsets, first.group_metadata(), TIMEOUT_S)
        producer.commit()
        with group.member("second") as second:
            while not (moved := second.assignment()):
                second.consume(1, 0.05)
                assert not len(first.consume(10, 0.05))
            assert moved[0] not in first.positions()
        for offset in (1, 2):
            (batch,) = read(first, 1, max_records=1)
            assert (batch.partitions.tolist(), batch.offsets.tolist()) == (moved, [offset])
            assert first.positions() == {moved[0]: offset + 1, 1 - moved[0]: 3}


def test_what_a_callback_raises_comes_out_of_consume_and_no_record_is_lost(
    bootstrap: str, topic: str
) -> None:
    send_all(bootstrap, topic, [b"a", b"b"])

    def refuse(_partitions: list[int]) -> None:
        raise LookupError("not mine")

    config = {
        "bootstrap.servers": bootstrap,
        "group.id": uuid.uuid4().hex,
        "auto.offset.reset": "earliest",
    }
    with Consumer(config, topic, refuse, lambda _: None) as consumer:
        with pytest.raises(LookupError, match="not mine"):
            read(consumer, 1)
        assert values(read(consumer, 2)) == [b"a", b"b"]


def test_what_a_callback_raises_while_closing_comes_out_of_close(
    bootstrap: str, topic: str
) -> None:
    def refuse(_partitions: list[int]) -> None:
        raise LookupError("not yet")

    config = {"bootstrap.servers": bootstrap, "group.id": uuid.uuid4().hex}
    consumer = Consumer(config, topic, lambda _: None, refuse)
    eventually(lambda: consumer.assignment() == [0], consumer)
    with pytest.raises(LookupError, match="not yet"):
        consumer.close()


def test_a_partition_without_an_offset_to_start_from_is_astray_until_it_is_rewound(
    bootstrap: str, topic: str
) -> None:
    send_all(bootstrap, topic, [b"a", b"b"])
    with Group(bootstrap, topic, auto_offset_reset="error").member() as consumer:
        eventually(lambda: consumer.astray == {0}, consumer)
        assert consumer.rewind(consumer.committed())
        assert not consumer.astray
        assert values(read(consumer, 2)) == [b"a", b"b"]
