"""What a service tells and hears beside its work goes on, whatever goes wrong once."""

from __future__ import annotations

import time
from pathlib import Path

from dovetail.contracts.control_pb2 import Command
from dovetail.service import heartbeat
from dovetail.service.heartbeat import Heart, Look
from dovetail.service.orders import Orders
from dovetail.settings import Settings

SETTINGS = Settings("127.0.0.1:1", "postgresql://host/base", Path("pipeline.yaml"))


def until(holds):
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_look_that_fails_is_not_the_last_heartbeat(monkeypatch):
    monkeypatch.setattr(heartbeat, "EVERY_S", 0.01)
    looks = []

    def look():
        looks.append(1)
        if len(looks) < 3:
            raise RuntimeError("dictionary changed size during iteration")
        return Look("", "", {})

    heart = Heart(SETTINGS, "sales", "ingest", look)
    assert not heart.ended  # it has not begun
    heart.start()
    until(lambda: len(looks) > 3)
    assert not heart.ended
    heart.stop()
    assert not heart.ended


class Topic:
    """In place of the consumer: gives these messages, then none."""

    def __init__(self, *values):
        self._values = list(values)

    def poll(self, _):
        if self._values:
            return Message(self._values.pop(0))
        time.sleep(0.01)
        return None

    def close(self):
        pass


class Message:
    def __init__(self, value):
        self.value = lambda: value
        self.error = lambda: None


def command(number):
    told = {"pipeline": "sales", "service": "ingest", "action": Command.ACTION_PAUSE}
    return Command(number=number, **told).SerializeToString()


def test_a_command_that_fails_is_heard_anew_when_it_comes_again():
    told = []

    def obey(command):
        told.append(command.number)
        if told == [5]:
            raise RuntimeError("once")

    orders = Orders(SETTINGS, "sales", "ingest")
    orders._consumer = Topic(command(5), command(5), command(6))
    orders.follow(obey)
    until(lambda: told == [5, 5, 6])
    assert orders.command.number == 6
    assert not orders.ended
    orders.stop()


def test_a_thread_that_has_ended_all_the_same_is_told():
    class Broken(Topic):
        def poll(self, _):
            raise SystemExit

    orders = Orders(SETTINGS, "sales", "ingest")
    orders._consumer = Broken()
    orders.follow(lambda _: None)
    until(lambda: orders.ended)
