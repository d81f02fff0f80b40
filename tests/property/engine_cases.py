"""Random relations and streams for the join engine, and what SQL makes of them."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from dovetail.join.columns import Column, JoinKeys
from dovetail.join.entry import MasterRows
from dovetail.join.exchange import Events
from dovetail.join.keys import hash_text_many
from dovetail.join.kinds import JoinKind
from dovetail.join.splice import null_row, splice
from dovetail.testing.relation import MemoryRelation

NO_ROW = null_row([b'"r"'])


def int_keys(names):
    return JoinKeys.of_ints(np.array(names, np.int64))


def text_keys(names):
    texts = Column.of([b"key-%d" % name * (1 + name % 30) for name in names])
    return JoinKeys(hash_text_many(texts.data, texts.bounds), texts)


def colliding_keys(names):
    """Composite keys of which every three share a hash."""
    texts = Column.of([b"%d\x1f%d" % (name, name % 7) for name in names])
    return JoinKeys(np.array([name // 3 for name in names], np.int64), texts)


@dataclass(frozen=True)
class Case:
    master: list[int]
    stream: list[int]
    make_keys: object
    unique: bool
    rows_a_page: int
    padding: int

    def relation(self):
        rows = Column.of([b'{"r":%d}' % i for i in range(len(self.master))])
        master = MasterRows(self.make_keys(self.master), rows)
        return MemoryRelation(master, self.rows_a_page, unique=self.unique)

    def events(self):
        data = [
            b'{"e":%d%s}' % (i, b" " * (i * 7 % (self.padding + 1)))
            for i in range(len(self.stream))
        ]
        return Events(self.make_keys(self.stream), Column.of(data), np.arange(len(data)) * 3 - 5)

    def expected(self, kind):
        return sql_join(kind, self.master, self.stream)

    def version(self, master, number):
        """Another R of these keys: its rows are numbered apart from those of every other."""
        rows = Column.of([b'{"r":%d}' % (1000 * number + i) for i in range(len(master))])
        unique = self.unique and len(set(master)) == len(master)
        return MemoryRelation(
            MasterRows(self.make_keys(master), rows), self.rows_a_page, unique=unique
        )


def sql_join(kind, master, stream):
    """What SQL gives: pairs of event and row number, or None where there is no row."""
    db = sqlite3.connect(":memory:")
    db.execute("CREATE TABLE s (e INTEGER, k INTEGER)")
    db.execute("CREATE TABLE r (r INTEGER, k INTEGER)")
    db.executemany("INSERT INTO s VALUES (?, ?)", enumerate(stream))
    db.executemany("INSERT INTO r VALUES (?, ?)", enumerate(master))
    query = {
        JoinKind.INNER: "SELECT e, r FROM s JOIN r USING (k)",
        JoinKind.LEFT: "SELECT e, r FROM s LEFT JOIN r USING (k)",
        JoinKind.SEMI: "SELECT e, NULL FROM s WHERE k IN (SELECT k FROM r)",
        JoinKind.ANTI: "SELECT e, NULL FROM s WHERE k NOT IN (SELECT k FROM r)",
    }[kind]
    return sorted(db.execute(query).fetchall(), key=repr)


@st.composite
def cases(draw, most_events=120):
    names = draw(st.integers(1, 40))
    skewed = st.one_of(st.integers(0, names), st.integers(0, 2))
    unique = draw(st.booleans())
    master = draw(
        st.lists(st.integers(0, names), unique=True) if unique else st.lists(skewed, max_size=120)
    )
    return Case(
        master=master,
        stream=draw(st.lists(skewed, min_size=1, max_size=most_events)),
        make_keys=draw(st.sampled_from([int_keys, text_keys, colliding_keys])),
        unique=unique,
        rows_a_page=draw(st.sampled_from([1, 3, 10, 64])),
        padding=draw(st.sampled_from([0, 30, 200])),
    )


class Outputs:
    """Takes answers and keeps what each join kind makes of them."""

    def __init__(self):
        self.ids = []
        self.pairs = {kind: [] for kind in JoinKind}

    def take(self, answers):
        self.ids.extend(answers.ids.tolist())
        for kind in JoinKind:
            made = splice(kind, answers.events, answers.entries, answers.starts, NO_ROW)
            for output in made.outputs:
                value = json.loads(output)
                self.pairs[kind].append((value["e"], value.get("r")))

    def sorted(self, kind):
        return sorted(self.pairs[kind], key=repr)
