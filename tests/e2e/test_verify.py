"""The oracle itself: it must see every way in which an output can be wrong.

No service runs here. A test plays the pipeline, first a faithful one and then one with a defect.
"""

from __future__ import annotations

import psycopg
import pytest
from confluent_kafka import Producer

from dovetail.errors import MasterDataError
from dovetail.pipeline.spec import Pipeline
from dovetail.settings import Settings
from dovetail.stream.topics import ensure_topics
from dovetail.topology import Topology
from dovetail.verify import ends_of, verify

EVENTS = [b'{"id":1}', b' {"id":2} ', b'{"id":1}', b"bad", None, b'{"id":3}']
ENRICHED = [
    (0, b'{"id":1,"name":"one"}'),
    (1, b'{"id":2,"name":"two"}'),
    (1, b'{"id":2,"name":"zwei"}'),
    (2, b'{"id":1,"name":"one"}'),
]
UNMATCHED = [(5, b'{"id":3}')]
DEAD = [(3, b"bad"), (4, None)]


class Played:
    """A pipeline whose part the test plays."""

    def __init__(self, bootstrap, database, name):
        self.pipeline = Pipeline.model_validate(
            {
                "name": name,
                "source": {"partitions": 1, "fields": {"id": "int"}},
                "key": "id",
                "master": {"table": "goods", "columns": ["name"]},
                "slots": 2,
            }
        )
        self.topology = Topology(self.pipeline)
        self.settings = Settings(bootstrap, database, "unused")
        self._producer = Producer(self.settings.client())
        with psycopg.connect(database) as connection:
            connection.execute("CREATE TABLE goods (id int, name text)")
            connection.execute("INSERT INTO goods VALUES (1, 'one'), (2, 'two'), (2, 'zwei')")
        ensure_topics(self.settings, self._topics())

    def _topics(self):
        topology = self.topology
        outputs = (topology.enriched, topology.unmatched, topology.dead_letter)
        return (topology.source, *outputs, topology.shed, topology.parked)

    def answer(self, enriched=(), unmatched=(), dead=(), shed=(), first=0):
        for topic, outputs in (
            (self.topology.enriched, enriched),
            (self.topology.unmatched, unmatched),
            (self.topology.shed, shed),
            (self.topology.dead_letter, dead),
        ):
            for offset, value in outputs:
                origin = f"{self.topology.source.name}/0/{first + offset}"
                self._send(topic, value, [("origin", origin.encode())])

    def send(self):
        for event in EVENTS:
            self._send(self.topology.source, event, [])

    def answer_without_origin(self, value, topic=None):
        self._send(topic or self.topology.enriched, value, [])

    def _send(self, topic, value, headers):
        self._producer.produce(topic.name, value, partition=0, headers=headers)
        assert self._producer.flush(30) == 0

    def tables(self):
        with psycopg.connect(self.settings.database_url) as connection:
            found = connection.execute(
                "SELECT relname FROM pg_class WHERE relkind = 'r' AND oid >= 16384"
            )
            return [name for (name,) in found]

    def verdict(self, begin=None):
        return verify(self.settings, self.pipeline, self.topology, begin=begin)


@pytest.fixture
def played(bootstrap, database, kafka_namespace):
    pipeline = Played(bootstrap, database, kafka_namespace.rstrip("-"))
    pipeline.send()
    return pipeline


def test_a_faithful_pipeline_equals_sql_and_the_database_is_left_as_it_was(played):
    played.answer(ENRICHED, UNMATCHED, DEAD)
    verdict = played.verdict()
    assert verdict.differences == []
    assert (verdict.events, verdict.expected, verdict.outputs) == (6, 4, 4)
    assert (verdict.unmatched, verdict.dead_letters) == (1, 2)
    assert played.tables() == ["goods"]


def test_every_defect_is_seen_and_counted(played):
    dropped, changed, misplaced = ENRICHED[0], ENRICHED[1], ENRICHED[2]
    doubled = ENRICHED[3]
    played.answer(
        enriched=[
            (changed[0], changed[1].upper()),
            (9, misplaced[1]),
            doubled,
            doubled,
            (5, b"\xff\0 no text"),
        ],
        unmatched=[(5, b'{"id": 3}'), (0, EVENTS[0])],
        dead=[(3, b"mad"), (0, EVENTS[0])],
    )
    played.answer_without_origin(dropped[1])
    verdict = played.verdict()
    seen = {text.partition(",")[0]: text for text in verdict.differences}
    assert seen.keys() == {
        f"{played.topology.enriched.name}: messages without a valid origin: 1",
        "output missing: 3",
        "output too much: 4",
        "unmatched missing: 1",
        "unmatched too much: 2",
        "dead letter missing: 1",
        "dead letter too much: 1",
        "dead letter with other bytes than the event: 1",
    }
    assert seen["dead letter missing: 1"].endswith("such as (0, 4) null")
    assert '0/0 {"id":1,"name":"one"}' in seen["output missing: 3"]
    assert verdict.expected == len(ENRICHED)
    assert not verdict.equal


def test_what_was_shed_is_expected_to_have_no_output(played):
    played.answer(ENRICHED[:3], UNMATCHED, DEAD, shed=[(2, EVENTS[2])])
    verdict = played.verdict()
    assert verdict.differences == []
    assert (verdict.events, verdict.expected, verdict.outputs, verdict.shed) == (6, 3, 3, 1)


def test_every_wrong_way_to_shed_is_seen(played):
    played.answer(
        ENRICHED,
        dead=DEAD,
        shed=[
            (1, EVENTS[1].strip()),  # and answered as well, twice
            (5, EVENTS[5]),
            (5, EVENTS[5]),  # twice
            (2, b'{"id":7}'),  # other bytes, and answered as well
            (3, EVENTS[3]),  # bad, and a dead letter
            (9, b'{"id":1}'),  # never sent
        ],
    )
    played.answer_without_origin(b"{}", played.topology.shed)
    verdict = played.verdict()
    assert {text.partition(",")[0] for text in verdict.differences} == {
        f"{played.topology.shed.name}: messages without a valid origin: 1",
        "shed too much: 4",
        "output too much: 3",
    }


def test_an_event_neither_shed_nor_answered_is_missing(played):
    played.answer(ENRICHED[:3], UNMATCHED, DEAD)
    assert [text.partition(",")[0] for text in played.verdict().differences] == [
        "output missing: 1"
    ]


def test_only_what_came_after_the_given_ends_is_compared(played):
    begin = ends_of(played.settings, played.topology)
    played.send()
    # The answers to the earlier events are still on their way, and not asked for.
    played.answer(ENRICHED[:1])
    played.answer(ENRICHED, UNMATCHED, DEAD, first=len(EVENTS))
    verdict = played.verdict(begin)
    assert verdict.differences == []
    assert verdict.events == len(EVENTS)


def test_without_the_master_table_the_oracle_says_what_it_needs(played, database):
    with psycopg.connect(database) as connection:
        connection.execute("DROP TABLE goods")
    with pytest.raises(MasterDataError, match="no table goods"):
        played.verdict()
