"""How others are asked by HTTP: within a time, by connections that stay open."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import contextmanager

import pytest

from dovetail.web import Asker, NoAnswerError

WITHIN_S = 0.5
PAUSE_S = 0.05
BYTES = 200
"""So many times the pause are far more than the time to answer in."""


@contextmanager
def listening(answer):
    """A server on a port of its own, which lets `answer` have each of its connections."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            while True:
                try:
                    connection = server.accept()[0]
                except OSError:  # it is closed
                    return
                threading.Thread(target=answered, args=(connection,), daemon=True).start()

        def answered(connection):
            with connection:
                try:
                    answer(connection)
                except OSError:
                    return  # who asked has gone

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)


def asker(origin, within_s=WITHIN_S):
    return Asker(origin, {}, within_s=within_s, most_bytes=1 << 20)


def trickled(connection, text):
    for place in range(len(text)):
        connection.sendall(text[place : place + 1])
        time.sleep(PAUSE_S)


HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n"


def slow_status(connection):
    connection.recv(65536)
    trickled(connection, b"HTTP/1.1 200 " + b"O" * BYTES)
    connection.sendall(b"\r\nContent-Length: 0\r\n\r\n")


def slow_header(connection):
    connection.recv(65536)
    connection.sendall(HEAD % 0 + b"X-Slow: ")
    trickled(connection, b"x" * BYTES)
    connection.sendall(b"\r\n\r\n")


def slow_body(connection):
    connection.recv(65536)
    connection.sendall(HEAD % BYTES + b"\r\n")
    trickled(connection, b"x" * BYTES)


@pytest.mark.parametrize("answer", [slow_status, slow_header, slow_body])
def test_an_answer_that_comes_byte_by_byte_is_not_waited_for(answer):
    with listening(answer) as origin, pytest.raises(NoAnswerError, match="no answer within"):
        asker(origin).ask("/")


def test_nor_is_a_proxy_s(monkeypatch):
    with listening(slow_header) as origin:
        monkeypatch.setenv("http_proxy", origin)
        with pytest.raises(NoAnswerError, match="no answer within"):
            asker("http://nowhere.invalid").ask("/")


def test_a_long_body_is_sent_whole():
    body = b"x" * 200_000 + b"end"

    def answer(connection):
        taken = b""
        while not taken.endswith(b"end"):
            taken += connection.recv(65536)
        connection.sendall(HEAD % 2 + (b"\r\nok" if taken.endswith(b"\r\n" + body) else b"\r\nno"))

    with listening(answer) as origin:
        assert asker(origin, within_s=30).ask("/", method="POST", body=body).body == b"ok"


def test_each_exchange_has_its_own_time_on_a_connection_that_stays_open():
    connections = []

    def answer(connection):
        connections.append(connection)
        while connection.recv(65536):
            time.sleep(PAUSE_S)
            connection.sendall(HEAD % 2 + b"\r\nok")

    with listening(answer) as origin:
        asked = asker(origin, within_s=30)
        assert [asked.ask("/").body for _ in range(3)] == [b"ok"] * 3
    assert len(connections) == 1
