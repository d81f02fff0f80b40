"""Dead letters and parked events: read from their topics, and sent back to the source.

A letter goes back as a new event, with its original bytes, and once for each origin whatever dies
in between:

    1. claim it: a row by its origin, with a mark, and where the source ends now
    2. send it in a transaction, with the mark in a header
    3. write down where it went

A claim without a place is of somebody who died between 1 and 3. Whoever comes next takes over the
transactional id, which settles what was under way, and looks for the mark behind that end.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections import deque
from contextlib import closing
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from dovetail.errors import Unavailable
from dovetail.permissions import Operation, Permission, Resource, reads
from dovetail.pipeline.spec import Format
from dovetail.stream.provenance import DETAIL, ORIGIN, REASON
from dovetail.stream.refusals import failure
from dovetail.stream.topics import admin_of, beginnings, ends, partitions_of
from dovetail.topology import LARGEST_MESSAGE_BYTES
from services.problem import Kind, ProblemError, conflict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from confluent_kafka import Message

    from dovetail.errors import DovetailError
    from dovetail.settings import Settings
    from dovetail.topology import Topic, Topology
    from services.control.store.replays import Claim, Replays

log = logging.getLogger(__name__)

DEAD_LETTERS, PARKED = "dead-letters", "parked"
KINDS = (DEAD_LETTERS, PARKED)
REPLAY_OF = "replay-of"
"""The header with the origin of what is replayed."""
MARK = "replay-mark"
LOOKED_AT = 10_000
"""Letters that one page looks at, at most."""
_PREVIEW = 200
"""Bytes of a letter that a page shows."""
_AT_ONCE = 16
_AHEAD_KB = 8192
"""What the client fetches before it is asked for it."""
_WITHIN_S = 10.0
_TRANSACTION_S = 20.0


@dataclass(frozen=True, slots=True)
class Entry:
    """What a page shows of a letter."""

    id: int
    at: datetime | None
    origin: str
    reason: str
    detail: str
    size: int
    preview: bytes


@dataclass(frozen=True, slots=True)
class Letter(Entry):
    """All of it: there may be many, and large ones, so they are read one after the other."""

    value: bytes | None

    @property
    def entry(self) -> Entry:
        return Entry(*(getattr(self, one.name) for one in fields(Entry)))


@dataclass(frozen=True, slots=True)
class Filter:
    reason: str | None = None
    origin: str | None = None
    """A beginning of it."""
    since: datetime | None = None
    until: datetime | None = None

    def takes(self, letter: Entry) -> bool:
        return (
            (self.reason is None or letter.reason == self.reason)
            and (self.origin is None or letter.origin.startswith(self.origin))
            and (self.since is None or (letter.at is not None and letter.at >= _aware(self.since)))
            and (self.until is None or (letter.at is not None and letter.at < _aware(self.until)))
        )


class LetterBox:
    """The letters of one kind."""

    def __init__(self, settings: Settings, topic: Topic) -> None:
        self._settings = settings
        self.topic = topic

    def page(
        self, wanted: Filter, most: int, before: int | None = None
    ) -> tuple[list[Entry], int | None]:
        """The newest that are wanted, and where to go on; None at the end."""
        first, end = self._span()
        end = min(end, before) if before is not None else end
        start = max(first, end - LOOKED_AT)
        entries = (letter.entry for letter in self._read(start, end))
        found = deque(filter(wanted.takes, entries), most + 1)
        chosen = list(found)[::-1][:most]
        if len(found) > most:
            return chosen, chosen[-1].id
        return chosen, start if start > first else None

    def all(self, wanted: Filter) -> Iterator[Letter]:
        """All that are wanted and there now, the oldest first."""
        yield from filter(wanted.takes, self._read(*self._span()))

    def find(self, number: int) -> Letter | None:
        first, end = self._span()
        if not first <= number < end:
            return None
        return next((one for one in self._read(number, number + 1) if one.id == number), None)

    def _span(self) -> tuple[int, int]:
        admin = admin_of(self._settings)
        return beginnings(admin, self.topic)[0], ends(admin, self.topic)[0]

    def _read(self, start: int, end: int) -> Iterator[Letter]:
        return map(_letter, read_span(self._settings, self.topic.name, 0, start, end))


class Sender:
    """Sends letters back to the source."""

    def __init__(self, settings: Settings, topology: Topology, replays: Replays) -> None:
        self._settings = settings
        self._topology = topology
        self._replays = replays
        self._guard = threading.Lock()
        self._producer: Producer | None = None

    def send(self, kind: str, letter: Letter, by: str, *, force: bool = False) -> str | None:
        """Replay one; where it went, or None if it was replayed before and is not forced."""
        partition = self._partition(letter)
        value = letter.value if kind == DEAD_LETTERS else self._original(letter)
        with self._guard:
            behind = ends(admin_of(self._settings), self._topology.source)[partition]
            claim = self._replays.claim(letter.origin, kind, letter.id, behind, by, force=force)
            if claim.sent_to is not None:
                return None
            return self._deliver(claim, letter.origin, partition, value)

    def _deliver(self, claim: Claim, origin: str, partition: int, value: bytes | None) -> str:
        try:
            producer = self._producer = self._producer or self._new_producer()
            place = None
            if not claim.new:
                # Whoever made the claim may have sent it, or be about to: now it cannot any more.
                self._producer = producer = self._new_producer()
                place = self._sent_before(claim, partition)
            if place is None:
                place = self._transaction(producer, claim, origin, partition, value)
        except KafkaException as error:
            self._producer = None  # the next one settles what this one has left
            raise self._undelivered(error) from error
        to = f"{self._topology.source.name}/{partition}/{place}"
        self._replays.sent(claim, to)
        return to

    def _undelivered(self, error: KafkaException) -> DovetailError:
        needed = (
            Permission(Resource.TOPIC, self._topology.source.name, Operation.WRITE),
            Permission(Resource.TRANSACTIONAL_ID, self._id, Operation.WRITE),
        )
        text = "it cannot be told whether it was sent, so try again"
        return failure(self._settings, error, text, needed)

    @property
    def _id(self) -> str:
        return self._topology.group("replay")

    def _transaction(
        self, producer: Producer, claim: Claim, origin: str, partition: int, value: bytes | None
    ) -> int:
        placed: list[int] = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            offset = message.offset()
            if error is None and offset is not None:
                placed.append(offset)

        producer.begin_transaction()
        producer.produce(
            self._topology.source.name,
            value,
            partition=partition,
            headers=[(REPLAY_OF, origin.encode()), (MARK, claim.mark.encode())],
            on_delivery=delivered,
        )
        producer.flush(_WITHIN_S)
        producer.commit_transaction(_TRANSACTION_S)
        if not placed:
            raise KafkaException(KafkaError(KafkaError._FAIL, "the broker gave no place"))  # noqa: SLF001 - its public name
        return placed[0]

    def _sent_before(self, claim: Claim, partition: int) -> int | None:
        source = self._topology.source
        end = ends(admin_of(self._settings), source)[partition]
        for message in read_span(self._settings, source.name, partition, claim.behind, end):
            if _headers(message).get(MARK) == claim.mark:
                return message.offset()
        return None

    def _original(self, letter: Letter) -> bytes | None:
        """The event's own bytes: a parked one may have been transcoded, and enriched in part."""
        source, pipeline = self._topology.source, self._topology.pipeline
        partition, offset = map(int, letter.origin.rsplit("/", 2)[1:])
        first = beginnings(admin_of(self._settings), source)[partition]
        if offset >= first:
            for message in read_span(self._settings, source.name, partition, offset, offset + 1):
                if message.offset() == offset:
                    return message.value()
        if pipeline.source.format is Format.JSON and pipeline.links == 1:
            return letter.value
        raise conflict(
            f"the event itself is no longer on {source.name}, and what was parked is not its"
            " original: send it anew"
        )

    def _partition(self, letter: Letter) -> int:
        topic, _, rest = letter.origin.rpartition("/")[0].rpartition("/")
        source = self._topology.source
        known = topic == source.name and rest.isdecimal()
        if not known or int(rest) >= partitions_of(admin_of(self._settings), source):
            raise ProblemError(
                Kind.CONFLICT,
                f"letter {letter.id} says it came from {letter.origin!r}, which is"
                f" not of {source.name}: it cannot go back there",
            )
        return int(rest)

    def _new_producer(self) -> Producer:
        """Take over the transactional id: settles whatever its last holder left open."""
        producer = Producer(
            self._settings.client(
                {
                    "transactional.id": self._id,
                    "transaction.timeout.ms": int(_TRANSACTION_S * 1000),
                    "message.max.bytes": LARGEST_MESSAGE_BYTES,
                    "log_level": 0,
                }
            )
        )
        producer.init_transactions(_TRANSACTION_S)
        return producer


def read_span(
    settings: Settings, topic: str, partition: int, start: int, end: int
) -> Iterator[Message]:
    """The committed messages of a partition from one offset to before another.

    Few are in memory at a time. Whoever takes them may be slow: the broker alone has to be in time.
    """
    consumer = Consumer(
        settings.client(
            {
                "group.id": f"{topic}.{uuid.uuid4()}",  # required, and never committed to
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 20,
                "queued.max.messages.kbytes": _AHEAD_KB,
                "log_level": 0,
            }
        )
    )
    with closing(consumer):
        consumer.assign([TopicPartition(topic, partition, start)])
        deadline = time.monotonic() + _WITHIN_S
        at = start
        while at < end:
            messages = consumer.consume(_AT_ONCE, 0.1)
            if not messages and time.monotonic() > deadline:
                raise Unavailable(f"{topic} cannot be read: no answer within {_WITHIN_S:.0f} s")
            for message in messages:
                error = message.error()
                if error is not None:
                    if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
                        return
                    raise failure(settings, error, f"{topic} cannot be read", reads(topic))
                at = (message.offset() or 0) + 1
                if at > end:
                    return
                yield message
            if messages:
                deadline = time.monotonic() + _WITHIN_S


def _letter(message: Message) -> Letter:
    headers = _headers(message)
    kind, at_ms = message.timestamp()
    at = datetime.fromtimestamp(at_ms / 1000, UTC) if kind and at_ms >= 0 else None
    origin, reason, detail = (headers.get(name.decode(), "") for name in (ORIGIN, REASON, DETAIL))
    offset = message.offset()
    assert offset is not None
    value = message.value()
    whole = value or b""
    return Letter(offset, at, origin, reason, detail, len(whole), whole[:_PREVIEW], value)


def _headers(message: Message) -> dict[str, str]:
    pairs: Any = message.headers() or []
    return {name: (value or b"").decode(errors="replace") for name, value in pairs}


def _aware(moment: datetime) -> datetime:
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
