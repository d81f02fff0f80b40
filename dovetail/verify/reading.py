"""What is on the topics: every committed message, once, with the event it came from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.errors import Unavailable
from dovetail.node.step import TOO_LARGE
from dovetail.stream.late import read_late
from dovetail.stream.provenance import REASON
from dovetail.stream.topics import admin_of, ends
from dovetail.stream.whole import Identity, place_of, read_all

if TYPE_CHECKING:
    from collections.abc import Iterator

    from confluent_kafka import Message

    from dovetail.settings import Settings
    from dovetail.topology import Topic, Topology

Ends = dict[str, list[int]]
"""For each topic the offset at which each of its partitions ended."""


def ends_of(settings: Settings, topology: Topology) -> Ends:
    """Where the topics that are compared end now."""
    admin = admin_of(settings)
    outputs = (topology.enriched, topology.unmatched, topology.dead_letter)
    aside = (topology.shed, topology.parked)
    return {topic.name: ends(admin, topic) for topic in (topology.source, *outputs, *aside)}


class Reader:
    """Reads a pipeline's topics, from where the comparison begins.

    Of what was set aside, backfill has answered what lies before its positions, but for outputs
    that are too large: these it leaves parked.
    """

    def __init__(self, settings: Settings, topology: Topology, begin: Ends) -> None:
        self._settings = settings
        self._source = topology.source
        self._parked = topology.parked
        self._begin = begin
        self._answered = _answered(settings, topology)

    @property
    def has_backfill(self) -> bool:
        return bool(self._answered)

    def source(self) -> Iterator[tuple[Identity, bytes | None]]:
        for message in self._read(self._source):
            yield place_of(message), message.value()

    def outputs(self, topic: Topic) -> Iterator[tuple[Identity | None, bytes | None]]:
        """Outputs with their event's identity (None: it names none), but for earlier events'."""
        first = self._begin.get(self._source.name)
        for message in self._read(topic):
            identity = origin_of(message, self._source)
            if first is None or identity is None or identity[1] >= _at(first, identity[0]):
                yield identity, message.value()

    def _read(self, topic: Topic) -> Iterator[Message]:
        begin = self._begin.get(topic.name)
        if topic.name not in self._answered:
            return read_all(self._settings, topic, begin)
        at = self._answered[topic.name]
        if topic == self._parked:
            found = read_all(self._settings, topic, begin)
            return (one for one in found if place_of(one)[1] >= at or _is_too_large(one))
        return read_all(self._settings, topic, [max(at, *begin)] if begin else [at])


def _answered(settings: Settings, topology: Topology) -> dict[str, int]:
    """How far backfill has come in each of its inputs; nothing if it has never run."""
    late = read_late(settings, topology)
    if not late.slots:
        return {}
    found = late.positions(topology)
    if any(len(places) > 1 for places in found.values()):
        raise Unavailable(
            f"backfill of {topology.pipeline.name} was interrupted: its events are completed in "
            f"part: run `dovetail spark backfill` to its end, then compare"
        )
    return {topic: max(places) for topic, places in found.items()}


def origin_of(message: Message, source: Topic) -> Identity | None:
    """Return which event the message says it came from; None if it names none of the source."""
    topic, _, place = headers_of(message).get("origin", "").partition("/")
    partition, _, offset = place.partition("/")
    if topic != source.name or not (partition.isdecimal() and offset.isdecimal()):
        return None
    return int(partition), int(offset)


def _is_too_large(message: Message) -> bool:
    return headers_of(message).get(REASON.decode()) == TOO_LARGE.decode()


def _at(first: list[int], partition: int) -> int:
    """Where a partition's comparison begins: of one that was added since, with all of it."""
    return first[partition] if partition < len(first) else 0


def headers_of(message: Message) -> dict[str, str]:
    return {
        name: value.decode(errors="replace")
        for name, value in dict(message.headers() or ()).items()
        if isinstance(value, bytes)
    }
