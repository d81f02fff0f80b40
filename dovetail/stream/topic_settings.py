"""How a topic has to be set up: what is wrong with one that somebody else has made, and its cure.

source             its owner's alone; what deletes events early is warned of
the sink           takes messages of 1 MiB, Kafka's default: our batches are no larger. An event
with an output that is larger than what it takes is parked (node/answers.py)
all others         take whatever event there may be
internal ones      keep what is unread, or the latest of each key
what has no keys   is not compacted: a broker refuses messages without a key there
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    ConfigResource,
    ResourceType,
)

from dovetail.errors import ConfigError, Unavailable
from dovetail.permissions import describes_settings, not_allowed
from dovetail.stream.refusals import is_refused
from dovetail.stream.topics import admin_of
from dovetail.topology import DAY_MS, Keeps

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dovetail.settings import Settings
    from dovetail.topology import Topic

log = logging.getLogger(__name__)

LARGEST, POLICY = "max.message.bytes", "cleanup.policy"
TIME, SIZE = "retention.ms", "retention.bytes"
_READ = (LARGEST, POLICY, TIME, SIZE)
_EARLY_MS = 3600 * 1000
_TIMEOUT_S = 30.0


def require_settings(settings: Settings, topics: Iterable[Topic]) -> None:
    """Raise a ConfigError that names all that has to be set otherwise, and how that is done."""
    listed = list(topics)
    found = read_settings(settings, [topic.name for topic in listed])
    wrong = {topic.name: amends(topic, found[topic.name]) for topic in listed}
    texts = [_fault(settings, name, found[name], to) for name, to in wrong.items() if to]
    if texts:
        raise ConfigError("; ".join(texts))
    for topic in listed:
        _warn(topic, found[topic.name])


def largest_message(settings: Settings, topic: Topic) -> int:
    """The bytes of the largest message that a topic takes now."""
    return int(read_settings(settings, [topic.name])[topic.name][LARGEST])


def read_settings(settings: Settings, names: list[str]) -> dict[str, dict[str, str]]:
    """What concerns us of how these topics are set up."""
    admin, deadline = admin_of(settings), time.monotonic() + _TIMEOUT_S
    while True:
        wanted = [ConfigResource(ResourceType.TOPIC, name) for name in names]
        told = admin.describe_configs(wanted, request_timeout=_TIMEOUT_S)
        try:
            return {resource.name: _values(future.result()) for resource, future in told.items()}
        except KafkaException as error:
            cause: KafkaError = error.args[0]
            if is_refused(cause.code()):
                permissions = [describes_settings(name) for name in names]
                raise not_allowed(settings.user, permissions) from error
            # A topic is created before every broker has heard of it.
            young = cause.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
            if not young or time.monotonic() > deadline:
                text = f"the settings of topics cannot be read: {cause.str()}"
                raise Unavailable(text) from error
            time.sleep(0.1)


def amends(topic: Topic, found: Mapping[str, str]) -> dict[str, str]:
    """What has to be set otherwise, and to what."""
    to = {}
    if int(found[LARGEST]) < topic.takes:
        to[LARGEST] = str(topic.takes)
    policies = set(found[POLICY].split(","))
    if topic.keeps is Keeps.LATEST:
        if policies != {"compact"}:
            to[POLICY] = "compact"
    elif topic.keeps is Keeps.FOR_A_DAY:
        if "compact" not in policies:
            to[POLICY] = "[compact,delete]"
        if 0 <= int(found[TIME]) < DAY_MS:
            to[TIME] = str(DAY_MS)
    elif topic.takes and "compact" in policies:
        to[POLICY] = "delete"
    if topic.keeps is Keeps.UNREAD:
        to |= {name: "-1" for name in (TIME, SIZE) if found[name] != "-1"}
    return to


def _values(entries: Mapping[str, Any]) -> dict[str, str]:
    return {name: entries[name].value for name in _READ}


def _fault(settings: Settings, name: str, found: Mapping[str, str], to: dict[str, str]) -> str:
    has = ", ".join(f"{setting}={found[setting]}" for setting in to)
    wanted = ",".join(f"{setting}={value}" for setting, value in to.items())
    return (
        f"topic {name} has {has}, and the pipeline cannot use it so. Set it with: kafka-configs"
        f" --bootstrap-server {settings.bootstrap} --alter --entity-type topics --entity-name"
        f" {name} --add-config {wanted}"
    )


def _warn(topic: Topic, found: Mapping[str, str]) -> None:
    """Say what may delete events of the source before they are read."""
    if topic.takes:
        return
    policies = found[POLICY].split(",")
    if "compact" in policies:
        log.warning(
            "the source is compacted: of several events with a key, those that come late to be "
            "read may be deleted before",
            extra={"topic": topic.name, POLICY: found[POLICY]},
        )
    if "delete" in policies and 0 <= int(found[TIME]) < _EARLY_MS:
        log.warning(
            "the source keeps its events for less than an hour: what is not read by then is lost",
            extra={"topic": topic.name, TIME: found[TIME]},
        )
