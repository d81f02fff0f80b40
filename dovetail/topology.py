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

    shed, unmatched, parked, still-unmatched ─► backfill (services/spark) ─┬──► enriched
                                                                           ├──► unmatched
                                                                           └──► still-unmatched

In the layout `fused` one process, the node, does the work of all of them: an event goes from the
source to the sink in one step, and passes no topic between. It reads in the group of ingest and
goes on with its ledger, so that a drained pipeline can change its layout.

    <source> ─► node ─► enriched, unmatched, parked, dead-letter, shed

Of several nodes each maps its share of the source to the slots of all, and joins its own:

    <source> ─► intake ─► mapped ─► node ─► enriched, unmatched, parked, shed
                  │
             dead-letter

In a chain every further table is a link with a cache phase and a disk phase of its own, and topics
between them, named by its number. What would go to `enriched` goes on to the next link's `mapped`,
by the slot of that link's key; the last one writes to `enriched`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from functools import cached_property
from typing import TYPE_CHECKING

from dovetail.pipeline.shape import Engine, Layout
from dovetail.stream import ledger

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dovetail.pipeline.spec import Pipeline

CONTROL_TOPIC = "dovetail.control"
STATS_TOPIC = "dovetail.stats"

INGEST = "ingest"
MAPPER = "mapper"
CACHE_PHASE = "cache_phase"
DISK_PHASE = "disk_phase"
NODE = "node"
"""All of them in one process, in the layout `fused` (services/node)."""
INTAKE = "intake"
"""What a node does of ingest and mapper, beside others: a second loop of its process."""
ENRICH = "enrich"
"""All of them in one application, where Spark runs the pipeline (services/spark/enrich.py)."""
BACKFILL = "backfill"
"""Completes in batch what was shed, unmatched or parked (services/spark/backfill.py)."""
CONTROL = "control"

LARGEST_MESSAGE_BYTES = 16 << 20
"""No message on an internal topic is larger. Batches are cut far below it; only one
event or one join key with very many master rows can come near."""
SMALLEST_SINK_BYTES = 1 << 20
"""The least that a sink has to take in a message, somewhat below Kafka's own default."""


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
    compressed: bool = False
    """Whether we send it compressed. Of many small messages that saves the broker half of its work
    and costs the sender nothing (bench/broker_cost.py); a batch of events is one large message."""
    grows: bool = False
    """Whether partitions may be added to it at any time: `partitions` is then the least number."""
    takes: int = LARGEST_MESSAGE_BYTES
    """The largest message that it has to take at least; 0 if it is not ours to write."""

    @property
    def config(self) -> dict[str, str]:
        return {"max.message.bytes": str(LARGEST_MESSAGE_BYTES), **self.keeps.config}


@dataclass(frozen=True, slots=True)
class Stage:
    """A service's place in the flow: the topic it consumes and the ones it produces."""

    service: str
    """The service's name, with its link's number behind it from the second on."""
    reads: Topic
    writes: tuple[Topic, ...]
    per_node: bool = False
    """One process a node, or one for the pipeline."""
    link: int = 1
    goes_on_with: str = ""
    """The service whose ledger it keeps, if that is not its own: it reads in that one's group."""

    @property
    def kind(self) -> str:
        """The service's name alone: what all links have."""
        return self.service.partition(".")[0]

    @property
    def keeper(self) -> str:
        """The service after which its consumer group and its ledger are named."""
        return self.goes_on_with or self.service


@dataclass(frozen=True, slots=True)
class Process:
    """One process of a pipeline."""

    service: str
    """With its link's number behind it from the second on."""
    node: int | None = None
    """Of a service that runs once a node."""

    @property
    def kind(self) -> str:
        return self.service.partition(".")[0]

    @property
    def name(self) -> str:
        return self.service if self.node is None else f"{self.service}-{self.node}"


@dataclass(frozen=True, slots=True)
class Handover:
    """Between two stages: what these give out as that outcome is what the other takes in."""

    givers: tuple[str, ...]
    outcome: str
    taker: str


@dataclass(frozen=True)
class Topology:
    """The topics and stages of one pipeline, seen from one of its links."""

    pipeline: Pipeline
    """The whole of it."""
    number: int = 1
    """Of the link that `mapped`, `missed`, `migrations` and `progress` belong to."""

    def _topic(self, suffix: str, partitions: int, keeps: Keeps = Keeps.BY_BROKER) -> Topic:
        return Topic(f"{self.pipeline.name}.{suffix}", partitions, keeps)

    def _own(self, suffix: str, keeps: Keeps) -> Topic:
        of_link = f"{self.number}.{suffix}" if self.number > 1 else suffix
        return self._topic(of_link, self.pipeline.slots, keeps)

    @cached_property
    def links(self) -> tuple[Topology, ...]:
        """The pipeline seen from each of its links, in their order."""
        return tuple(
            self if number == self.number else Topology(self.pipeline, number)
            for number in range(1, self.pipeline.links + 1)
        )

    @property
    def next(self) -> Topology | None:
        """The link behind this one; None behind the last."""
        return self.links[self.number] if self.number < len(self.links) else None

    @cached_property
    def source(self) -> Topic:
        source = self.pipeline.source
        return Topic(source.topic, source.partitions, grows=True, takes=0)

    @cached_property
    def clean(self) -> Topic:
        """It has a partition for each of the source's."""
        name, partitions = f"{self.pipeline.name}.clean", self.pipeline.source.partitions
        return Topic(name, partitions, Keeps.UNREAD, grows=True)

    @cached_property
    def mapped(self) -> Topic:
        return self._own("mapped", Keeps.UNREAD)

    @cached_property
    def missed(self) -> Topic:
        return self._own("missed", Keeps.UNREAD)

    @cached_property
    def migrations(self) -> Topic:
        return self._own("migrations", Keeps.LATEST)

    @cached_property
    def progress(self) -> Topic:
        return self._own("progress", Keeps.LATEST)

    @cached_property
    def node_progress(self) -> Topic:
        """What a fused node has answered above what is committed of its slots."""
        return self._own("node-progress", Keeps.LATEST)

    @cached_property
    def source_progress(self) -> Topic:
        """The same of the source, where a single node reads it."""
        return self._topic("source-progress", self.pipeline.slots, Keeps.LATEST)

    @property
    def alone(self) -> bool:
        """Whether a fused node reads the source itself, for this link."""
        return self.fused and self.number == 1 and self.pipeline.nodes == 1

    @property
    def told_progress(self) -> Topic:
        """Where is told what is answered above what is committed, in this layout."""
        if not self.fused:
            return self.progress
        return self.source_progress if self.alone else self.node_progress

    @cached_property
    def enriched(self) -> Topic:
        sink = self.pipeline.sink.topic
        return Topic(sink, self.pipeline.slots, compressed=True, takes=SMALLEST_SINK_BYTES)

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
    def still_unmatched(self) -> Topic:
        """What backfill has looked at in vain, to be looked at again by its next run."""
        return self._topic("still-unmatched", 1, Keeps.UNREAD)

    @cached_property
    def backfill(self) -> Topic:
        """What backfill has behind it: a partition for each slot, and one for the run's number."""
        return self._topic(BACKFILL, self.pipeline.slots + 1, Keeps.LATEST)

    @cached_property
    def states(self) -> Topic:
        """What the slots have behind them where Spark runs the pipeline, and the run's number."""
        return self._topic("states", self.pipeline.slots + 1, Keeps.LATEST)

    @cached_property
    def foreign(self) -> Topic:
        """Messages on an internal topic that are not the pipeline's, refused by who reads it."""
        return self._topic("foreign", 1)

    @cached_property
    def requests(self) -> Topic:
        """The requests by HTTP that are answered, by their idempotency keys."""
        return self._topic("requests", 1, Keeps.FOR_A_DAY)

    @property
    def by_spark(self) -> bool:
        """Whether one application does the work of all stages."""
        return self.pipeline.engine is Engine.SPARK

    @property
    def fused(self) -> bool:
        """Whether one process a node does the work of all stages."""
        return not self.by_spark and self.pipeline.layout is Layout.FUSED

    @property
    def in_one(self) -> bool:
        """Whether one service does the work of all stages."""
        return self.by_spark or self.fused

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        """All that run, of every link."""
        if not self.fused:
            return self.ledgers
        intake = (self._intake,) if self.pipeline.nodes > 1 else ()
        return (*intake, *(link._node for link in self.links))  # noqa: SLF001 - the same class

    @cached_property
    def ledgers(self) -> tuple[Stage, ...]:
        """Every stage that may have a ledger, whatever the layout is now: those of the split one.

        What events were counted as in one layout is not counted again in the other.
        """
        first = self.links[0]
        return (
            Stage(INGEST, self.source, (self.clean, self.dead_letter)),
            Stage(MAPPER, self.clean, (first.mapped, self.shed, self.foreign)),
            *(stage for link in self.links for stage in link.phases),
        )

    @cached_property
    def _intake(self) -> Stage:
        """Of several nodes, each maps its share of the source to the slots of all of them."""
        writes = (self.mapped, self.dead_letter)
        return Stage(INTAKE, self.source, writes, per_node=True, goes_on_with=INGEST)

    @cached_property
    def _node(self) -> Stage:
        """A single node reads the source itself; one of several, and one behind it, its slots."""
        alone = self.alone
        onward = self.enriched if self.next is None else self.next.mapped
        further = [self.dead_letter if alone else self.foreign]
        if self.pipeline.overload:
            further.append(self.shed)
        return Stage(
            self.service(NODE),
            self.source if alone else self.mapped,
            (onward, self.unmatched, self.parked, *further, self.told_progress),
            per_node=True,
            link=self.number,
            goes_on_with=INGEST if alone else self.service(CACHE_PHASE),
        )

    @cached_property
    def phases(self) -> tuple[Stage, Stage]:
        """The two stages of this link, in the split layout."""
        onward = self.enriched if self.next is None else self.next.mapped
        answers = (onward, self.unmatched)
        return (
            Stage(
                self.service(CACHE_PHASE),
                self.mapped,
                (*answers, self.parked, self.missed, self.migrations, self.foreign),
                True,
                self.number,
            ),
            Stage(
                self.service(DISK_PHASE),
                self.missed,
                (*answers, self.parked, self.migrations, self.progress, self.foreign),
                True,
                self.number,
            ),
        )

    @cached_property
    def answering(self) -> tuple[str, ...]:
        """Whose ledgers say what was answered for this link, in any layout."""
        phases = tuple(stage.service for stage in self.phases)
        return (INGEST, *phases) if self.number == 1 else phases

    @property
    def services(self) -> tuple[Stage, ...]:
        """The stages with processes of their own: intake runs in a node's, beside its own."""
        return tuple(stage for stage in self.stages if stage.kind != INTAKE)

    @cached_property
    def processes(self) -> tuple[Process, ...]:
        """Control, and all of the pipeline in the order in which the data flows."""
        if self.by_spark:
            return (Process(CONTROL), Process(ENRICH))
        of_stages = (
            Process(stage.service, node)
            for stage in self.services
            for node in (range(self.pipeline.nodes) if stage.per_node else (None,))
        )
        return (Process(CONTROL), *of_stages)

    @cached_property
    def commanded(self) -> tuple[str, ...]:
        """The services that control commands; the first of them takes the events in."""
        if self.by_spark:
            return (ENRICH,)
        return tuple(stage.service for stage in self.services)

    @cached_property
    def handovers(self) -> tuple[Handover, ...]:
        """Every place where events pass from one stage to another, in their order."""
        found = [Handover((INGEST,), ledger.CLEAN, MAPPER)]
        givers: tuple[str, ...] = (INGEST, MAPPER)
        outcome = ledger.MAPPED
        for link in self.links:
            cache, disk = (stage.service for stage in link.phases)
            found.append(Handover(givers, outcome, cache))
            found.append(Handover((cache,), ledger.MISSED, disk))
            givers, outcome = link.answering, ledger.OUTPUTS
        return tuple(found)

    def service(self, kind: str) -> str:
        """Name a service of this link; there is one ingest and one mapper for all of them."""
        of_all = self.number == 1 or kind not in (CACHE_PHASE, DISK_PHASE, NODE)
        return kind if of_all else f"{kind}.{self.number}"

    def stage(self, service: str) -> Stage:
        """The stage of a service that runs, or of one that may have left a ledger."""
        either = (*self.stages, *self.ledgers)
        return next(stage for stage in either if stage.service == service)

    def of_process(self, service: str) -> tuple[Stage, ...]:
        """A service's stage, and whatever runs beside it in the same process."""
        beside = (one for one in self.stages if one.kind == INTAKE and service == NODE)
        return (self.stage(service), *beside)

    def doing(self, kind: str) -> str:
        """The service that does the work of a kind of stage for this link, in this layout."""
        if self.by_spark:
            return ENRICH
        return self.service(NODE if self.fused else kind)

    def witnesses(self, stage: Stage) -> tuple[Topic, ...]:
        """The topics of which any shows that the stage's group has committed, in any layout.

        What a mapper writes a fused node writes, too; but what was missed has passed a mapper.
        """
        link = self.links[stage.link - 1]
        return {
            INGEST: (link.clean, link.mapped, link.source_progress),
            MAPPER: (link.missed,),
            CACHE_PHASE: (link.missed, link.node_progress),
            DISK_PHASE: (link.progress,),
        }[stage.keeper.partition(".")[0]]

    def group(self, service: str) -> str:
        """The consumer group in which all nodes of a service share its topic's partitions."""
        return f"dovetail.{self.pipeline.name}.{service}"

    def topics(self) -> Iterator[Topic]:
        """Every topic of the pipeline, the shared ones included."""
        yield self.source
        yield self.clean
        for link in self.links:
            yield link.mapped
            yield link.missed
            yield link.migrations
            yield link.progress
            yield link.node_progress
        yield self.source_progress
        yield self.enriched
        yield self.unmatched
        yield self.dead_letter
        yield self.shed
        yield self.parked
        yield self.still_unmatched
        yield self.backfill
        yield self.states
        yield self.foreign
        yield self.requests
        yield Topic(CONTROL_TOPIC, 1, Keeps.LATEST)
        yield Topic(STATS_TOPIC, 1)
