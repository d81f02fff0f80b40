"""The whole flow: stages and topics in the order in which the data passes them.

    <source> ─► ingest ─► clean ─► mapper ─► mapped ─► cache_phase ─┬─ hit ──► enriched
                  │                                      ▲          │miss
                  ▼                              migrations         ▼
             dead-letter                                 │       missed ─► disk_phase ─► enriched
                                                         └──────────────────────┘
In a pipeline that keeps an order, hits go through `missed` too, and the disk phase alone writes to
`enriched`. An event that yields no output goes to `unmatched`, from either phase; one that is shed
in an overload goes to `shed`, from the mapper. Services, tests, the audit and the console read this
module; no topic's name is spelled anywhere else.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dovetail.pipeline.spec import Pipeline

CONTROL_TOPIC = "dovetail.control"
STATS_TOPIC = "dovetail.stats"

INGEST = "ingest"
MAPPER = "mapper"
CACHE_PHASE = "cache_phase"
DISK_PHASE = "disk_phase"
CONTROL = "control"

LARGEST_MESSAGE_BYTES = 16 << 20
"""No message on an internal topic is larger. Batches are cut far below it; only one
event or one join key with very many master rows can come near."""


DAY_MS = 24 * 3600 * 1000
"""For so long a request's idempotency key is known."""


class Keeps(Enum):
    """What a topic keeps of what was written to it."""

    BY_BROKER = auto()
    """As the broker is set up to: the users' topics."""
    LATEST = auto()
    """The latest message of each key."""
    UNREAD = auto()
    """What its stage has not read yet, however old; the rest is purged by `control`."""
    FOR_A_DAY = auto()
    """The latest message of each key, for a day."""

    @property
    def config(self) -> dict[str, str]:
        # Small segments: only closed ones are compacted or deleted.
        segments = {"segment.bytes": str(64 << 20)}
        if self is Keeps.LATEST:
            return {"cleanup.policy": "compact", **segments}
        if self is Keeps.FOR_A_DAY:
            # A segment is closed once an hour, so that it can be deleted after its day.
            times = {"retention.ms": str(DAY_MS), "segment.ms": str(DAY_MS // 24)}
            return {"cleanup.policy": "compact,delete", **times, **segments}
        if self is Keeps.UNREAD:
            return {"retention.ms": "-1", "retention.bytes": "-1", **segments}
        return {}


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    partitions: int
    keeps: Keeps = Keeps.BY_BROKER

    @property
    def config(self) -> dict[str, str]:
        return {"max.message.bytes": str(LARGEST_MESSAGE_BYTES), **self.keeps.config}


@dataclass(frozen=True, slots=True)
class Stage:
    """A service's place in the flow: the topic it consumes and the ones it produces."""

    service: str
    reads: Topic
    writes: tuple[Topic, ...]
    per_node: bool = False
    """One process a node, or one for the pipeline."""


@dataclass(frozen=True)
class Topology:
    """The topics and stages of one pipeline."""

    pipeline: Pipeline

    def _topic(self, suffix: str, partitions: int, keeps: Keeps = Keeps.BY_BROKER) -> Topic:
        return Topic(f"{self.pipeline.name}.{suffix}", partitions, keeps)

    @cached_property
    def source(self) -> Topic:
        return Topic(self.pipeline.source.topic, self.pipeline.source.partitions)

    @cached_property
    def clean(self) -> Topic:
        return self._topic("clean", self.pipeline.source.partitions, Keeps.UNREAD)

    @cached_property
    def mapped(self) -> Topic:
        return self._topic("mapped", self.pipeline.slots, Keeps.UNREAD)

    @cached_property
    def missed(self) -> Topic:
        return self._topic("missed", self.pipeline.slots, Keeps.UNREAD)

    @cached_property
    def migrations(self) -> Topic:
        return self._topic("migrations", self.pipeline.slots, Keeps.LATEST)

    @cached_property
    def progress(self) -> Topic:
        return self._topic("progress", self.pipeline.slots, Keeps.LATEST)

    @cached_property
    def enriched(self) -> Topic:
        return Topic(self.pipeline.sink.topic, self.pipeline.slots)

    @cached_property
    def unmatched(self) -> Topic:
        return self._topic("unmatched", 1)

    @cached_property
    def dead_letter(self) -> Topic:
        return self._topic("dead-letter", 1)

    @cached_property
    def shed(self) -> Topic:
        return self._topic("shed", 1)

    @cached_property
    def parked(self) -> Topic:
        return self._topic("parked", 1)

    @cached_property
    def requests(self) -> Topic:
        """The requests by HTTP that are answered, by their idempotency keys."""
        return self._topic("requests", 1, Keeps.FOR_A_DAY)

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        return (
            Stage(INGEST, self.source, (self.clean, self.dead_letter)),
            Stage(MAPPER, self.clean, (self.mapped, self.shed)),
            Stage(
                CACHE_PHASE,
                self.mapped,
                (self.enriched, self.unmatched, self.missed, self.migrations),
                True,
            ),
            Stage(
                DISK_PHASE,
                self.missed,
                (self.enriched, self.unmatched, self.parked, self.migrations, self.progress),
                True,
            ),
        )

    def stage(self, service: str) -> Stage:
        return next(stage for stage in self.stages if stage.service == service)

    def group(self, service: str) -> str:
        """The consumer group in which all nodes of a service share its topic's partitions."""
        return f"dovetail.{self.pipeline.name}.{service}"

    def topics(self) -> Iterator[Topic]:
        """Every topic of the pipeline, the shared ones included."""
        yield self.source
        yield self.clean
        yield self.mapped
        yield self.missed
        yield self.migrations
        yield self.progress
        yield self.enriched
        yield self.unmatched
        yield self.dead_letter
        yield self.shed
        yield self.parked
        yield self.requests
        yield Topic(CONTROL_TOPIC, 1)
        yield Topic(STATS_TOPIC, 1)
