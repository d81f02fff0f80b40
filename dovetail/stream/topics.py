"""Creates a pipeline's topics where they are missing, and refuses ones of the wrong shape."""

from __future__ import annotations

import contextlib
import logging
import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)

from dovetail.errors import ConfigError, NotAllowedError, Unavailable
from dovetail.permissions import Operation, Permission, Resource, not_allowed
from dovetail.stream.places import Span
from dovetail.stream.rdkafka import KafkaFailure
from dovetail.stream.refusals import Strangers, client_of, is_refused

if TYPE_CHECKING:
    from collections.abc import Iterable

    from confluent_kafka import Consumer

    from dovetail.settings import Settings
    from dovetail.topology import Topic

log = logging.getLogger(__name__)

_TIMEOUT_S = 30
_LEADERS_S = 5
_LOOK_S = 3
"""So long at most until it is looked why nobody answers."""
_SETTLING = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError._NOENT,  # noqa: SLF001 - its public name; no leader is known to the client
    }
)
"""For a moment after a topic is created or a broker started, its leader is not known to all."""


def admin_of(settings: Settings) -> AdminClient:
    # What matters comes back as an error; the client's own log would only tell it again.
    return client_of(AdminClient, settings.client({"log_level": 0}))


def connected(settings: Settings) -> tuple[AdminClient, Strangers]:
    """Give a client that has reached the broker; raise if they do not trust each other."""
    strangers = Strangers(settings)
    quiet: dict[str, Any] = {"log_level": 0, "error_cb": strangers}
    admin = client_of(AdminClient, {**settings.client(), **quiet})
    _partitions(settings, admin, strangers)
    return admin, strangers


def answers(settings: Settings, timeout_s: float) -> bool:
    """Whether a broker does."""
    try:
        admin_of(settings).list_topics(timeout=timeout_s)
    except KafkaException:
        return False
    return True


def ensure_topics(settings: Settings, topics: Iterable[Topic], replication: int = -1) -> None:
    """Create what is missing; -1 leaves the replication to the broker's default.

    Who may not create topics waits until somebody else has.
    """
    admin, strangers = connected(settings)
    wanted = {topic.name: topic for topic in topics}
    present = _partitions(settings, admin, strangers)
    missing = [topic for name, topic in wanted.items() if name not in present]
    if missing:
        _require_described(settings, admin, missing)
        refused = _create(settings, admin, missing, replication)
        present = _await(settings, admin, strangers, set(wanted), refused)
    for name, topic in wanted.items():
        too_many = present[name] > topic.partitions and not topic.grows
        if present[name] < topic.partitions or too_many:
            raise ConfigError(
                f"topic {name} has {present[name]} partitions but the pipeline wants "
                f"{topic.partitions}; set `slots` (or `source.partitions`) to {present[name]}, "
                f"or delete the topic while the pipeline is stopped"
            )


def partitions_of(client: AdminClient | Consumer, topic: Topic) -> int:
    """How many partitions a topic has now; only one that grows is looked at."""
    if not topic.grows:
        return topic.partitions
    try:
        told = client.list_topics(topic.name, timeout=_TIMEOUT_S).topics[topic.name]
    except KafkaException as error:
        raise Unavailable(f"{topic.name} cannot be looked up: {error}") from error
    # Of one that is not there, or not yet known to all, there is no number.
    return max(topic.partitions, len(told.partitions))


def keep_up(settings: Settings, source: Topic, clean: Topic) -> int:
    """Give `clean` a partition for each of the source's; return how many it has."""
    admin = admin_of(settings)
    wanted = partitions_of(admin, source)
    if (found := partitions_of(admin, clean)) >= wanted:
        return found
    try:
        more = [NewPartitions(clean.name, wanted)]
        admin.create_partitions(more, request_timeout=_TIMEOUT_S)[clean.name].result()
    except KafkaException as error:
        code = error.args[0].code()
        if is_refused(code):
            altering = Permission(Resource.TOPIC, clean.name, Operation.ALTER)
            raise not_allowed(settings.user, [altering]) from error
        # Another process may have been faster.
        if code != KafkaError.INVALID_PARTITIONS:
            text = f"{clean.name} cannot be given {wanted} partitions: {error}"
            raise Unavailable(text) from error
    deadline = time.monotonic() + _TIMEOUT_S
    while (found := partitions_of(admin, clean)) < wanted:
        if time.monotonic() > deadline:
            raise Unavailable(f"{clean.name} has {found} partitions still, and not {wanted}")
        time.sleep(0.1)
    log.info("partitions added", extra={"topic": clean.name, "partitions": found})
    return found


def beginnings(admin: AdminClient, topic: Topic) -> list[int]:
    """The first offset of each partition that is still there."""
    return _offsets(admin, topic, OffsetSpec.earliest())  # type: ignore[no-untyped-call]


def ends(admin: AdminClient, topic: Topic) -> list[int]:
    """Where each partition ends for a reader of committed messages."""
    return _offsets(admin, topic, OffsetSpec.latest())  # type: ignore[no-untyped-call]


def spans(admin: AdminClient, topic: Topic) -> dict[int, Span]:
    """What the broker has of each partition, with transactions that are open."""
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    # In this order: what is deleted in between was there.
    first = beginnings(admin, topic)
    written = _offsets(admin, topic, latest, IsolationLevel.READ_UNCOMMITTED)
    return {number: Span(*both) for number, both in enumerate(zip(first, written, strict=False))}


def settled_ends(admin: AdminClient, topic: Topic) -> list[int | None]:
    """Where each partition ends; None where somebody's transaction is open."""
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    # In this order: what is written in between is not taken for open.
    written = _offsets(admin, topic, latest, IsolationLevel.READ_UNCOMMITTED)
    stable = ends(admin, topic)
    return [at if at >= written[number] else None for number, at in enumerate(stable)]


def unstable(admin: AdminClient, topic: Topic) -> list[int]:
    """The partitions on which somebody's transaction is open."""
    return [number for number, end in enumerate(settled_ends(admin, topic)) if end is None]


def _offsets(
    admin: AdminClient,
    topic: Topic,
    wanted: OffsetSpec,
    isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
) -> list[int]:
    numbers = range(partitions_of(admin, topic))
    asked = {TopicPartition(topic.name, number): wanted for number in numbers}
    deadline = time.monotonic() + _TIMEOUT_S
    while True:
        futures = admin.list_offsets(asked, isolation_level=isolation)
        try:
            found = {at.partition: future.result().offset for at, future in futures.items()}
            return [found[number] for number in numbers]
        except KafkaException as error:
            told: KafkaError = error.args[0]
            if told.code() not in _SETTLING or time.monotonic() > deadline:
                doing = f"reading the offsets of {topic.name}"
                raise KafkaFailure(doing, told.code(), told.str()) from error
            time.sleep(0.1)
            _ask_for_leaders(admin, topic)


def _ask_for_leaders(admin: AdminClient, topic: Topic) -> None:
    """Make the client forget the leaders it knows from before a broker's restart.

    It asks for offsets by what it remembers, is told that this is out of date, and remembers
    it all the same for five minutes (librdkafka 2.16).
    """
    # A broker that does not answer now is found out by the next try.
    with contextlib.suppress(KafkaException):
        admin.list_topics(topic.name, timeout=_LEADERS_S)


def _require_described(settings: Settings, admin: AdminClient, topics: list[Topic]) -> None:
    """Tell what is not there from what is hidden from this user."""
    hidden = []
    for topic in topics if settings.is_known else ():
        try:
            told = admin.list_topics(topic.name, timeout=_TIMEOUT_S).topics[topic.name].error
        except KafkaException as error:
            raise Unavailable(f"{topic.name} cannot be looked up: {error}") from error
        if told is not None and told.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            hidden.append(Permission(Resource.TOPIC, topic.name, Operation.DESCRIBE))
    if hidden:
        raise not_allowed(settings.user, hidden)


def _create(
    settings: Settings, admin: AdminClient, topics: list[Topic], replication: int
) -> NotAllowedError | None:
    """Create these topics; give back why that is not this user's to do."""
    futures = admin.create_topics(
        [
            NewTopic(topic.name, topic.partitions, replication, config=topic.config)
            for topic in topics
        ],
        request_timeout=_TIMEOUT_S,
    )
    refused: list[Permission] = []
    for name, future in futures.items():
        try:
            future.result()
        except KafkaException as error:
            code = error.args[0].code()
            if is_refused(code):
                creating = Permission(Resource.TOPIC, name, Operation.CREATE)
                refused.append(creating)
            # Another service of the pipeline may have been faster.
            elif code != KafkaError.TOPIC_ALREADY_EXISTS:
                raise Unavailable(f"topic {name} cannot be created: {error}") from error
    return not_allowed(settings.user, refused) if refused else None


def _partitions(settings: Settings, admin: AdminClient, strangers: Strangers) -> dict[str, int]:
    """The number of partitions of every topic that this user may know of."""
    deadline = time.monotonic() + _TIMEOUT_S
    while True:
        try:
            topics = admin.list_topics(timeout=_LOOK_S).topics
        except KafkaException as error:
            admin.poll(0)
            strangers.check()
            if time.monotonic() < deadline:
                continue
            raise Unavailable(
                f"no Kafka broker answers at {settings.bootstrap}: is it running, and is "
                f"KAFKA_BOOTSTRAP right? ({strangers.reason or error.args[0].str()})"
            ) from error
        return {name: len(topic.partitions) for name, topic in topics.items()}


def _await(
    settings: Settings,
    admin: AdminClient,
    strangers: Strangers,
    names: set[str],
    refused: NotAllowedError | None,
) -> dict[str, int]:
    """A topic is created before every broker has heard of it, and perhaps by somebody else."""
    deadline = time.monotonic() + _TIMEOUT_S
    while True:
        present = _partitions(settings, admin, strangers)
        if names <= present.keys():
            return present
        if time.monotonic() > deadline:
            if refused is not None:
                raise refused
            raise Unavailable(
                f"topics not there after {_TIMEOUT_S} s: {sorted(names - present.keys())}"
            )
        time.sleep(0.1)
