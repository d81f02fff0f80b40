"""Topics that a user made on a real broker: what is wrong is said, and the cure cures it."""

import logging
import re
import shlex
import time
from contextlib import suppress

import pytest
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from dovetail.errors import ConfigError
from dovetail.pipeline.spec import Pipeline
from dovetail.settings import Settings
from dovetail.stream.acls import settle_topics
from dovetail.stream.topic_settings import largest_message
from dovetail.stream.topics import admin_of
from dovetail.topology import CACHE_PHASE, Topology

KAFKAS_OWN = {
    "max_message_bytes": "1048588",
    "cleanup_policy": "delete",
    "retention_ms": "604800000",
    "retention_bytes": "-1",
}
"""What a broker gives a topic that is made without a word; the local one's is set up otherwise."""


@pytest.fixture
def settings(stack):
    return Settings(stack.bootstrap, "postgresql://nowhere/none", "pipeline.yaml")


@pytest.fixture
def topology(kafka_namespace):
    shape = {
        "name": f"{kafka_namespace}pipeline",
        "source": {"topic": f"{kafka_namespace}sales", "fields": {"id": "int"}},
        "key": "id",
        "master": {"table": "goods", "columns": ["name"]},
        "sink": {"topic": f"{kafka_namespace}warehouse"},
    }
    return Topology(Pipeline.model_validate(shape))


def make(settings, topic, **config):
    dotted = {name.replace("_", "."): value for name, value in config.items()}
    new = NewTopic(topic.name, topic.partitions, -1, config=dotted)
    admin = admin_of(settings)
    admin.create_topics([new])[topic.name].result(30)


def cure(settings, message):
    """Do what the message says, as Kafka's own tool does it."""
    admin = admin_of(settings)
    commands = re.findall(r"kafka-configs [^;]*", message)
    for words in map(shlex.split, commands):
        topic = words[words.index("--entity-name") + 1]
        changes = words[words.index("--add-config") + 1]
        entries = [
            ConfigEntry(name, value.strip("[]"), incremental_operation=AlterConfigOpType.SET)
            for name, value in re.findall(r"([a-z.]+)=(\[[^]]*\]|[^,]*)", changes)
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        for future in admin.incremental_alter_configs([resource]).values():
            future.result(30)
    return len(commands)


def test_what_kafka_makes_by_default_will_do_for_source_and_sink(settings, topology):
    make(settings, topology.source, **KAFKAS_OWN)
    make(settings, topology.enriched, **KAFKAS_OWN)
    settle_topics(settings, topology, CACHE_PHASE)
    assert largest_message(settings, topology.enriched) == 1_048_588
    assert largest_message(settings, topology.parked) == 16 << 20


def test_all_that_is_wrong_is_said_at_once_and_the_cure_cures_it(settings, topology):
    make(settings, topology.enriched, cleanup_policy="compact", max_message_bytes="1000")
    make(settings, topology.mapped, **KAFKAS_OWN)
    make(settings, topology.migrations, **KAFKAS_OWN)
    with pytest.raises(ConfigError) as raised:
        settle_topics(settings, topology, CACHE_PHASE)
    message = str(raised.value)
    assert f"topic {topology.enriched.name} has max.message.bytes=1000, cleanup.policy=compact" in (
        message
    )
    assert (
        f"topic {topology.mapped.name} has max.message.bytes=1048588, retention.ms=6048" in message
    )
    assert cure(settings, message) == 3
    # A broker hears of it a moment later.
    for _ in range(100):
        with suppress(ConfigError):
            settle_topics(settings, topology, CACHE_PHASE)
            break
        time.sleep(0.1)
    else:
        settle_topics(settings, topology, CACHE_PHASE)


def test_a_source_that_may_delete_events_early_is_warned_of(settings, topology, caplog):
    make(settings, topology.source, retention_ms="60000", cleanup_policy="compact,delete")
    with caplog.at_level(logging.WARNING):
        settle_topics(settings, topology, CACHE_PHASE)
    assert "less than an hour" in caplog.text
    assert "is compacted" in caplog.text
