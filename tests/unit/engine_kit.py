"""Small relations and streams for the join engine's tests."""

from __future__ import annotations

import numpy as np

from dovetail.join.columns import Column, JoinKeys
from dovetail.join.engine import Engine
from dovetail.join.entry import MasterRows
from dovetail.join.exchange import Events
from dovetail.testing.relation import MemoryRelation


def relation_of(keys, rows_a_page=1, *, unique=False, size=100):
    rows = Column.of([b"{" + b"r" * (size - 2) + b"}"] * len(keys))
    master = MasterRows(JoinKeys.of_ints(np.array(keys, np.int64)), rows)
    return MemoryRelation(master, rows_a_page, unique=unique)


def events_of(keys, size=100):
    data = Column.of([b"{" + b"e" * (size - 2) + b"}"] * len(keys))
    return Events(JoinKeys.of_ints(np.array(keys, np.int64)), data, np.arange(len(keys)))


def rows_each(answers):
    """m, for each answered event."""
    return [
        int(answers.entries[start + 12 : start + 16].view(np.int32)[0]) for start in answers.starts
    ]


def engine_for(algorithm, relation, memory=200_000, **options):
    return Engine(algorithm, relation.facts, memory, **options)


def read_once(engine, relation):
    request = engine.wants()
    assert request is not None
    return engine.feed(relation.read(request))


def run_dry(engine, relation):
    """Read until nothing is pending; return the answered ids."""
    ids = []
    while engine.wants() is not None:
        ids += read_once(engine, relation).ids.tolist()
    return ids
