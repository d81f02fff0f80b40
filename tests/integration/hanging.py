"""Transactions that a broker never ends, brought about on a real one.

A coordinator that loses sight of its partitions passes them over and writes down that the
transaction has ended. What it leaves there is what is left by a transaction that it never knew
of, and such a one can be written: by a client that speaks Kafka's protocol itself and does not
tell the coordinator, on a broker that is told not to ask it.
"""

from __future__ import annotations

import socket
import struct
import time
from contextlib import closing, contextmanager

from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

_PRODUCE, _INIT_PRODUCER_ID, _TXN_OFFSET_COMMIT, _DESCRIBE = 0, 22, 28, 65
_ASKED = (48, 87)  # that transaction is not known; so the record is refused
_TRANSACTIONAL = 1 << 4
_ASKS = "transaction.partition.verification.enable"


class Hanging:
    """A producer of a transactional id whose transactions nobody ends.

    Its own, or, `beside` another producer of the same id that is at work, in that one's name.
    """

    def __init__(self, bootstrap, name, *, beside=False):
        host, port = bootstrap.split(",")[0].split(":")
        self._socket = socket.create_connection((host, int(port)), 30)
        self._name = _string(name)
        self._id, self._epoch = self._found(name) if beside else self._taken_over()
        # Behind the last comes the first: the other one's.
        self._sequence = 0x7FFFFFFF if beside else 0

    def _taken_over(self):
        answer = self._call(_INIT_PRODUCER_ID, 0, self._name + struct.pack(">i", 60_000))
        _throttled, error, number, epoch = struct.unpack(">ihqh", answer)
        assert error == 0, error
        return number, epoch

    def _found(self, name):
        # One name, one answer; lengths are one more than they are, and nothing is tagged.
        answer = self._call(_DESCRIBE, 0, b"\0\2" + bytes([len(name) + 1]) + name.encode() + b"\0")
        [error] = struct.unpack_from(">h", answer, 6)
        assert error == 0, error
        state = 8 + answer[8]
        return struct.unpack_from(">qh", answer, state + answer[state] + 12)

    def send(self, topic, partition, key, value):
        batch = self._batch(key, value)
        self._call_until_believed(
            _PRODUCE,
            3,
            self._name
            + struct.pack(">hii", -1, 30_000, 1)
            + _string(topic)
            + struct.pack(">iii", 1, partition, len(batch))
            + batch,
            4 + len(_string(topic)) + 8,
        )

    def send_offset(self, group, topic, partition, offset):
        self._call_until_believed(
            _TXN_OFFSET_COMMIT,
            0,
            self._name
            + _string(group)
            + struct.pack(">qhi", self._id, self._epoch, 1)
            + _string(topic)
            + struct.pack(">iiq", 1, partition, offset)
            + _string(""),
            -2,
        )

    def _call_until_believed(self, api, version, body, error_at):
        """Call again while the broker still asks its coordinator, which knows of nothing."""
        deadline = time.monotonic() + 30
        while True:
            answer = self._call(api, version, body)
            [error] = struct.unpack_from(">h", answer, error_at)
            if error not in _ASKED or time.monotonic() > deadline:
                break
            time.sleep(0.05)
        assert error == 0, error

    def close(self):
        self._socket.close()

    def _call(self, api, version, body):
        request = struct.pack(">hhi", api, version, 1) + _string("hanging") + body
        self._socket.sendall(struct.pack(">i", len(request)) + request)
        [size] = struct.unpack(">i", self._received(4))
        return self._received(size)[4:]

    def _received(self, size):
        data = b""
        while len(data) < size:
            part = self._socket.recv(size - len(data))
            assert part, "the broker has hung up"
            data += part
        return data

    def _batch(self, key, value):
        """One record, as Kafka's second message format has it."""
        record = b"\0\0\0" + _varint(len(key)) + key + _varint(len(value)) + value + _varint(0)
        now = time.time_ns() // 1_000_000
        summed = (
            struct.pack(
                ">hiqqqhii", _TRANSACTIONAL, 0, now, now, self._id, self._epoch, self._sequence, 1
            )
            + _varint(len(record))
            + record
        )
        body = struct.pack(">ibI", -1, 2, _crc32c(summed)) + summed
        return struct.pack(">qi", 0, len(body)) + body


@contextmanager
def hanging(bootstrap, name, *, beside=False):
    """Give such a producer, on a broker that believes it."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    _set(admin, AlterConfigOpType.SET)
    try:
        with closing(Hanging(bootstrap, name, beside=beside)) as producer:
            yield producer
    finally:
        _set(admin, AlterConfigOpType.DELETE)


def _set(admin, operation):
    brokers = admin.list_topics(timeout=30).brokers
    for broker in brokers:
        entry = ConfigEntry(_ASKS, "false", incremental_operation=operation)
        resource = ConfigResource(ResourceType.BROKER, str(broker), incremental_configs=[entry])
        for done in admin.incremental_alter_configs([resource]).values():
            done.result(30)


def _string(text):
    return struct.pack(">h", len(text)) + text.encode()


def _varint(number):
    number = number << 1 ^ number >> 63
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def _crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _bit in range(8):
            crc = crc >> 1 ^ (0x82F63B78 & -(crc & 1))
    return crc ^ 0xFFFFFFFF
