"""A chain of joins gives what SQL's chain gives, whatever the kinds and the algorithms."""

import json
import sqlite3
from collections import Counter
from dataclasses import dataclass

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dovetail.join.algorithms import ALGORITHMS, Parameters
from dovetail.join.chain import Batch, Chain, Link, LinkKeys
from dovetail.join.columns import Column
from dovetail.join.engine import Engine
from dovetail.join.entry import MasterRows
from dovetail.join.in_order import InOrder
from dovetail.join.kinds import JoinKind
from dovetail.join.splice import null_row
from dovetail.testing.relation import MemoryRelation
from tests.property.engine_cases import colliding_keys, int_keys, text_keys

MODEST = settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
DISK_BUFFER = 12_000


@dataclass(frozen=True)
class Table:
    """Master rows (k, c): event member `key` leads to k, and c is added as `c<number>`."""

    number: int
    rows: list[tuple[int, int | None]]
    key: str
    kind: JoinKind
    algorithm: str
    make_keys: object
    rows_a_page: int
    memory: int
    ordered: bool

    def relation(self):
        data = [
            b'{"c%d":%s}' % (self.number, json.dumps(column).encode()) for _, column in self.rows
        ]
        keys = self.make_keys([key for key, _ in self.rows])
        return MemoryRelation(MasterRows(keys, Column.of(data)), self.rows_a_page)

    def keys(self, events):
        names = [json.loads(event).get(self.key) for event in events]
        missing = np.array([name is None for name in names], bool)
        return LinkKeys(self.make_keys([name or 0 for name in names]), missing)

    def link(self, facts):
        engine = Engine(
            self.algorithm,
            facts,
            self.memory + DISK_BUFFER,
            parameters=Parameters(keys=4),
            disk_buffer=DISK_BUFFER,
        )
        no_row = null_row([b'"c%d"' % self.number])
        ordered = InOrder(engine, 1 << 20) if self.ordered else engine
        return Link(ordered, self.kind, self.keys, no_row)


@st.composite
def tables(draw):
    made = []
    members = ["k0", "k1"]
    for number in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(JoinKind))
        made.append(
            Table(
                number=number,
                rows=draw(
                    st.lists(
                        st.tuples(st.integers(0, 8), st.none() | st.integers(0, 8)), max_size=25
                    )
                ),
                key=draw(st.sampled_from(members)),
                kind=kind,
                algorithm=draw(st.sampled_from(list(ALGORITHMS))),
                make_keys=draw(st.sampled_from([int_keys, text_keys, colliding_keys])),
                rows_a_page=draw(st.sampled_from([1, 4, 20])),
                memory=draw(st.sampled_from([6_000, 9_000, 16_000])),
                ordered=draw(st.booleans()),
            )
        )
        if kind.takes_columns:
            members.append(f"c{number}")
    return made


def expected(stream, joined):
    """Counts of (event, c0, c1, …) as SQL has them: one subquery around the other."""
    db = sqlite3.connect(":memory:")
    db.execute("CREATE TABLE s (e, k0, k1)")
    db.executemany("INSERT INTO s VALUES (?, ?, ?)", [(i, *keys) for i, keys in enumerate(stream)])
    sql, columns = "s", []
    for table in joined:
        n = table.number
        db.execute(f"CREATE TABLE r{n} (k, c{n})")
        db.executemany(f"INSERT INTO r{n} VALUES (?, ?)", table.rows)
        on = f"x.{table.key} = r{n}.k"
        sql = {
            JoinKind.INNER: f"(SELECT x.*, c{n} FROM {sql} x JOIN r{n} ON {on})",
            JoinKind.LEFT: f"(SELECT x.*, c{n} FROM {sql} x LEFT JOIN r{n} ON {on})",
            JoinKind.SEMI: f"(SELECT * FROM {sql} x WHERE EXISTS (SELECT 1 FROM r{n} WHERE {on}))",
            JoinKind.ANTI: (
                f"(SELECT * FROM {sql} x WHERE NOT EXISTS (SELECT 1 FROM r{n} WHERE {on}))"
            ),
        }[table.kind]
        columns += [f"c{n}"] if table.kind.takes_columns else []
    found = db.execute(f"SELECT {', '.join(['e', *columns])} FROM {sql}").fetchall()
    return columns, Counter(found)


class Outputs:
    def __init__(self, columns):
        self.columns = columns
        self.rows = Counter()
        self.dropped = []
        self.done = []

    def take(self, made):
        for batch in made.outputs:
            for line, name in zip(batch.data, batch.ids.tolist(), strict=True):
                event = json.loads(line)
                assert name == event["e"] * 5 + 2, "an id goes with its event"
                assert name not in self.done, "done means that nothing comes any more"
                self.rows[(event["e"], *(event[column] for column in self.columns))] += 1
        for _, batch in made.dropped:
            for line, name in zip(batch.data, batch.ids.tolist(), strict=True):
                assert name == json.loads(line)["e"] * 5 + 2
                assert name not in self.done
                self.dropped.append(name)
        self.done += made.done.tolist()


key = st.none() | st.integers(0, 9)


@MODEST
@given(
    joined=tables(),
    stream=st.lists(st.tuples(key, key), min_size=1, max_size=60),
    steps=st.lists(st.integers(0, 30), min_size=1, max_size=5).filter(any),
    together=st.booleans(),
)
def test_a_chain_gives_what_sqls_chain_of_joins_gives(joined, stream, steps, together):
    columns, wanted = expected(stream, joined)
    relations = [table.relation() for table in joined]
    chain = Chain(
        [table.link(relation.facts) for table, relation in zip(joined, relations, strict=True)]
    )
    events = [{"e": i, "k0": k0, "k1": k1} for i, (k0, k1) in enumerate(stream)]
    data = Column.of([json.dumps(event).encode() for event in events])
    batch = Batch(data, np.arange(len(stream)) * 5 + 2)
    out = Outputs(columns)
    at = step = 0
    while True:
        end = min(at + steps[step % len(steps)], len(stream))
        step += 1
        accepted, made = chain.offer(batch.slice(at, end))
        at += accepted
        out.take(made)
        wants = chain.wants()
        if not wants and at == len(stream):
            break
        for want in wants:
            waiting = [events is not None for events in chain._backlogs]
            assert not any(waiting[want.link + 1 :]), "a backlog holds up the links before it"
        for want in wants if together else wants[: 1 + step % 2][-1:]:
            out.take(chain.feed(want.link, relations[want.link].read(want.request)))
    assert out.rows == wanted
    assert sorted(out.done) == batch.ids.tolist(), "every event is done, once"
    assert {e * 5 + 2 for e, *_ in out.rows} | set(out.dropped) == set(out.done)
    assert chain.backlog == chain.backlog_bytes == 0
