"""What each service may do on Kafka, and no more: derived from the topology.

    reads a topic    READ on it, and DESCRIBE on the groups `<topic>.…` by which it is read without
                     being a member of one (librdkafka looks up the coordinator of any group)
    is a stage       READ on its own group, whose name is the service's in the pipeline, and WRITE
                     on the transactional ids behind it, one a node
    writes a topic   WRITE on it, and DESCRIBE_CONFIGS, to see at the start whether it takes what
                     will be written

    is a job         the same for whatever it reads and writes; Spark's own reader is in no group

READ, WRITE, DELETE and ALTER let a thing be described as well, as Kafka has it. WRITE on any topic
lets a producer be idempotent: nothing on the cluster is needed. Only control creates topics; ingest
may add partitions to `clean`, when the source has got some.

The user of a service or a job is named like a group: `dovetail.<pipeline>.<service>`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from dovetail.errors import NotAllowedError
from dovetail.topology import (
    BACKFILL,
    CACHE_PHASE,
    CONTROL,
    CONTROL_TOPIC,
    DISK_PHASE,
    ENRICH,
    INGEST,
    MAPPER,
    NODE,
    STATS_TOPIC,
    Keeps,
    Topology,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from dovetail.topology import Stage

GENERATOR = "generator"
"""Who sends events: the demo's, or the user's own."""
FREQUENCY = "frequency"
"""The job on Spark that plans caches (services/spark/frequency.py); snapshot needs no Kafka."""
PLAN = "plan"
"""Behind which the plan's transactional id is named."""
APPLY = "dovetail permissions <pipeline's file> --apply"


class Operation(StrEnum):
    READ = "READ"
    WRITE = "WRITE"
    CREATE = "CREATE"
    DELETE = "DELETE"
    ALTER = "ALTER"
    DESCRIBE = "DESCRIBE"
    DESCRIBE_CONFIGS = "DESCRIBE_CONFIGS"


class Resource(StrEnum):
    TOPIC = "topic"
    GROUP = "group"
    TRANSACTIONAL_ID = "transactional-id"


_DESCRIBING = frozenset({Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER})


@dataclass(frozen=True, slots=True, order=True)
class Permission:
    """An operation on what has this name, or begins with it."""

    resource: Resource
    name: str
    operation: Operation
    prefixed: bool = False

    def __str__(self) -> str:
        return f"{self.operation} on {self.resource} {self.name}{'*' if self.prefixed else ''}"

    def grant(self, user: str) -> str:
        """The command of Kafka's own that gives it."""
        pattern = " --resource-pattern-type prefixed" if self.prefixed else ""
        return (
            f"kafka-acls --add --allow-principal 'User:{user}' --operation {self.operation}"
            f" --{self.resource} '{self.name}'{pattern}"
        )


def not_allowed(user: str, missing: Iterable[Permission]) -> NotAllowedError:
    """Say which permissions are missing, and how they are given."""
    listed = list(missing)
    what = ", ".join(str(permission) for permission in listed)
    grants = "; ".join(permission.grant(user) for permission in listed)
    lacks = "the Kafka ACL" if len(listed) == 1 else "the Kafka ACLs"
    return NotAllowedError(
        f"user {user or '(none)'} lacks {lacks} {what}. Grant it with: {grants}. All that the"
        f" pipeline needs is granted by: {APPLY}"
    )


def users(topology: Topology) -> dict[str, str]:
    """The user of each service, in the order in which the data flows, and of each job on Spark."""
    # A chain's events are not completed.
    jobs = [FREQUENCY, BACKFILL] if topology.pipeline.links == 1 else [FREQUENCY]
    return {
        service: topology.group(service)
        for service in (GENERATOR, *topology.commanded, CONTROL, *jobs)
    }


def permissions_of(topology: Topology, service: str) -> tuple[Permission, ...]:
    """All that a service needs; sorted, each once, and none that another one implies."""
    found = set(_needed(topology, service))
    implied = {
        replace(one, operation=Operation.DESCRIBE) for one in found if one.operation in _DESCRIBING
    }
    left = found - implied
    return tuple(sorted(one for one in left if not any(_includes(two, one) for two in left)))


def _includes(wider: Permission, one: Permission) -> bool:
    """Whether one is of no use beside another: a source `sales` has the groups `sales.…`."""
    alike = (wider.resource, wider.operation) == (one.resource, one.operation)
    return alike and wider != one and wider.prefixed and one.name.startswith(wider.name)


def _needed(topology: Topology, service: str) -> Iterator[Permission]:
    if service == GENERATOR:
        yield writes(topology.source.name)
    elif service in _OTHERS:
        yield from _OTHERS[service](topology)
    else:
        stage = topology.stage(service)
        for one in topology.of_process(service):
            yield from _of_stage(topology, one)
        yield from _of_kind(topology.links[stage.link - 1], stage.kind)


def _of_stage(topology: Topology, stage: Stage) -> Iterator[Permission]:
    """What every stage does: its step (loop.py), its orders and its heartbeat."""
    group = topology.group(stage.keeper)
    yield Permission(Resource.TOPIC, stage.reads.name, Operation.READ)
    yield Permission(Resource.GROUP, group, Operation.READ)
    yield Permission(Resource.TRANSACTIONAL_ID, f"{group}.", Operation.WRITE, prefixed=True)
    for topic in stage.writes:
        yield writes(topic.name)
        yield describes_settings(topic.name)
    # Whether it has written before (forgotten.py).
    for topic in topology.witnesses(stage):
        yield Permission(Resource.TOPIC, topic.name, Operation.DESCRIBE)
    yield from reads(CONTROL_TOPIC)
    yield writes(STATS_TOPIC)


def _of_kind(link: Topology, kind: str) -> Iterator[Permission]:
    """What a stage does beside its step."""
    if kind == INGEST:
        yield from _of_first(link)
        yield Permission(Resource.TOPIC, link.clean.name, Operation.ALTER)
    elif kind == NODE:
        yield from _of_first(link) if link.number == 1 else _sees_spark(link)
        yield from reads(link.migrations.name)
        yield from reads(link.told_progress.name)
        # Whether the split layout has left anything (engines.py).
        yield from _of_audit(link)
    elif kind == MAPPER and link.pipeline.overload:
        for service in (MAPPER, CACHE_PHASE, DISK_PHASE):
            yield from looks_at(link.group(service), link.stage(service).reads.name)
        yield from reads(link.migrations.name)
    elif kind == CACHE_PHASE:
        yield from reads(link.migrations.name)
    elif kind == DISK_PHASE:
        yield from reads(link.progress.name)


def _of_first(topology: Topology) -> Iterator[Permission]:
    """What the stage does that reads the source."""
    yield describes_settings(topology.source.name)
    yield from _of_requests(topology)
    yield from _sees_spark(topology)


def _sees_spark(topology: Topology) -> Iterator[Permission]:
    """Whether Spark has run the pipeline (engines.py)."""
    yield Permission(Resource.TOPIC, topology.states.name, Operation.DESCRIBE)
    yield from _of_old_states(topology)


def _of_requests(topology: Topology) -> Iterator[Permission]:
    """Events by HTTP, and their idempotency keys."""
    yield writes(topology.source.name)
    yield writes(topology.requests.name)
    yield from reads(topology.requests.name)


def _of_control(topology: Topology) -> Iterator[Permission]:
    for topic in topology.topics():
        yield Permission(Resource.TOPIC, topic.name, Operation.CREATE)
        yield Permission(Resource.TOPIC, topic.name, Operation.DESCRIBE)
        yield describes_settings(topic.name)
    yield Permission(Resource.TOPIC, topology.clean.name, Operation.ALTER)
    yield writes(CONTROL_TOPIC)
    yield from reads(STATS_TOPIC)
    # The sum of all ledgers (audit.py), and what waits in front of ingest.
    yield from _of_audit(topology)
    if topology.by_spark:
        yield from reads(topology.states.name)
        yield from _of_old_states(topology)
    yield from reads(topology.source.name)
    # What a stage has read is purged.
    for stage in topology.ledgers:
        if stage.reads.keeps is Keeps.UNREAD:
            yield Permission(Resource.TOPIC, stage.reads.name, Operation.DELETE)
    # Dead letters and parked events are shown, and sent again.
    yield from reads(topology.dead_letter.name)
    yield from reads(topology.parked.name)
    yield writes(topology.source.name)
    yield transacts(topology.group("replay"))


def _of_old_states(topology: Topology) -> Iterator[Permission]:
    """What a release before this one has left beside offsets (stream/old_states.py)."""
    for topic in (topology.clean, *(link.mapped for link in topology.links)):
        yield from looks_at(topology.group(ENRICH), topic.name)


def _of_audit(topology: Topology) -> Iterator[Permission]:
    """What the services have behind them, and backfill."""
    for stage in topology.ledgers:
        yield from looks_at(topology.group(stage.service), stage.reads.name)
    yield from reads(topology.backfill.name)


def _of_enrich(topology: Topology) -> Iterator[Permission]:
    """The whole pipeline on Spark: its slots' states are messages on `states`."""
    group = topology.group(ENRICH)
    yield Permission(Resource.TOPIC, topology.source.name, Operation.READ)
    yield describes_settings(topology.source.name)
    yield transacts(group)
    yield Permission(Resource.TRANSACTIONAL_ID, f"{group}.", Operation.WRITE, prefixed=True)
    yield from reads(topology.states.name)
    # Where a release before this one had them, and the number of its run, which ends it.
    yield Permission(Resource.GROUP, group, Operation.READ)
    yield Permission(Resource.TOPIC, topology.clean.name, Operation.READ)
    for link in topology.links:
        yield Permission(Resource.TOPIC, link.mapped.name, Operation.READ)
        yield from reads(link.migrations.name)
    answers = (topology.enriched, topology.unmatched, topology.parked)
    for topic in (*answers, topology.dead_letter, topology.shed, topology.states):
        yield writes(topic.name)
        yield describes_settings(topic.name)
    yield from reads(CONTROL_TOPIC)
    yield writes(STATS_TOPIC)
    # What the services have left, where they ran the pipeline before (engines.py).
    yield from _of_audit(topology)
    yield from _of_requests(topology)
    # Ingest's own, to end what it may have under way, and that of its events by HTTP.
    ids = f"{topology.group(INGEST)}."
    yield Permission(Resource.TRANSACTIONAL_ID, ids, Operation.WRITE, prefixed=True)


def _of_frequency(topology: Topology) -> Iterator[Permission]:
    yield Permission(Resource.TOPIC, topology.source.name, Operation.READ)
    yield from reads(topology.migrations.name)
    yield writes(topology.migrations.name)
    yield transacts(topology.group(PLAN))


def _of_backfill(topology: Topology) -> Iterator[Permission]:
    still = topology.still_unmatched
    for topic in (topology.shed, topology.unmatched, topology.parked, still):
        yield Permission(Resource.TOPIC, topic.name, Operation.READ)
    for topic in (
        topology.enriched,
        topology.unmatched,
        topology.parked,
        still,
        topology.backfill,
    ):
        yield writes(topic.name)
        yield describes_settings(topic.name)
    # What was looked at again is written anew, and purged.
    yield Permission(Resource.TOPIC, still.name, Operation.DELETE)
    yield from reads(topology.backfill.name)
    group = topology.group(BACKFILL)
    yield transacts(group)
    yield Permission(Resource.TRANSACTIONAL_ID, f"{group}.", Operation.WRITE, prefixed=True)


_OTHERS: dict[str, Callable[[Topology], Iterator[Permission]]] = {
    CONTROL: _of_control,
    ENRICH: _of_enrich,
    FREQUENCY: _of_frequency,
    BACKFILL: _of_backfill,
}


def reads(topic: str) -> tuple[Permission, Permission]:
    """Reading a topic without a group: see the module's header."""
    return (
        Permission(Resource.TOPIC, topic, Operation.READ),
        Permission(Resource.GROUP, f"{topic}.", Operation.DESCRIBE, prefixed=True),
    )


def looks_at(group: str, topic: str) -> tuple[Permission, Permission]:
    """Reading what a group has committed, from outside of it."""
    return (
        Permission(Resource.TOPIC, topic, Operation.DESCRIBE),
        Permission(Resource.GROUP, group, Operation.DESCRIBE),
    )


def writes(topic: str) -> Permission:
    return Permission(Resource.TOPIC, topic, Operation.WRITE)


def describes_settings(topic: str) -> Permission:
    return Permission(Resource.TOPIC, topic, Operation.DESCRIBE_CONFIGS)


def transacts(name: str) -> Permission:
    """Being the one who has a transactional id."""
    return Permission(Resource.TRANSACTIONAL_ID, name, Operation.WRITE)
