"""The loop's steps over a real broker: how much goes into one, and who is given nothing."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager

import confluent_kafka
import pytest
from confluent_kafka import Producer

from dovetail.errors import Unavailable
from dovetail.settings import Settings
from dovetail.stream import rdkafka
from dovetail.stream.loop import Handler, Loop, Step
from dovetail.stream.offsets import CommittedOffsets
from dovetail.stream.rdkafka import Consumer, KafkaFailure
from dovetail.stream.rdkafka.errors import TIMED_OUT
from dovetail.stream.topics import admin_of, ends, ensure_topics
from dovetail.topology import Keeps, Stage, Topic

RECORDS = 40
AT_ONCE = 5


class Recorder(Handler):
    """Keeps what it is handed, by call."""

    def __init__(self, *, hungry=False):
        self.calls = []
        self.no_room = False
        self._hungry = hungry

    @property
    def hungry(self):
        return self._hungry

    @property
    def full(self):
        return self.no_room

    @property
    def seen(self):
        return [value for call in self.calls for value in call]

    def handle(self, records, _producer, _ledger):
        self.calls.append([records.value(row) for row in range(len(records))])


@pytest.fixture
def settings(bootstrap):
    return Settings(bootstrap, "postgresql://nowhere/none", "pipeline.yaml")


@pytest.fixture
def source(settings, kafka_namespace):
    topic = Topic(f"{kafka_namespace}source", 2)
    ensure_topics(settings, [topic])
    return topic


def send(settings, topic, values):
    producer = Producer(settings.client())
    for number, value in enumerate(values):
        producer.produce(topic.name, value, partition=number % topic.partitions)
    assert producer.flush(30) == 0


@contextmanager
def running(settings, source, handler, steps, writes=()):
    group = f"{source.name}.group"
    loop = Loop(
        Stage("test", source, writes),
        group,
        settings,
        handler,
        Step(max_records=AT_ONCE, max_bytes=1 << 20, linger_s=0.5),
        lambda _counts, _seconds: steps.append(len(handler.calls)),
    )
    thread = threading.Thread(target=loop.run)
    thread.start()
    try:
        yield CommittedOffsets(settings, group, source)
    finally:
        loop.stop()
        thread.join(30)
        assert not thread.is_alive()


def visible(settings, topic):
    """What whoever reads the committed messages of a topic finds."""
    consumer = confluent_kafka.Consumer(
        settings.client(
            {
                "group.id": f"{topic.name}.reader",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
            }
        )
    )
    numbers = range(topic.partitions)
    consumer.assign([confluent_kafka.TopicPartition(topic.name, number, 0) for number in numbers])
    found, left = [], set(numbers)
    while left:
        message = consumer.poll(30)
        assert message is not None, "the topic's end was not reached"
        if message.error() is None:
            found.append(message.value())
        else:
            left.discard(message.partition())
    consumer.close()
    return found


def await_(condition, what):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def committed(offsets):
    try:
        return sum(at.offset for at in offsets.read().values())
    except Unavailable:  # a broker that has just started has no coordinator yet
        return 0


@pytest.mark.parametrize("hungry", [True, False])
def test_who_takes_little_at_a_time_takes_several_times_in_a_step(settings, source, hungry):
    values = [b"%d" % number for number in range(RECORDS)]
    send(settings, source, values)
    handler, steps = Recorder(hungry=hungry), []
    with running(settings, source, handler, steps) as offsets:
        await_(lambda: committed(offsets) == RECORDS, "not everything was committed")
    assert sorted(handler.seen) == sorted(values)
    assert all(len(call) <= AT_ONCE for call in handler.calls)
    calls_a_step = [after - before for before, after in zip([0, *steps], steps, strict=False)]
    assert (max(calls_a_step) > 1) == hungry


def test_who_has_no_room_is_handed_nothing_and_everything_once_afterwards(settings, source):
    handler, steps = Recorder(), []
    with running(settings, source, handler, steps) as offsets:
        send(settings, source, [b"first", b"second"])
        await_(lambda: committed(offsets) == 2, "the first records were not committed")
        handler.no_room = True
        # What was on its way into a step when there was room still is handed over.
        turns = len(handler.calls) + 1
        values = [b"%d" % number for number in range(RECORDS)]
        send(settings, source, values)
        # Longer than it takes until the partitions are paused.
        time.sleep(2.5)
        assert len(handler.calls) <= turns
        handler.no_room = False
        await_(lambda: committed(offsets) == RECORDS + 2, "not everything was committed")
    assert sorted(handler.seen) == sorted([b"first", b"second", *values])


def test_a_transaction_that_was_never_ended_is_aborted_wherever_it_may_have_written(
    settings, source, kafka_namespace, monkeypatch
):
    output = Topic(f"{kafka_namespace}output", 3, Keeps.LATEST)
    ensure_topics(settings, [output])
    first, second = ([b"%d %d" % (run, number) for number in range(10)] for run in range(2))
    send(settings, source, first)
    with running(settings, source, Recorder(), []) as offsets:
        await_(lambda: committed(offsets) == len(first), "the first records were not committed")
        before = offsets.read()
    read, sent = Consumer.committed, []
    write = rdkafka.Producer.send_offsets
    pending = [KafkaFailure("reading", TIMED_OUT)]

    def unsettled(consumer, timeout_s=30):
        if pending:
            raise pending.pop()
        return read(consumer, timeout_s)

    def written(producer, topic, offsets, *rest):
        sent.append(offsets)
        return write(producer, topic, offsets, *rest)

    monkeypatch.setattr(Consumer, "committed", unsettled)
    monkeypatch.setattr(rdkafka.Producer, "send_offsets", written)
    send(settings, source, second)
    handler = Recorder()
    with running(settings, source, handler, [], (output,)) as offsets:
        await_(lambda: committed(offsets) == 2 * len(first), "the second were not committed")
    assert not pending
    # A record and the mark of its end on each; what was open there before is aborted with it.
    assert ends(admin_of(settings), output) == [2] * output.partitions
    assert visible(settings, output) == []
    assert sent[0] == {partition: (at.offset, at.text) for partition, at in before.items()}
    assert sorted(handler.seen) == sorted(second)
