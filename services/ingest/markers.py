"""Which requests by HTTP are answered, by the keys that their senders gave them.

A marker is on a topic, written in the transaction that has the request's events: both are there
or neither is. A process that starts reads the topic; so no request is forgotten by a crash. Markers
are kept in a SQLite database that lives in a temporary file: millions of them (a day's) take no
memory but its cache.
"""

from __future__ import annotations

import logging
import sqlite3
import time
import uuid
from typing import TYPE_CHECKING

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition
from google.protobuf.message import DecodeError

from dovetail.contracts.request_pb2 import Request
from dovetail.errors import Unavailable
from dovetail.permissions import reads
from dovetail.stream.refusals import failure
from dovetail.topology import DAY_MS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from confluent_kafka import Message

    from dovetail.settings import Settings
    from dovetail.topology import Topic

log = logging.getLogger(__name__)

_CACHE_KIB = 4096
_AT_ONCE = 10_000
_TIMEOUT_S = 10.0


def marker_key(token: int | None, given: bytes) -> bytes:
    """The key of a sender's marker: what two of them give is never the same.

    What is given is printable, so a zero byte ends who gave it; nobody's number is local mode's.
    """
    return b"%s\0%s" % (b"" if token is None else b"%d" % token, given)


class Markers:
    """For one thread at a time."""

    def __init__(self) -> None:
        self._database = sqlite3.connect("", check_same_thread=False, isolation_level=None)
        self._database.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        # Nothing to roll back, nothing to survive: the topic has it all.
        self._database.execute("PRAGMA journal_mode = OFF")
        self._database.execute(
            "CREATE TABLE marker (key BLOB PRIMARY KEY, request BLOB NOT NULL, at_ms INT NOT NULL)"
            " WITHOUT ROWID"
        )
        self._next = OFFSET_BEGINNING

    def find(self, key: bytes, now_ms: int) -> Request | None:
        """Give the request of a key, for a day after it was answered."""
        row = self._database.execute(
            "SELECT request FROM marker WHERE key = ? AND at_ms > ?", (key, now_ms - DAY_MS)
        ).fetchone()
        return None if row is None else Request.FromString(row[0])

    def find_earlier(self, key: bytes, digest: bytes, now_ms: int) -> Request | None:
        """Give the request that an earlier release answered, whose keys were shared by all senders.

        It is this sender's as far as can be known if the body is the same. For a day after the
        upgrade such markers are there.
        """
        found = self.find(key.partition(b"\0")[2], now_ms)
        return found if found is not None and found.digest == digest else None

    def keep(self, key: bytes, request: Request) -> None:
        self._keep([(key, request.SerializeToString(), request.at_ms)])

    def forget_old(self, now_ms: int) -> None:
        self._database.execute("DELETE FROM marker WHERE at_ms <= ?", (now_ms - DAY_MS,))

    def load(self, settings: Settings, topic: Topic) -> None:
        """Read what is on the topic, from the first marker not read so far to its end now."""
        for messages in _read(settings, topic, self._next):
            rows = [(_text(m.key()), _text(m.value())) for m in messages]
            self._keep([(key, value, at) for key, value in rows if (at := answered_at(value))])
            self._next = (messages[-1].offset() or 0) + 1

    def close(self) -> None:
        self._database.close()

    def _keep(self, rows: list[tuple[bytes, bytes, int]]) -> None:
        self._database.execute("BEGIN")
        self._database.executemany("INSERT OR REPLACE INTO marker VALUES (?, ?, ?)", rows)
        self._database.execute("COMMIT")


def answered_at(message: bytes) -> int | None:
    """When a request was answered; None if the message is no request's."""
    try:
        return Request.FromString(message).at_ms or None
    except DecodeError as error:
        log.error(  # noqa: TRY400 - where it was raised says nothing
            "marker refused: it is none of ours", extra={"reason": str(error)}
        )
        return None


def _read(settings: Settings, topic: Topic, first: int) -> Iterator[list[Message]]:
    """Give the committed messages of the topic's one partition, to its end."""
    consumer = Consumer(
        settings.client(
            {
                "group.id": f"{topic.name}.{uuid.uuid4()}",  # required, and never committed to
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
                # What was there is gone after its day: go on with what is left.
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 50,
                "log_level": 0,
            }
        )
    )
    try:
        consumer.assign([TopicPartition(topic.name, 0, first)])
        ended, heard = False, time.monotonic()
        while not ended:
            found = consumer.consume(_AT_ONCE, 0.05)
            ended = any(_is_end(message, settings, topic) for message in found)
            messages = [message for message in found if message.error() is None]
            if messages:
                yield messages
            if found:
                heard = time.monotonic()
            elif time.monotonic() - heard > _TIMEOUT_S:
                raise Unavailable(f"{topic.name} cannot be read: no answer in {_TIMEOUT_S:.0f} s")
    except KafkaException as error:
        raise failure(settings, error, f"{topic.name} cannot be read", reads(topic.name)) from error
    finally:
        consumer.close()


def _is_end(message: Message, settings: Settings, topic: Topic) -> bool:
    error = message.error()
    if error is None:
        return False
    if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - the constant's public name
        return True
    raise failure(settings, error, f"{topic.name} cannot be read", reads(topic.name))


def _text(value: bytes | str | None) -> bytes:
    assert isinstance(value, bytes)  # all that is written to the topic has both
    return value
