from __future__ import annotations

import threading
from typing import Any

import pytest

from dovetail.stream.rdkafka import KafkaFailure, Producer, producer
from dovetail.stream.rdkafka.library import library

NOWHERE: dict[str, str | int | bool] = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}


class NoMember:
    """Stands for a group member's metadata, which a call that is never made does not read."""

    pointer = 0


class Stuck:
    """librdkafka, but for one call that does not come back before it is told to."""

    def __init__(self) -> None:
        self.called = threading.Event()
        self.may_end = threading.Event()
        self.destroyed: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(library(), name)

    def send_offsets_to_transaction(self, *_: object) -> None:
        self.called.set()
        self.may_end.wait()

    def destroy(self, client: int) -> None:
        self.destroyed.append(client)
        library().destroy(client)


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch) -> Stuck:
    monkeypatch.setattr(producer, "_LATE_S", 0.05)
    return Stuck()


def made(stuck: Stuck) -> Producer:
    client = Producer({**NOWHERE, "transactional.id": "stuck"})
    client._lib = stuck
    return client


def test_offsets_that_are_never_sent_are_a_fatal_failure_and_the_client_is_left_alone(stuck):
    client = made(stuck)
    with pytest.raises(KafkaFailure, match="never came back") as raised:
        client.send_offsets("t", {0: (7, "")}, NoMember(), 0.05)
    assert stuck.called.is_set()
    assert raised.value.fatal
    assert not raised.value.abortable
    # Whoever is inside must not find the client gone.
    client.close()
    assert stuck.destroyed == []
    with pytest.raises(ValueError, match="closed"):
        client.begin()
    stuck.may_end.set()


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
