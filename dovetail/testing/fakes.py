"""Stand-ins for what a handler talks to, so that it can be tested as the pure thing it is.

producer = RecordingProducer()
handler.handle(records_of([(slot, batch)]), producer, ledger)
assert producer.sent["sales.enriched"][0].value == …
"""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from dovetail.errors import Unavailable
from dovetail.join.columns import Column, JoinKeys
from dovetail.join.entry import MasterRows
from dovetail.join.exchange import Keys, Pages
from dovetail.join.keys import hash_text_many
from dovetail.stream.batch import UNMAPPED, EventBatch
from dovetail.stream.rdkafka import Parcel, Records
from dovetail.testing.relation import MemoryRelation

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from dovetail.join.columns import Bytes, Flags, Ints, SmallInts
    from dovetail.join.exchange import Read, Request
    from dovetail.join.phase import Relation

    RawColumn = tuple[Bytes, Ints]

Key = int | bytes
"""An int key, or the canonical bytes of any other."""


class InMemoryMaster:
    """Master data over a dictionary; a row is a JSON object, as PostgreSQL would encode it."""

    def __init__(
        self, rows: Mapping[Key, Sequence[bytes]], rows_a_page: int = 4, *, unique: bool = False
    ) -> None:
        self._rows_a_page = rows_a_page
        self._unique = unique
        self._changed = False
        self.requests: list[Request] = []
        """What was asked for, answered or not."""
        self.outage = ""
        """Unless empty, reads fail for this reason."""
        self.closed = False
        self.clock = time.time
        self.resting = True
        self.slots: frozenset[int] | None = None
        self.fill(rows)

    def fill(self, rows: Mapping[Key, Sequence[bytes]]) -> None:
        """Put other rows in place of all there were."""
        pairs = [(key, row) for key, of_key in rows.items() for row in of_key]
        columns = MasterRows(
            join_keys([key for key, _ in pairs]), Column.of([row for _, row in pairs])
        )
        self._relation = MemoryRelation(columns, self._rows_a_page, unique=self._unique)
        self._changed = True

    @property
    def queries(self) -> int:
        return len(self.requests)

    @property
    def facts(self) -> Relation:
        return self._relation.facts

    def read(self, request: Request, most: int) -> Read:
        self.requests.append(request)
        if self.outage:
            raise Unavailable(self.outage)
        if isinstance(request, Pages):
            assert not self.resting, "renew() comes before the first page of a cycle"
            assert request.of == self.facts.pages, "renew() gave other facts"
        else:
            self.resting = True
        read = self._relation.read(request)
        while read.nbytes > most and read.covers > 1:
            request = _first_half(request)
            read = self._relation.read(request)
        return read

    def now(self) -> float:
        return self.clock()

    def keep(self, slots: frozenset[int] | None) -> None:
        self.slots = slots
        self.rest()

    def renew(self) -> Relation | None:
        if self.outage:
            raise Unavailable(self.outage)
        self.resting = False
        changed, self._changed = self._changed, False
        return self.facts if changed else None

    def rest(self) -> None:
        self.resting = True

    def close(self) -> None:
        self.closed = True


def _first_half(request: Request) -> Request:
    if isinstance(request, Keys):
        return Keys(request.keys.slice(0, len(request.keys) // 2))
    assert isinstance(request, Pages)
    return Pages(request.first, request.count // 2, request.of)


@dataclass(frozen=True, slots=True)
class Sent:
    """A message as a broker would have it."""

    partition: int
    value: bytes | None
    key: bytes | None = None
    headers: dict[bytes, bytes] = field(default_factory=dict)


class RecordingProducer:
    """The part of `rdkafka.Producer` that handlers use; nothing leaves the process."""

    def __init__(self) -> None:
        self.sent: defaultdict[str, list[Sent]] = defaultdict(list)
        """By topic, in order."""

    def send(
        self,
        topic: str,
        value: bytes | Bytes | None,
        partition: int = -1,
        key: bytes | None = None,
        headers: Sequence[tuple[bytes, bytes]] = (),
    ) -> None:
        written = None if value is None else bytes(value)
        self.sent[topic].append(Sent(partition, written, key, dict(headers)))

    def give(self, topic: str, parcel: Parcel, partition: int) -> None:
        self.send(topic, bytes(parcel), partition)

    def send_many(
        self,
        topic: str,
        partitions: int | SmallInts,
        data: Bytes,
        bounds: Ints,
        *,
        keys: RawColumn | None = None,
        headers: Sequence[tuple[bytes, bytes | RawColumn]] = (),
        tombstones: Flags | None = None,
    ) -> None:
        values = Column(data, bounds)
        chosen = np.broadcast_to(partitions, len(values)).tolist()
        for row in range(len(values)):
            is_null = tombstones is not None and bool(tombstones[row])
            self.send(
                topic,
                None if is_null else values[row],
                chosen[row],
                None if keys is None else Column(*keys)[row],
                [
                    (name, value if isinstance(value, bytes) else Column(*value)[row])
                    for name, value in headers
                ],
            )


def join_keys(keys: Sequence[Key]) -> JoinKeys:
    """Columns of these keys, which are all ints or all canonical bytes."""
    if all(isinstance(key, int) for key in keys):
        return JoinKeys.of_ints(np.array(keys, np.int64))
    texts = Column.of([key for key in keys if isinstance(key, bytes)])
    return JoinKeys(hash_text_many(texts.data, texts.bounds), texts)


def named(keys: JoinKeys) -> list[Key]:
    """The keys that these columns hold; of texts at least one must not be empty."""
    if keys.texts.bounds[-1] > keys.texts.bounds[0]:
        return [keys.texts[row] for row in range(len(keys))]
    return list(keys.values.tolist())


def event_batch(
    events: Iterable[tuple[Key, bytes]], partition: int = 0, first_offset: int = 0
) -> EventBatch:
    """A batch of events with their keys, as if read one after another from a source partition."""
    pairs = list(events)
    return EventBatch(
        join_keys([key for key, _ in pairs]),
        Column.of([event for _, event in pairs]),
        np.full(len(pairs), partition, np.int32),
        np.arange(first_offset, first_offset + len(pairs), dtype=np.int64),
        np.zeros(len(pairs), np.int64),
    )


def records_of(
    batches: Sequence[tuple[int, EventBatch]],
    pipeline: str = "sales",
    offsets: Sequence[int] | None = None,
    *,
    mapped: bool = True,
) -> Records:
    """What a stage consumes when these batches stand on its topic's partitions."""
    messages = [
        (slot, batch.to_message(pipeline, slot if mapped else UNMAPPED)) for slot, batch in batches
    ]
    return records_with(messages, offsets)


def records_with(
    messages: Sequence[tuple[int, bytes]], offsets: Sequence[int] | None = None
) -> Records:
    """What a stage consumes when these stand on its topic's partitions, whatever they are."""
    values = Column.of([message for _, message in messages])
    return Records(
        np.array([partition for partition, _ in messages], np.int32),
        np.array(range(len(messages)) if offsets is None else offsets, np.int64),
        np.zeros(len(messages), np.int64),
        values.data,
        values.bounds,
        np.zeros(len(messages), np.bool_),
    )
