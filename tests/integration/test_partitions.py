"""HYBRIDJOIN's theorems hold over every store: partitions have the same bounds whatever key asks.

Theorem 1: no partition is read again for an event that waited when it was read.
Theorem 2: no event causes more than one read.
"""

import random

import pytest

from dovetail.join.engine import Engine
from dovetail.join.exchange import Keys, Partition
from dovetail.join.mapper import Mapper
from dovetail.node.master import MasterJoin
from tests.integration.master_kit import found
from tests.integration.stores import STORES, events_of, join_keys, opened

KEYS = {"int": [7 * n - 9000 for n in range(4000)], "text": [f"käse {n}" for n in range(4000)]}
INDEXED = ("hybridjoin", "cachejoin", "pcsrj", "ssbj-index")
ORDERS = ("ascending", "descending", "random")


def in_order(keys, order):
    ordered = sorted(keys, reverse=order == "descending")
    if order == "random":
        random.Random(3).shuffle(ordered)
    return ordered


def names_in(keys):
    return list(keys.texts) if len(keys.texts.data) else keys.values.tolist()


class Watched:
    """Checks the theorems for every read of a stream of distinct keys."""

    def __init__(self, engine, relation, stream):
        self.engine = engine
        self._relation = relation
        self._events = events_of(stream)
        self._places = {name: n for n, name in enumerate(names_in(self._events.keys))}
        self._read_at = {}
        """For each master key how many events were let in when it was last read."""

    def run(self, at_once):
        """Join the stream, letting in so many events at a time; count the reads."""
        at = 0
        while at < len(self._events) or self.engine.pending:
            room = at_once - self.engine.pending
            if room and at < len(self._events):
                at += self.engine.offer(self._events.slice(at, at + room)).accepted
            self._step(at)
        return self.engine.figures

    def _step(self, let_in):
        request = self.engine.wants()
        assert isinstance(request, Partition)
        (asked,) = names_in(request.key)
        read = self._relation.read(request, self.engine.disk_buffer)
        names = names_in(read.rows.keys)
        for name in names:
            # A key that R does not have is in no partition that was read for another.
            waited = asked in names and self._read_at.get(name, 0) > self._places[asked]
            assert not waited, "its partition was read while it waited"
            self._read_at[name] = let_in
        waiting = self.engine.pending
        answered = self.engine.feed(read).ids.tolist()
        assert self._places[asked] in answered
        assert self.engine.pending == waiting - len(answered)


@pytest.mark.parametrize("sort", KEYS)
@pytest.mark.parametrize("store", STORES)
def test_theorems_1_and_2(store, sort, database, tmp_path):
    keys = KEYS[sort]
    with opened(store, keys, database, tmp_path, page_bytes=2048) as relation:
        for number, order in enumerate(ORDERS):
            for algorithm in (INDEXED[number], INDEXED[3]):
                engine = Engine(algorithm, relation.facts, 300_000, disk_buffer=20_000)
                figures = Watched(engine, relation, in_order(keys, order)).run(500)
                assert figures.answered == len(keys)
                assert figures.reads <= len(keys)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("store", STORES)
def test_with_all_of_them_waiting_every_row_is_read_once(store, order, database, tmp_path):
    keys = KEYS["int"]
    asked = [*in_order(keys, order), 1 << 40, -(1 << 40), keys[7] + 1]
    with opened(store, keys, database, tmp_path) as relation:
        engine = Engine("hybridjoin", relation.facts, 2_000_000, disk_buffer=100_000)
        figures = Watched(engine, relation, asked).run(len(asked))
        assert figures.rows_read <= len(keys) + 3 * 2000, "of three keys that there are not"
        assert figures.reads < 60


def test_keys_with_many_rows_are_read_in_smaller_partitions_or_alone(database, tmp_path):
    """Among 3,000 keys with one row there are some with 900, more than fit together."""
    many = [500, 501, 502, 503, 2000]
    keys = sorted([*range(3000), *(key for key in many for _ in range(900))])
    expected = {key: 901 if key in many else 1 for key in range(3000)}
    with opened("postgres", keys, database, tmp_path) as relation:
        for asked in (499, 500, 504, 1999, 2000, 2001, 0, 2999):
            read = relation.read(Partition(join_keys([asked])), 120_000)
            assert read.nbytes <= 120_000
            got = read.rows.keys.values.tolist()
            assert asked in got
            assert all(got.count(key) == expected[key] for key in set(got))


def test_a_node_reads_the_rows_of_its_slots_alone(database, tmp_path):
    for sort, keys in KEYS.items():
        mapper = Mapper(8, int_key=sort == "int")
        folder = tmp_path / sort
        folder.mkdir()
        with opened("pipeline", keys, database, folder, table=f"r_{sort}") as relation:
            driver = MasterJoin(Engine("hybridjoin", relation.facts, 1 << 20), relation)
            for slots in ({1, 6}, {3}):
                driver.keep(slots)
                mine = join_keys(keys)
                mine = mine.take((mapper.slots(mine)[:, None] == list(slots)).any(1).nonzero()[0])
                for at in range(0, len(mine), 300):
                    asked = mine.slice(at, at + 1)
                    rows = relation.read(Partition(asked), 50_000).rows
                    assert set(mapper.slots(rows.keys)) <= slots
                    assert names_in(asked)[0] in names_in(rows.keys)
                rows = relation.read(Keys(join_keys(keys[:500])), 1 << 20).rows
                assert found(rows)
                assert set(mapper.slots(rows.keys)) <= slots
