"""Requests by HTTP on their way to a real broker: all of one or nothing, and each once."""

from __future__ import annotations

import json
import time
from concurrent.futures import wait
from contextlib import contextmanager

import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from dovetail.errors import Unavailable
from dovetail.join.columns import Column
from dovetail.pipeline.spec import Pipeline
from dovetail.settings import Settings
from dovetail.stream import takeover
from dovetail.stream.topics import ensure_topics
from dovetail.topology import Topology
from dovetail.verify import read_all
from services.ingest.inbox import Delivery, Inbox, Receipt, RefusedError, ReusedKeyError
from services.ingest.markers import marker_key

PATIENCE_S = 60


class Door:
    """One pipeline's topics, and inboxes in front of them."""

    def __init__(self, bootstrap, name):
        self.topology = Topology(
            Pipeline.model_validate(
                {
                    "name": name,
                    "source": {"partitions": 2, "fields": {"id": "int", "n": "int?"}},
                    "key": "id",
                    "master": {"table": "goods", "key": "id"},
                    "join": "semi",
                }
            )
        )
        self.settings = Settings(bootstrap, "postgresql://nowhere/none", "pipeline.yaml")
        ensure_topics(self.settings, [self.topology.source, self.topology.requests])

    @contextmanager
    def inbox(self):
        failures = []
        inbox = Inbox(self.settings, self.topology)
        inbox.start(failures.append)
        try:
            yield inbox
        finally:
            inbox.stop()
            assert failures == []

    def sent(self):
        """Every committed event, whatever its partition."""
        found = [message.value() for message in read_all(self.settings, self.topology.source)]
        return sorted(found)

    def markers(self):
        return [message.key() for message in read_all(self.settings, self.topology.requests)]


@pytest.fixture
def door(bootstrap, kafka_namespace):
    return Door(bootstrap, f"{kafka_namespace}door")


def delivery(key, *events, digest=b"d"):
    return Delivery(key, digest, Column.of(events))


def given_in(inbox, sent):
    """Give it in as soon as the inbox takes any."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            inbox.deliver(sent)
        except Unavailable:
            assert time.monotonic() < deadline, inbox.reason
            time.sleep(0.05)
        else:
            return sent.receipt


def receipt(inbox, *arguments, **options):
    return given_in(inbox, delivery(*arguments, **options)).result(PATIENCE_S)


def test_a_key_is_answered_as_the_first_time_and_nothing_is_sent_twice(door):
    with door.inbox() as inbox:
        first = receipt(inbox, b"k", b"1", b"2")
        assert (first.accepted, first.repeated) == (2, False)
        assert receipt(inbox, b"k", b"1", b"2") == Receipt(2, first.partitions, repeated=True)
        with pytest.raises(ReusedKeyError):
            receipt(inbox, b"k", b"1", digest=b"another")
        receipt(inbox, b"other", b"3")
        receipt(inbox, b"", b"4")
        receipt(inbox, b"", b"4")
    assert door.sent() == [b"1", b"2", b"3", b"4", b"4"]
    assert door.markers() == [b"k", b"other"]


def test_keys_are_known_after_a_restart(door):
    with door.inbox() as inbox:
        first = receipt(inbox, b"k", b"1")
    with door.inbox() as inbox:
        assert receipt(inbox, b"k", b"1") == Receipt(1, first.partitions, repeated=True)
        with pytest.raises(ReusedKeyError):
            receipt(inbox, b"k", b"1", digest=b"another")
        assert not receipt(inbox, b"new", b"2").repeated
    assert door.sent() == [b"1", b"2"]


def test_two_senders_with_one_key_and_equal_bodies_are_both_sent(door):
    one, other = marker_key(4, b"0001"), marker_key(5, b"0001")
    with door.inbox() as inbox:
        assert not receipt(inbox, one, b"1").repeated
        assert not receipt(inbox, other, b"1").repeated
        assert receipt(inbox, one, b"1").repeated
    with door.inbox() as inbox:
        assert receipt(inbox, other, b"1").repeated
    assert door.sent() == [b"1", b"1"]


def test_what_an_earlier_release_answered_is_not_sent_again(door):
    with door.inbox() as inbox:
        receipt(inbox, b"0001", b"1")  # that is how its markers were called
    with door.inbox() as inbox:
        assert receipt(inbox, marker_key(4, b"0001"), b"1").repeated
        # Nobody knows whose it was, and a body of one's own is one's own.
        assert not receipt(inbox, marker_key(5, b"0001"), b"2", digest=b"another").repeated
    assert door.sent() == [b"1", b"2"]


def test_the_events_of_a_key_keep_the_order_in_which_their_requests_came(door):
    keys = range(6)
    with door.inbox() as inbox:
        for number in range(5):
            events = [b'{"id": %d, "n": %d}' % (key, number) for key in keys]
            given = receipt(inbox, b"", *events, b"no JSON")
            assert given.partitions == [0, 1]
    found = {}
    for message in read_all(door.settings, door.topology.source):
        if message.value() != b"no JSON":
            event = json.loads(message.value())
            place = (message.partition(), message.offset())
            found.setdefault(event["id"], []).append((*place, event["n"]))
    assert sorted(found) == list(keys)
    for places in found.values():
        assert len({partition for partition, _, _ in places}) == 1
        assert [number for _, _, number in sorted(places)] == list(range(5))


def test_requests_that_come_together_are_answered_each_for_itself(door):
    with door.inbox() as inbox:
        given_in(inbox, delivery(b"", b"0")).result(PATIENCE_S)
        deliveries = [delivery(b"k%d" % (number % 20), b"%d" % number) for number in range(60)]
        for one in deliveries:
            inbox.deliver(one)
        done, undone = wait([one.receipt for one in deliveries], PATIENCE_S)
        assert not undone
        # Whichever of a key came first was sent, the other two repeat it.
        assert sum(not one.result().repeated for one in done) == 20
    assert len(door.sent()) == 21
    assert sorted(door.markers()) == sorted({b"k%d" % number for number in range(20)})


def test_another_process_takes_over_and_both_together_send_everything_once(door):
    with door.inbox() as first:
        receipt(first, b"a", b"1")
        with door.inbox() as second:
            assert receipt(second, b"a", b"1").repeated
            receipt(second, b"b", b"2")
            # The first finds out with its next request, which is not sent, and takes over again.
            with pytest.raises(Unavailable):
                receipt(first, b"c", b"3")
            assert receipt(first, b"b", b"2").repeated
            assert not receipt(first, b"c", b"3").repeated
            # The second finds out, too, and that the first has sent it.
            assert receipt(second, b"c", b"3").repeated
    assert door.sent() == [b"1", b"2", b"3"]


def test_an_event_that_the_broker_refuses_holds_up_nobody_else(door, bootstrap):
    admin = AdminClient({"bootstrap.servers": bootstrap})
    limit = ConfigResource(
        ResourceType.TOPIC,
        door.topology.source.name,
        incremental_configs=[
            ConfigEntry("max.message.bytes", "2000", incremental_operation=AlterConfigOpType.SET)
        ],
    )
    for change in admin.incremental_alter_configs([limit]).values():
        change.result(PATIENCE_S)
    with door.inbox() as inbox:
        receipt(inbox, b"", b"0")
        large = bytes(range(32, 127)) * 50
        deliveries = [
            *(delivery(b"a", b"1"), delivery(b"b", large), delivery(b"c", b"2")),
            *(delivery(b"", b"3"), delivery(b"", large)),
        ]
        for one in deliveries:
            given_in(inbox, one)
        answers = [one.receipt.exception(PATIENCE_S) for one in deliveries]
        assert [type(answer) for answer in answers] == [
            *(type(None), RefusedError, type(None), type(None), RefusedError)
        ]
        assert receipt(inbox, b"c", b"2").repeated
    assert door.sent() == [b"0", b"1", b"2", b"3"]
    assert sorted(door.markers()) == [b"a", b"c"]


def test_without_a_broker_it_says_so_at_once(door, monkeypatch):
    monkeypatch.setattr(takeover, "_TIMEOUT_S", 1.0)  # stop() waits for it
    nowhere = Settings("127.0.0.1:1", door.settings.database_url, door.settings.pipeline)
    inbox = Inbox(nowhere, door.topology)
    failures = []
    inbox.start(failures.append)
    try:
        with pytest.raises(Unavailable):
            inbox.deliver(delivery(b"k", b"1"))
    finally:
        inbox.stop()
    assert failures == []
