from __future__ import annotations

import ctypes
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from dovetail.stream.rdkafka import GroupMetadata, KafkaFailure, Producer, producer
from dovetail.stream.rdkafka.errors import StuckError
from dovetail.stream.rdkafka.library import find_library, library

if TYPE_CHECKING:
    from collections.abc import Callable

NOWHERE: dict[str, str | int | bool] = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}


class NoMember:
    """Stands for a group member's metadata, which a call that is never made does not read."""

    pointer = 0


class Stuck:
    """librdkafka, but for one call that does not come back before it is told to."""

    def __init__(self) -> None:
        self.called = threading.Event()
        self.may_end = threading.Event()
        self.may_destroy = threading.Event()
        self.may_destroy.set()
        self.destroyed: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(library(), name)

    def send_offsets_to_transaction(self, *_: object) -> None:
        self.called.set()
        self.may_end.wait()

    def destroy(self, client: int) -> None:
        self.destroyed.append(client)
        self.may_destroy.wait()
        library().destroy(client)


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch) -> Stuck:
    monkeypatch.setattr(producer, "_LATE_S", 0.05)
    return Stuck()


def await_(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def made(stuck: Stuck) -> Producer:
    client = Producer({**NOWHERE, "transactional.id": "stuck"})
    client._lib = stuck
    return client


def sends_in_vain(client: Producer) -> KafkaFailure:
    with pytest.raises(KafkaFailure, match="no answer yet") as raised:
        client.send_offsets("t", {0: (7, "")}, NoMember(), 0.05)
    return raised.value


def test_a_client_whose_offsets_are_not_sent_in_time_is_let_go_when_the_call_comes_back(stuck):
    client = made(stuck)
    failure = sends_in_vain(client)
    assert stuck.called.is_set()
    assert failure.fatal
    assert not failure.abortable
    handle = client._handle
    # Whoever is inside must not find the client gone.
    client.close()
    assert stuck.destroyed == []
    with pytest.raises(ValueError, match="closed"):
        client.begin()
    stuck.may_destroy.clear()
    stuck.may_end.set()
    await_(lambda: stuck.destroyed == [handle])
    # It is being destroyed, by another thread: to do so twice would end the process.
    client.close()
    stuck.may_destroy.set()
    assert stuck.destroyed == [handle]


def test_a_second_call_that_does_not_come_back_is_for_another_process_to_mend(stuck):
    clients = [made(stuck), made(stuck)]
    sends_in_vain(clients[0])
    with pytest.raises(StuckError):
        clients[1].send_offsets("t", {0: (7, "")}, NoMember(), 0.05)
    for client in clients:
        client.close()
    stuck.may_end.set()
    await_(lambda: len(stuck.destroyed) == len(clients))
    # What has come back is no longer counted.
    stuck.may_end.clear()
    client = made(stuck)
    sends_in_vain(client)
    client.close()
    stuck.may_end.set()
    await_(lambda: len(stuck.destroyed) == len(clients) + 1)


class Cluster:
    """The broker that librdkafka brings along for tests; it can be away."""

    def __init__(self, client: Producer) -> None:
        self._library = ctypes.CDLL(find_library())
        self._library.rd_kafka_handle_mock_cluster.restype = ctypes.c_void_p
        self._cluster = ctypes.c_void_p(
            self._library.rd_kafka_handle_mock_cluster(ctypes.c_void_p(client._handle))
        )

    def create(self, topic: bytes) -> None:
        assert not self._library.rd_kafka_mock_topic_create(self._cluster, topic, 1, 1)

    def set_down(self, broker: int) -> None:
        assert not self._library.rd_kafka_mock_broker_set_down(self._cluster, broker)

    def set_up(self, broker: int) -> None:
        assert not self._library.rd_kafka_mock_broker_set_up(self._cluster, broker)


def test_librdkafka_comes_back_when_the_broker_does_and_its_client_is_let_go(monkeypatch):
    monkeypatch.setattr(producer, "_LATE_S", 0.5)
    client = Producer(
        {
            "test.mock.num.brokers": 1,
            "transactional.id": "held",
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
        }
    )
    counted = Stuck()
    counted.send_offsets_to_transaction = library().send_offsets_to_transaction
    client._lib = counted
    cluster = Cluster(client)
    cluster.create(b"t")
    client.init_transactions(10)
    client.begin()
    client.send_offsets("t", {0: (7, "")}, GroupMetadata.of_group("g"), 10)
    cluster.set_down(1)
    with pytest.raises(KafkaFailure, match="no answer yet"):
        client.send_offsets("t", {0: (8, "")}, GroupMetadata.of_group("g"), 0.5)
    client.close()
    assert counted.destroyed == []
    cluster.set_up(1)
    await_(lambda: counted.destroyed)


def test_what_the_call_answers_is_raised_and_the_client_goes_on(stuck):
    with made(stuck) as client:
        stuck.may_end.set()
        client.send_offsets("t", {0: (7, "")}, NoMember(), 5)
        assert stuck.called.is_set()
    assert len(stuck.destroyed) == 1
    # And the real call: nothing is begun.
    with (
        Producer({**NOWHERE, "transactional.id": "calm"}) as client,
        pytest.raises(KafkaFailure, match="sending offsets of t") as raised,
    ):
        client.send_offsets("t", {0: (7, "")}, NoMember(), 5)
    assert "came back" not in str(raised.value)
