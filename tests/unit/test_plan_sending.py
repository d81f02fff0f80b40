"""Who makes room for a plan, and what caches are known to have."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.errors import Unavailable
from dovetail.join.columns import JoinKeys
from dovetail.pipeline.spec import Pipeline
from dovetail.settings import Settings
from dovetail.testing.fakes import InMemoryMaster, RecordingProducer, join_keys
from dovetail.topology import Topology
from services.spark import plan_sending
from services.spark.kafka import java_options, kafka_options
from services.spark.plan_sending import Held, Part, Sending

PIPELINE = Pipeline.model_validate(
    {
        "name": "sales",
        "source": {"fields": {"id": "int"}},
        "key": "id",
        "master": {"table": "goods", "columns": ["name"]},
    }
)
MIGRATIONS = Topology(PIPELINE).migrations.name


def ints(values):
    return np.array(values, np.int64)


def held_of(keys):
    """Keys with their slot, time and blocks."""
    found = sorted(keys)
    columns = [ints([keys[key][field] for key in found]) for field in range(3)]
    return Held(JoinKeys.of_ints(ints(found)), columns[0].astype(np.int32), *columns[1:])


def part_of(keys, slot=0):
    events = np.full(len(keys), 5, np.int64)
    return Part(slot, JoinKeys.of_ints(ints(list(keys))), events, ints(list(keys.values())))


def leaving(room, part, held):
    sending = Sending(Settings("none", "none", Path()), PIPELINE, Topology(PIPELINE), room)
    gone = sending._making_room(part, held.places(part.keys), held)
    return held.keys.values[gone].tolist()


def test_nobody_leaves_while_there_is_room():
    held = held_of({1: (0, 10, 4), 2: (0, 11, 4)})
    assert leaving(12, part_of({3: 4}), held) == []


def test_whose_rows_are_the_oldest_leaves_first_and_no_more_than_have_to():
    held = held_of({1: (0, 30, 4), 2: (0, 10, 4), 4: (0, 20, 4), 9: (1, 1, 4)})
    assert leaving(12, part_of({3: 4}), held) == [2]
    assert leaving(12, part_of({3: 5}), held) == [2, 4]


def test_a_planned_key_that_is_held_neither_leaves_nor_takes_more_room():
    held = held_of({1: (0, 10, 4), 2: (0, 20, 4)})
    assert leaving(8, part_of({1: 4}), held) == []
    assert leaving(8, part_of({1: 4, 3: 4}), held) == [2]


class Transactions(RecordingProducer):
    """Shows what is committed; nothing may be read while one is open."""

    def __init__(self):
        super().__init__()
        self.open = False
        self.committed = []

    def begin(self):
        assert not self.open
        self.open = True

    def commit(self):
        self.committed.append([(one.key, one.value is None) for one in self.sent[MIGRATIONS]])
        self.abort(0)

    def abort(self, _):
        self.open = False
        self.sent.clear()

    def close(self):
        pass


class SlowMaster(InMemoryMaster):
    """Fails if a transaction waits for it, or when it was asked so often."""

    def __init__(self, rows, producer, reads):
        super().__init__(rows)
        self.producer, self.reads = producer, reads

    def read(self, request, most):
        assert not self.producer.open
        if self.queries == self.reads:
            self.outage = "it is away"
        return super().read(request, most)


@pytest.fixture
def send(monkeypatch):
    """Send a plan of ten keys, where two others hold what room there is."""
    monkeypatch.setattr(plan_sending, "_AT_ONCE", 4)
    monkeypatch.setattr(plan_sending, "take_over", lambda *_: None)
    held = held_of({50: (0, 1, 4), 51: (0, 2, 4)})

    def run(reads, planned=range(10)):
        producer = Transactions()
        master = SlowMaster({key: [b'{"name":"x"}'] for key in planned}, producer, reads)
        monkeypatch.setattr(plan_sending, "relation_of", lambda *_: master)
        monkeypatch.setattr(Sending, "_producer", lambda _: producer)
        monkeypatch.setattr(Sending, "_held", lambda _: held)
        sending = Sending(Settings("none", "none", Path()), PIPELINE, Topology(PIPELINE), 4)
        try:
            return producer, sending.send([part_of(dict.fromkeys(planned, 2))])
        except Unavailable:
            assert master.closed
            return producer, None

    return run


def test_rows_are_read_before_a_transaction_begins_and_sent_as_they_are_read(send):
    producer, sent = send(reads=9)
    first, *others = producer.committed
    assert [len(one) for one in others] == [4, 2]
    assert sorted(first) == sorted(
        [(b"50", True), (b"51", True), *((b"%d" % key, False) for key in range(4))]
    )
    assert (sent.keys, sent.evicted) == (10, 2)


def test_what_was_sent_before_the_database_was_lost_stays_sent(send):
    producer, sent = send(reads=2)
    assert sent is None
    assert len(producer.committed) == 2


def test_nobody_leaves_for_rows_that_cannot_be_read(send):
    producer, _ = send(reads=0)
    assert producer.committed == []


def test_a_plan_without_keys_makes_room_all_the_same(send):
    producer, sent = send(reads=0, planned=())
    assert producer.committed == [[(b"50", True)]]
    assert (sent.keys, sent.evicted) == (0, 1)


@settings(deadline=None)
@given(
    keys=st.dictionaries(
        st.integers(0, 30), st.tuples(st.integers(0, 1), st.integers(0, 9), st.integers(2, 6))
    ),
    planned=st.dictionaries(st.integers(0, 30), st.integers(2, 6)),
    room=st.integers(0, 150),
)
def test_what_stays_and_what_comes_fit_or_only_planned_keys_are_left(keys, planned, room):
    gone = leaving(room, part_of(planned), held_of(keys))
    assert not set(gone) & set(planned)
    assert all(keys[key][0] == 0 for key in gone)
    stays = {key: takes for key, (slot, _, takes) in keys.items() if slot == 0 and key not in gone}
    # A key of this slot that is held as planned counts as the cache has it.
    comes = {key: takes for key, takes in planned.items() if key not in keys}
    total = sum(stays.values()) + sum(comes.values())
    assert total <= room or not stays.keys() - planned.keys()
    if gone:
        last = gone[-1]
        assert total + keys[last][2] > room


def test_keys_are_found_where_they_stand():
    held = held_of({5: (0, 0, 2), -7: (0, 0, 2), 2**63 - 1: (0, 0, 2)})
    found = held.places(join_keys([2**63 - 1, 0, -7, -(2**63)]))
    assert found.tolist() == [2, -1, 0, -1]
    assert held_of({}).places(join_keys([1, 2])).tolist() == [-1, -1]


def test_kafka_is_reached_by_spark_as_by_everybody_else():
    kafka = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "shop",
        "sasl.password": 'p"w\\',
        "ssl.ca.location": "/ca.pem",
    }
    options = kafka_options(Settings("broker:9092", "none", Path(), kafka=kafka))
    assert options["kafka.bootstrap.servers"] == "broker:9092"
    assert options["kafka.security.protocol"] == "SASL_SSL"
    assert options["kafka.ssl.truststore.location"] == "/ca.pem"
    assert options["kafka.sasl.jaas.config"] == (
        "org.apache.kafka.common.security.scram.ScramLoginModule required"
        ' username="shop" password="p\\"w\\\\";'
    )


def test_spark_fetches_tokens_where_everybody_else_does():
    endpoint = "https://identity/token"
    kafka = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": endpoint,
        "sasl.oauthbearer.client.id": "shop",
        "sasl.oauthbearer.client.secret": 'p"w',
        "https.ca.location": "/ca.pem",
    }
    settings = Settings("broker:9092", "none", Path(), kafka=kafka)
    options = kafka_options(settings)
    assert options["kafka.sasl.mechanism"] == "OAUTHBEARER"
    assert options["kafka.sasl.oauthbearer.token.endpoint.url"] == endpoint
    assert options["kafka.sasl.jaas.config"] == (
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
        ' clientId="shop" clientSecret="p\\"w" ssl.truststore.type="PEM"'
        ' ssl.truststore.location="/ca.pem";'
    )
    assert java_options(settings).endswith(f"allowed.urls={endpoint}")
    assert java_options(Settings("broker:9092", "none", Path())) == ""
