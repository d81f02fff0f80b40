"""Keys into caches over a real broker."""

import re
import time
from pathlib import Path

import numpy as np
import pytest

from dovetail.join.caching import CachePhase
from dovetail.join.columns import Column, JoinKeys
from dovetail.join.entry import Entries, MasterRows
from dovetail.join.keys import hash_text_many
from dovetail.join.mapper import Mapper
from dovetail.settings import Settings
from dovetail.stream import migrations
from dovetail.stream.migrations import MigrationReader, send_evictions, send_migrations
from dovetail.stream.rdkafka import Producer
from dovetail.stream.topics import ensure_topics
from dovetail.topology import Keeps, Topic

SLOTS = 4
PATIENCE_S = 60
PROGRESS = r"loading the cache: ([0-9]+) of about ([0-9]+) migrations of slots ([0-9, ]+)"


def ints(*keys):
    return JoinKeys.of_ints(np.array(keys, np.int64))


def texts(*keys):
    column = Column.of([key.encode() for key in keys])
    return JoinKeys(hash_text_many(column.data, column.bounds), column)


class Caches:
    """The topic, whoever writes to it, and nodes that hold what they read from it."""

    def __init__(self, bootstrap, namespace, *, int_key):
        self.settings = Settings(bootstrap, "", Path())
        self.topic = Topic(f"{namespace}migrations", SLOTS, Keeps.LATEST)
        ensure_topics(self.settings, [self.topic])
        self.int_key = int_key
        self.mapper = Mapper(SLOTS, int_key=int_key)
        self.producer = Producer({"bootstrap.servers": bootstrap})
        self._nodes = []

    def node(self, slots=range(SLOTS), memory=1 << 20):
        node = Node(self, memory)
        self._nodes.append(node)
        node.reader.follow(list(slots))
        return node

    def send(self, keys, rows=b'{"v":1}', cycle=1):
        self.queue(self.producer, keys, rows, cycle)
        self.producer.flush(30)

    def queue(self, producer, keys, rows=b'{"v":1}', cycle=1):
        entries = Entries.of(keys, MasterRows(keys, Column.of([rows] * len(keys))))
        events = np.arange(1, len(keys) + 1, dtype=np.int64)
        send_migrations(
            producer,
            self.topic,
            self.mapper,
            keys,
            entries,
            events,
            cycle,
            int_key=self.int_key,
            read_at_ms=time.time_ns() // 1_000_000,
        )

    def send_evictions(self, keys):
        send_evictions(self.producer, self.topic, self.mapper, keys, int_key=self.int_key)
        self.producer.flush(30)

    def close(self):
        for node in self._nodes:
            node.reader.close()
        self.producer.close()


class Node:
    def __init__(self, caches, memory=1 << 20):
        self.reader = MigrationReader(caches.settings, caches.topic, int_key=caches.int_key)
        self.mapper = caches.mapper
        self.cache = CachePhase("srj", memory)
        self.seen = []
        self.told = []

    def turn(self):
        for change in self.reader.changes():
            self.seen.append(change)
            self.told.append(self.reader.waiting_for())
            self.cache.drop(change.evictions)
            seconds = change.read_at_ms // 1000 - 1_700_000_000
            self.cache.take(change.entries, change.events, change.cycle, seconds)

    def give_up(self, slots):
        self.reader.forget(slots)
        self.cache.drop_slots(self.mapper, slots)

    def load(self):
        self.until(lambda: self.reader.waiting_for() == "")

    def until(self, done):
        deadline = time.monotonic() + PATIENCE_S
        while not done():
            assert time.monotonic() < deadline, self.reader.waiting_for()
            self.turn()
            time.sleep(0.01)

    def holds(self, keys):
        return np.isin(np.arange(len(keys)), self.cache.probe(keys).positions).tolist()

    def row(self, keys):
        return self.cache.probe(keys).entries.tobytes()


@pytest.fixture(params=["int", "text"])
def int_key(request):
    return request.param == "int"


@pytest.fixture
def caches(bootstrap, kafka_namespace, int_key):
    caches = Caches(bootstrap, kafka_namespace, int_key=int_key)
    yield caches
    caches.close()


@pytest.fixture
def keys(int_key):
    numbers = range(-5, 495)
    return ints(*numbers) if int_key else texts(*(f"kéy {n}" for n in numbers))


def test_a_node_that_starts_late_loads_everything(caches, keys):
    caches.send(keys)
    node = caches.node()
    about = f"0 of about {len(keys)} migrations of slots 0, 1, 2, 3"
    assert node.reader.waiting_for() == f"loading the cache: {about}"
    node.load()
    assert all(node.holds(keys))
    assert len(node.cache) == len(keys)


def test_an_empty_topic_is_loaded_at_once(caches):
    node = caches.node()
    node.load()
    assert len(node.cache) == 0


def test_the_latest_rows_of_a_key_win_in_one_batch_and_over_many(caches, keys):
    one = keys.slice(0, 1)
    for value in range(5):
        caches.send(one, b'{"v":%d}' % value)
    node = caches.node()
    node.load()
    assert b'"v":4}' in node.row(one)
    caches.send(one, b'{"v":5}')
    node.until(lambda: b'"v":5}' in node.row(one))
    assert len(node.cache) == 1


def test_an_eviction_reaches_nodes_that_run_and_such_as_start_later(caches, keys):
    caches.send(keys)
    early = caches.node()
    early.load()
    gone, kept = keys.slice(0, 200), keys.slice(200, 500)
    caches.send_evictions(gone)
    early.until(lambda: not any(early.holds(gone)))
    late = caches.node()
    late.load()
    for node in (early, late):
        assert not any(node.holds(gone))
        assert all(node.holds(kept))


def test_a_key_comes_back_after_its_eviction(caches, keys):
    one = keys.slice(3, 4)
    caches.send(one)
    caches.send_evictions(one)
    caches.send(one, b'{"v":2}')
    node = caches.node()
    node.load()
    assert b'"v":2}' in node.row(one)


def test_a_node_holds_the_keys_of_its_slots_only(caches, keys):
    caches.send(keys)
    node = caches.node([1, 3])
    node.load()
    slots = caches.mapper.slots(keys)
    assert node.holds(keys) == np.isin(slots, [1, 3]).tolist()


def test_a_slot_that_is_given_up_takes_its_keys_along_and_no_others(caches, keys):
    caches.send(keys)
    node = caches.node()
    node.load()
    node.give_up([0, 2])
    slots = caches.mapper.slots(keys)
    assert node.holds(keys) == np.isin(slots, [1, 3]).tolist()
    assert node.reader.waiting_for() == ""
    caches.send(keys, b'{"v":7}')
    mine = keys.take(np.flatnonzero(slots == 1)[:1])
    node.until(lambda: b'"v":7}' in node.row(mine))
    assert not any(node.holds(keys.take(np.flatnonzero(np.isin(slots, [0, 2])))))


def test_a_slot_that_comes_back_is_loaded_anew(caches, keys):
    caches.send(keys)
    node = caches.node()
    node.load()
    node.give_up([2])
    slots = caches.mapper.slots(keys)
    gone = keys.take(np.flatnonzero(slots == 2)[:5])
    caches.send_evictions(gone)
    node.reader.follow([2])
    assert "migrations of slots 2" in node.reader.waiting_for()
    node.load()
    assert sum(node.holds(keys)) == len(keys) - 5
    assert not any(node.holds(gone))


def test_a_slot_given_up_while_loading_is_not_waited_for(caches, keys):
    node = caches.node()
    node.give_up([0, 1, 2, 3])
    assert node.reader.waiting_for() == ""


def test_a_key_too_large_for_a_message_is_evicted_instead(caches, keys, monkeypatch):
    one = keys.slice(0, 1)
    caches.send(one)
    node = caches.node()
    node.load()
    assert all(node.holds(one))
    monkeypatch.setattr(migrations, "_LARGEST_ENTRY", 1000)
    caches.send(one, b'{"v":"%s"}' % (b"x" * 1000))
    node.until(lambda: not any(node.holds(one)))


def test_what_is_not_committed_is_not_read(caches, keys, bootstrap):
    mine = Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": f"{caches.topic.name}-writer"}
    )
    with mine as producer:
        producer.init_transactions(30)
        caches.send(keys.slice(0, 1))
        producer.begin()
        caches.queue(producer, keys)
        producer.abort(30)
    node = caches.node()
    node.load()
    assert sum(node.holds(keys)) == 1


def test_how_far_it_is_shows_while_it_loads(caches, keys, monkeypatch):
    monkeypatch.setattr(migrations, "_MOST_AT_ONCE", 7)
    caches.send(keys)
    node = caches.node()
    node.load()
    told = [re.fullmatch(PROGRESS, text) for text in node.told]
    assert all(told)
    read, about = (int(number) for number in told[0].group(1, 2))
    assert 0 < read <= 7
    assert (about, told[0][3]) == (len(keys), "0, 1, 2, 3")
    assert max(int(one[1]) for one in told) > 100


def test_events_and_read_time_arrive_with_each_key(caches, keys):
    before = time.time_ns() // 1_000_000
    caches.send(keys, cycle=9)
    node = caches.node()
    node.load()
    events = {}
    for change in node.seen:
        named = change.entries.keys()
        for i, value in enumerate(named.values.tolist()):
            events[value] = int(change.events[i])
        assert change.read_at_ms.min(initial=before) >= before
        assert change.cycle == 0
    assert events == {value: i + 1 for i, value in enumerate(keys.values.tolist())}


def test_cycles_pass_as_the_disk_phase_says_but_not_while_loading(caches, keys):
    for cycle in range(3):
        caches.send(keys, cycle=100 * cycle)
    node = caches.node()
    node.load()
    assert {change.cycle for change in node.seen} == {0}
    caches.send(keys, cycle=205)
    node.until(lambda: node.seen[-1].cycle == 5)


def test_a_cache_that_starts_anew_loads_what_the_last_one_held(caches, keys):
    small = 64 << 10
    caches.send(keys)
    first = caches.node(memory=small)
    first.load()
    held = first.holds(keys)
    assert 50 < sum(held) < len(keys)
    gone = first.cache.departed()
    caches.send_evictions(gone)
    second = caches.node()
    second.load()
    loaded = second.holds(keys)
    assert all(now for was, now in zip(held, loaded, strict=True) if was)
    assert sum(loaded) == len(keys) - len(gone)


def test_a_tombstone_behind_a_newer_migration_is_a_miss_and_no_wrong_answer(caches, keys):
    one = keys.slice(0, 1)
    node = caches.node()
    node.load()
    caches.send(one)
    node.until(lambda: all(node.holds(one)))
    caches.send(one, b'{"v":2}')
    caches.send_evictions(one)
    node.until(lambda: not any(node.holds(one)))
    late = caches.node()
    late.load()
    assert not any(late.holds(one))
