"""Letters go back once, whatever dies between the claim, the sending and the note of it."""

from __future__ import annotations

import json
import time
import tracemalloc

import pytest
from confluent_kafka import Producer

from dovetail.pipeline.load import load_pipeline
from dovetail.settings import Settings
from dovetail.stream.topics import ensure_topics
from dovetail.topology import Topology
from dovetail.verify import headers_of, read_all
from services.control import letters
from services.control.letters import (
    DEAD_LETTERS,
    MARK,
    PARKED,
    REPLAY_OF,
    Filter,
    LetterBox,
    Sender,
)
from services.control.store.migrations import migrate
from services.control.store.replays import Replays
from services.problem import ProblemError
from services.spark.runs import control_engine
from tests.e2e import shop


@pytest.fixture
def place(bootstrap, database, kafka_namespace, tmp_path):
    file = tmp_path / "pipeline.yaml"
    file.write_text(json.dumps({"name": f"{kafka_namespace}x", **shop.INT.spec("inner")}))
    topology = Topology(load_pipeline(file, {}))
    settings = Settings(bootstrap, database, file)
    ensure_topics(settings, topology.topics())
    engine = control_engine(database, pooled=True)
    migrate(engine)
    yield settings, topology, Replays(engine, topology.pipeline.name)
    engine.dispose()


def write(settings, topic, messages):
    producer = Producer(settings.client())
    for value, headers in messages:
        producer.produce(topic.name, value, partition=0, headers=headers)
    assert producer.flush(30) == 0


def dead(topology, number, reason="wrong-type"):
    origin = f"{topology.source.name}/1/{number}"
    return b'{"n":%d}' % number, [("origin", origin), ("reason", reason), ("detail", "…")]


def sent(settings, topology):
    """What is on the source: origins and values, with their marks."""
    found = [
        (headers_of(message).get(REPLAY_OF), message.value(), headers_of(message).get(MARK))
        for message in read_all(settings, topology.source)
    ]
    return [one[:2] for one in found], {one[2] for one in found}


def test_letters_are_paged_and_filtered_newest_first(place):
    settings, topology, _ = place
    reasons = ["wrong-type", "empty"]
    write(settings, topology.dead_letter, [dead(topology, n, reasons[n % 2]) for n in range(25)])
    box = LetterBox(settings, topology.dead_letter)
    page, before = box.page(Filter(), 10)
    assert [json.loads(letter.preview)["n"] for letter in page] == list(range(24, 14, -1))
    second, _ = box.page(Filter(), 10, before)
    assert [json.loads(letter.preview)["n"] for letter in second] == list(range(14, 4, -1))
    empty, end = box.page(Filter(reason="empty"), 50)
    assert len(empty) == 12
    assert end is None
    one, _ = box.page(Filter(origin=f"{topology.source.name}/1/24"), 50)
    assert [letter.id for letter in one] == [24]
    assert box.find(3).reason == "empty"
    assert box.find(25) is None
    assert [letter.id for letter in box.all(Filter())] == list(range(25))


def test_however_many_large_letters_there_are_few_are_in_memory(place):
    settings, topology, _ = place
    large = b"x" * 900_000
    write(settings, topology.dead_letter, [(large, dead(topology, n)[1]) for n in range(100)])
    box = LetterBox(settings, topology.dead_letter)
    tracemalloc.start()
    try:
        page, _ = box.page(Filter(), 50)
        read = sum(len(letter.value) for letter in box.all(Filter()))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [(letter.size, letter.preview) for letter in page] == [(len(large), large[:200])] * 50
    assert read == 100 * len(large)
    assert peak < 40 * len(large)


def test_whoever_takes_letters_may_take_his_time(place, monkeypatch):
    settings, topology, _ = place
    write(settings, topology.dead_letter, [dead(topology, n) for n in range(40)])
    monkeypatch.setattr(letters, "_WITHIN_S", 2.0)
    monkeypatch.setattr(letters, "_AHEAD_KB", 1)
    taken = []
    for letter in LetterBox(settings, topology.dead_letter).all(Filter()):
        taken.append(letter.id)
        time.sleep(0.1)
    assert taken == list(range(40))


def test_a_letter_goes_back_once_to_where_it_came_from(place):
    settings, topology, replays = place
    write(settings, topology.dead_letter, [dead(topology, 7)])
    letter = LetterBox(settings, topology.dead_letter).find(0)
    sender = Sender(settings, topology, replays)
    to = sender.send(DEAD_LETTERS, letter, "ops")
    assert to == f"{topology.source.name}/1/0"
    assert sender.send(DEAD_LETTERS, letter, "ops") is None
    assert Sender(settings, topology, replays).send(DEAD_LETTERS, letter, "ops") is None
    assert sent(settings, topology)[0] == [(letter.origin, b'{"n":7}')]
    assert sender.send(DEAD_LETTERS, letter, "ops", force=True) is not None
    assert len(sent(settings, topology)[0]) == 2


class DiesAfterSending(Replays):
    def sent(self, claim, to):
        raise KeyboardInterrupt("killed before it was noted")


class DiesBeforeSending(Replays):
    def claim(self, *args, **options):
        super().claim(*args, **options)
        raise KeyboardInterrupt("killed before it was sent")


@pytest.mark.parametrize("dies", [DiesAfterSending, DiesBeforeSending])
def test_who_comes_after_one_that_died_does_not_send_again(dies, place):
    settings, topology, replays = place
    write(settings, topology.dead_letter, [dead(topology, 7)])
    letter = LetterBox(settings, topology.dead_letter).find(0)
    doomed = dies(replays._engine, topology.pipeline.name)
    with pytest.raises(KeyboardInterrupt):
        Sender(settings, topology, doomed).send(DEAD_LETTERS, letter, "ops")
    # Others have gone on writing meanwhile.
    write(settings, topology.source, [(b"{}", [])] * 3)
    to = Sender(settings, topology, replays).send(DEAD_LETTERS, letter, "ops")
    assert to is not None
    found, _ = sent(settings, topology)
    assert found.count((letter.origin, b'{"n":7}')) == 1
    assert replays.of([letter.origin])[letter.origin].to == to


def test_a_parked_event_goes_back_with_the_bytes_that_it_came_with(place):
    settings, topology, replays = place
    producer = Producer(settings.client())
    producer.produce(topology.source.name, b'{"as":"it came"}', partition=1)
    assert producer.flush(30) == 0
    origin = f"{topology.source.name}/1/0"
    enriched = [("origin", origin), ("reason", "too-many-rows")]
    write(settings, topology.parked, [(b'{"as":"it came","and":"more"}', enriched)])
    letter = LetterBox(settings, topology.parked).find(0)
    assert Sender(settings, topology, replays).send(PARKED, letter, "ops")
    assert sent(settings, topology)[0][-1] == (origin, b'{"as":"it came"}')


def test_a_letter_of_elsewhere_is_not_taken_for_the_sources(place):
    settings, topology, replays = place
    headers = [("origin", "others/0/5"), ("reason", "x")]
    write(settings, topology.dead_letter, [(b"{}", headers), (b"{}", [])])
    box = LetterBox(settings, topology.dead_letter)
    for number in (0, 1):
        with pytest.raises(ProblemError, match="cannot go back"):
            Sender(settings, topology, replays).send(DEAD_LETTERS, box.find(number), "ops")
    assert sent(settings, topology)[0] == []
