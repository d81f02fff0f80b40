"""Small messages to a topic that is sent compressed take less room, and are read as they were."""

from __future__ import annotations

import uuid

from dovetail.join.columns import Column
from dovetail.settings import Settings
from dovetail.stream.rdkafka import Producer
from dovetail.stream.topics import ensure_topics
from dovetail.topology import Topic
from dovetail.verify import read_all

ROWS = [b'{"sale":%d,"vendor":"A vendor with a long name"}' % number for number in range(5_000)]


def test_a_compressed_topic_takes_less_room_and_gives_the_same_messages(stack, tmp_path):
    settings = Settings(stack.bootstrap, stack.database_url, tmp_path)
    plain, packed = (Topic(f"room-{uuid.uuid4().hex}", 1) for _ in range(2))
    ensure_topics(settings, [plain, packed])
    rows = Column.of(ROWS)
    with Producer(settings.client({"linger.ms": 100}), compressed=[packed.name]) as producer:
        for topic in (plain, packed):
            producer.send_many(topic.name, 0, rows.data, rows.bounds, headers=[(b"via", b"cache")])
        producer.flush(30)
    room = {}
    for topic in (plain, packed):
        assert [message.value() for message in read_all(settings, topic)] == ROWS
        (segment,) = (stack.home.data / "kafka" / f"{topic.name}-0").glob("*.log")
        room[topic] = sum(1 for _ in segment.read_bytes().split(b"A vendor"))
    assert room[plain] > len(ROWS)
    assert room[packed] < len(ROWS) / 10
