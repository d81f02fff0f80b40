"""What has to be set otherwise of a topic, for each kind of them."""

import pytest

from dovetail.errors import Unavailable
from dovetail.settings import Settings
from dovetail.stream import topic_settings
from dovetail.stream.topic_settings import amends, largest_message
from dovetail.topology import Keeps, Topic

KAFKAS_OWN = {
    "max.message.bytes": "1048588",
    "cleanup.policy": "delete",
    "retention.ms": "604800000",
    "retention.bytes": "-1",
}
ROOM = {"max.message.bytes": str(16 << 20)}
UNREAD = Topic("clean", 1, Keeps.UNREAD)
LATEST = Topic("migrations", 1, Keeps.LATEST)
FOR_A_DAY = Topic("requests", 1, Keeps.FOR_A_DAY)
ASIDE = Topic("unmatched", 1)
SINK = Topic("enriched", 1, takes=1 << 20)
SOURCE = Topic("sales", 1, takes=0)


@pytest.mark.parametrize("topic", [UNREAD, LATEST, FOR_A_DAY, ASIDE], ids=lambda topic: topic.name)
def test_as_we_make_them_nothing_is_wrong(topic):
    assert amends(topic, KAFKAS_OWN | topic.config) == {}


@pytest.mark.parametrize("topic", [SOURCE, SINK], ids=lambda topic: topic.name)
def test_the_users_own_topics_may_be_as_kafka_makes_them(topic):
    assert amends(topic, KAFKAS_OWN) == {}


def test_what_takes_too_little():
    small = {**KAFKAS_OWN, "max.message.bytes": "1000"}
    assert amends(SOURCE, small) == {}
    assert amends(SINK, small) == {"max.message.bytes": "1048576"}
    assert amends(ASIDE, KAFKAS_OWN) == ROOM


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_what_has_no_keys_is_not_compacted(policy):
    compacted = {**KAFKAS_OWN, **ROOM, "cleanup.policy": policy}
    assert amends(SOURCE, compacted) == {}
    for topic in (SINK, ASIDE):
        assert amends(topic, compacted) == {"cleanup.policy": "delete"}


def test_what_is_unread_is_kept():
    assert amends(UNREAD, {**KAFKAS_OWN, **ROOM, "retention.bytes": "5"}) == {
        "retention.ms": "-1",
        "retention.bytes": "-1",
    }


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_what_keeps_the_latest_is_compacted_and_nothing_else(policy):
    found = {**KAFKAS_OWN, **ROOM, "cleanup.policy": policy}
    assert amends(LATEST, found) == {"cleanup.policy": "compact"}


def test_requests_are_known_for_a_day():
    found = {**KAFKAS_OWN, **ROOM, "retention.ms": "1000"}
    assert amends(FOR_A_DAY, found) == {
        "cleanup.policy": "[compact,delete]",
        "retention.ms": "86400000",
    }
    assert amends(FOR_A_DAY, {**found, "cleanup.policy": "compact", "retention.ms": "-1"}) == {}


def test_a_broker_that_is_away_is_told_as_one(monkeypatch):
    """And not as a time-out of Python's, which nobody waits out."""
    monkeypatch.setattr(topic_settings, "_TIMEOUT_S", 0.5)
    nowhere = Settings("127.0.0.1:1", "postgresql://nowhere/none", "pipeline.yaml")
    with pytest.raises(Unavailable):
        largest_message(nowhere, SINK)
