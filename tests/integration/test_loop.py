"""The loop's steps over a real broker: how much goes into one, and who is given nothing."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

import confluent_kafka
import pytest
from confluent_kafka import Producer

from dovetail.errors import Unavailable
from dovetail.settings import Settings
from dovetail.stream import loop, rdkafka
from dovetail.stream.handler import Handler, Step
from dovetail.stream.loop import Loop
from dovetail.stream.offsets import CommittedOffsets
from dovetail.stream.rdkafka import KafkaFailure
from dovetail.stream.rdkafka.errors import TIMED_OUT
from dovetail.stream.topics import admin_of, ensure_topics, unstable
from dovetail.topology import Keeps, Stage, Topic
from tests.integration.hanging import hanging

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


def new_loop(settings, source, handler, steps, writes=(), linger_s=0.5, stage=None):
    return Loop(
        stage or Stage("test", source, writes),
        f"{source.name}.group",
        settings,
        handler,
        Step(max_records=AT_ONCE, max_bytes=1 << 20, linger_s=linger_s),
        lambda _counts, _seconds: steps.append(len(handler.calls)),
    )


@contextmanager
def running(settings, source, handler, steps, writes=(), stage=None, linger_s=0.5):
    loop = running.loop = new_loop(settings, source, handler, steps, writes, linger_s, stage)
    thread = threading.Thread(target=loop.run)
    thread.start()
    try:
        yield CommittedOffsets(settings, f"{source.name}.group", source)
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


@pytest.mark.parametrize("hungry", [True, False])
def test_an_idle_stage_commits_what_comes_however_long_its_steps_may_be(settings, source, hungry):
    handler, steps = Recorder(hungry=hungry), []
    with running(settings, source, handler, steps, linger_s=3600) as offsets:
        for count in range(1, 6):
            send(settings, source, [b"%d" % count])
            await_(lambda count=count: committed(offsets) == count, "it waits for more")
    assert steps == [1, 2, 3, 4, 5]


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


class Waiter(Recorder):
    """Holds what it is handed until something else is there, without work meanwhile."""

    waits = True

    def __init__(self):
        super().__init__()
        self.left = []

    def behind(self, records):
        self.left.append(records)


def test_who_waits_for_something_else_does_not_rest_and_is_told_what_is_left(settings, source):
    handler = Waiter()
    with running(settings, source, handler, []):
        loop = running.loop
        await_(lambda: len(loop.partitions) == 2, "it has no partitions")
        told = len(handler.left)
        await_(lambda: len(handler.left) > told + 3, "it makes no turns")
        assert not loop.resting
        handler.waits = False
        await_(lambda: loop.resting, "it does not rest")
        send(settings, source, [b"%d" % number for number in range(RECORDS)])
        await_(lambda: max(handler.left) > 0, "it is not told what is left to read")
        await_(lambda: len(handler.seen) == RECORDS, "not everything was read")
        await_(lambda: handler.left[-1] == 0, "nothing is left")


def test_a_member_of_the_group_without_a_partition_is_spare(settings, source):
    stage = Stage("test", source, (), per_node=True)
    loops = [
        new_loop(replace(settings, node=node), source, Recorder(), [], stage=stage)
        for node in range(source.partitions + 1)
    ]
    assert not any(loop.spare for loop in loops)
    threads = [threading.Thread(target=loop.run) for loop in loops]
    for thread in threads:
        thread.start()
    try:
        settled = [False] * source.partitions + [True]
        await_(lambda: sorted(loop.spare for loop in loops) == settled, "one has to be spare")
    finally:
        for loop, thread in zip(loops, threads, strict=True):
            loop.stop()
            thread.join(30)


class Copier(Recorder):
    """Sends what it is handed on, to one partition after the other."""

    def __init__(self, output):
        super().__init__()
        self._output = output

    def handle(self, records, producer, ledger):
        super().handle(records, producer, ledger)
        for number, value in enumerate(self.calls[-1]):
            producer.send(self._output.name, value, number % self._output.partitions, key=value)


@pytest.fixture
def output(settings, kafka_namespace):
    topic = Topic(f"{kafka_namespace}output", 3, Keeps.LATEST)
    ensure_topics(settings, [topic])
    return topic


def test_what_a_broker_forgot_to_end_is_not_made_visible_by_the_next_commit(
    settings, source, output, bootstrap
):
    with hanging(bootstrap, f"{source.name}.group.0") as forgotten:
        for partition in range(output.partitions):
            forgotten.send(output.name, partition, b"%d" % partition, b"forgotten")
    assert unstable(admin_of(settings), output) == [*range(output.partitions)]
    values = [b"%d" % number for number in range(RECORDS)]
    send(settings, source, values)
    with running(settings, source, Copier(output), [], (output,)) as offsets:
        await_(lambda: committed(offsets) == RECORDS, "not everything was committed")
    assert sorted(visible(settings, output)) == sorted(values)
    assert unstable(admin_of(settings), output) == []


def test_nor_by_the_same_producer_after_an_abort(settings, source, output, bootstrap):
    class Failing(Copier):
        def handle(self, records, producer, ledger):
            if not self.calls:
                self.calls.append([])
                with hanging(bootstrap, f"{source.name}.group.0", beside=True) as forgotten:
                    forgotten.send(output.name, 1, b"1", b"forgotten")
                raise Unavailable("the database is away")
            super().handle(records, producer, ledger)

    values = [b"%d" % number for number in range(RECORDS)]
    send(settings, source, values)
    with running(settings, source, Failing(output), [], (output,)) as offsets:
        await_(lambda: committed(offsets) == RECORDS, "not everything was committed")
    assert sorted(visible(settings, output)) == sorted(values)


@pytest.mark.parametrize("node", [0, 1])
def test_offsets_that_a_broker_forgot_to_end_are_ended_and_what_they_stood_for_is_read_again(
    settings, source, output, bootstrap, monkeypatch, node
):
    """Node 0's are its own, found at its start; node 1 never comes back."""
    monkeypatch.setattr(loop, "_UNSETTLED_S", 2.0)
    first, second = ([b"%d %d" % (run, number) for number in range(10)] for run in range(2))
    send(settings, source, first)
    with running(settings, source, Copier(output), [], (output,)) as offsets:
        await_(lambda: committed(offsets) == len(first), "the first records were not committed")
    group = f"{source.name}.group"
    send(settings, source, second)
    with hanging(bootstrap, f"{group}.{node}") as forgotten:
        for partition in range(source.partitions):
            forgotten.send_offset(group, source.name, partition, 10)
        forgotten.send(output.name, 0, b"0", b"forgotten")
    with running(settings, source, Copier(output), [], (output,)) as offsets:
        await_(lambda: committed(offsets) == 2 * len(first), "the second were not committed")
    assert sorted(visible(settings, output)) == sorted(first + second)


class Failing(Recorder):
    """Its first step ends with a transaction of which nobody knows what became."""

    def handle(self, records, producer, ledger):
        super().handle(records, producer, ledger)
        if len(self.calls) == 1:
            raise KafkaFailure("committing", TIMED_OUT)


@pytest.fixture
def away(monkeypatch):
    """A broker that does not answer for some calls; `answers` says whether it is there at all."""
    there = SimpleNamespace(calls=0, answers=False, looks=0, real=loop.producer_of)

    def producer_of(*args):
        if there.calls > 0:
            there.calls -= 1
            raise KafkaFailure("starting transactions", TIMED_OUT)
        return there.real(*args)

    def answers(*_):
        there.looks += 1
        return there.looks % 3 == 0

    monkeypatch.setattr(loop, "producer_of", producer_of)
    monkeypatch.setattr(loop, "answers", answers)
    monkeypatch.setattr(loop, "_ABSENT_S", 0.1)
    reaches = "reaches_a_broker"
    monkeypatch.setattr(rdkafka.Consumer, reaches, lambda *_: there.answers or not there.calls)
    monkeypatch.setattr(loop, "_PAUSES_S", (0.1,))
    return there


def test_a_broker_that_is_away_for_longer_than_any_call_waits_is_waited_for(settings, source, away):
    values = [b"%d" % number for number in range(RECORDS)]
    send(settings, source, values)
    steps, reasons = [], set()
    away.calls = 5  # at its start

    def goes_on():
        reasons.add(running.loop.reason)
        assert running.loop.still_s < 5
        return committed(offsets) == RECORDS

    with running(settings, source, Failing(), steps) as offsets:
        await_(goes_on, "not everything was committed")
    assert f"waiting for the Kafka broker at {settings.bootstrap}" in reasons
    assert not away.calls


def test_who_undoes_its_steps_for_ever_although_the_broker_is_there_makes_no_turn(
    settings, source, away
):
    class Endless(Failing):
        def handle(self, records, producer, ledger):
            away.calls = 1_000_000
            super().handle(records, producer, ledger)

    away.answers = True
    send(settings, source, [b"1"])
    with running(settings, source, Endless(), []):
        await_(lambda: "starting transactions" in running.loop.reason, "nothing was undone")
        await_(lambda: running.loop.still_s > 1, "it has made a turn")


def test_what_a_lost_node_left_open_is_ended_by_whoever_has_its_partitions_then(
    settings, source, output
):
    """Nobody waits until the broker ends it, which it does after half a minute."""
    group = f"{source.name}.group"
    stage = Stage("test", source, (output,), per_node=True)
    lost = confluent_kafka.Consumer(
        settings.client(
            {
                "group.id": group,
                "group.instance.id": f"{group}.1",
                "session.timeout.ms": 6_000,
                "partition.assignment.strategy": "cooperative-sticky",
            }
        )
    )
    lost.subscribe([source.name])
    open_one = rdkafka.Producer(settings.client({"transactional.id": f"{group}.1"}))
    open_one.init_transactions(30)
    with running(settings, source, Copier(output), [], stage=stage) as offsets:
        await_(lambda: lost.poll(0.1) or len(lost.assignment()) == 1, "it is no member")
        await_(lambda: len(running.loop.partitions) == 1, "it has not shared")
        open_one.begin()
        open_one.send(output.name, b"never", 0, key=b"never")
        open_one.flush(30)
        assert unstable(admin_of(settings), output) == [0]
        # Killed: a client that is closed leaves its static membership as it is.
        lost.close()
        send(settings, source, [b"1", b"2"])
        await_(lambda: committed(offsets) == 2, "its partitions are nobody's")
        assert unstable(admin_of(settings), output) == []
    open_one.close()
    assert sorted(visible(settings, output)) == [b"1", b"2"]


def test_who_is_replaced_in_the_middle_of_a_step_ends_and_takes_nothing_back(settings, source):
    """Another process has its name: its group's membership, and its transactional id."""
    group = f"{source.name}.group"
    name = f"{group}.0"
    identity = {"group.id": group, "group.instance.id": name}
    successor = confluent_kafka.Consumer(
        settings.client({**identity, "partition.assignment.strategy": "cooperative-sticky"})
    )
    producer = rdkafka.Producer(settings.client({"transactional.id": name}))

    class Replaced(Recorder):
        def handle(self, records, of_step, ledger):
            super().handle(records, of_step, ledger)
            successor.subscribe([source.name])
            await_(lambda: successor.poll(0.1) or successor.assignment(), "nobody took over")
            producer.init_transactions(30)
            # Until it has asked the broker, and knows.
            await_(lambda: loop._consumer.is_done, "it is a member still")

    send(settings, source, [b"1", b"2"])
    handler = Replaced(hungry=True)
    # It would take more for so long in one step.
    loop = new_loop(settings, source, handler, [], linger_s=60)
    with pytest.raises(KafkaFailure, match=r"FENCED|FATAL"):
        loop.run()
    assert len(handler.calls) == 1
    with producer:
        producer.begin()
        producer.send(source.name, b"3")
        producer.commit(30)
    successor.close()
