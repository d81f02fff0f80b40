"""A join by a condition gives what SQL gives, for every condition, type and join kind."""

import datetime as dt
import decimal
import sqlite3

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dovetail.api import (
    at_least,
    at_most,
    between,
    contains,
    greater_than,
    join,
    less_than,
    overlaps,
)

MODEST = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    print_blob=True,
)
LARGE = 1 << 62
BEGIN = dt.datetime.fromisoformat("2024-01-01")
TYPES = {
    "int": (pa.int64(), lambda n: n),
    "narrow": (pa.int16(), lambda n: max(-(1 << 15), min(n, (1 << 15) - 1))),
    "float": (pa.float64(), lambda n: n / 8),
    "decimal": (pa.decimal128(20, 2), lambda n: decimal.Decimal(n % 10**15).scaleb(-2)),
    "date": (pa.date32(), lambda n: dt.date(2024, 1, 1) + dt.timedelta(n % 1000)),
    "time": (pa.timestamp("ms"), lambda n: BEGIN + dt.timedelta(0, n % 10**6)),
    "zoned": (
        pa.timestamp("us", "Europe/Paris"),
        lambda n: (BEGIN + dt.timedelta(0, n % 10**6)).replace(tzinfo=dt.UTC),
    ),
}
WITHIN = {
    "[]": "{low} <= {x} AND {x} <= {high}",
    "[)": "{low} <= {x} AND {x} < {high}",
    "(]": "{low} < {x} AND {x} <= {high}",
    "()": "{low} < {x} AND {x} < {high}",
}
CONDITIONS = [
    (less_than("s1", "r1"), "s1 < r1"),
    (at_most("s1", "r1"), "s1 <= r1"),
    (greater_than("s1", "r1"), "s1 > r1"),
    (at_least("s1", "r1"), "s1 >= r1"),
    *(
        (between("s1", "r1", "r2", ends=ends), sql.format(low="r1", high="r2", x="s1"))
        for ends, sql in WITHIN.items()
    ),
    *(
        (contains("s1", "s2", "r1", ends=ends), sql.format(low="s1", high="s2", x="r1"))
        for ends, sql in WITHIN.items()
    ),
    (overlaps(("s1", "s2"), ("r1", "r2"), ends="[]"), "max(s1, r1) <= min(s2, r2)"),
]
SQL = {
    "inner": "SELECT e, r FROM s JOIN r ON {match}",
    "left": "SELECT e, r FROM s LEFT JOIN r ON {match}",
    "semi": "SELECT e, NULL FROM s WHERE EXISTS (SELECT 1 FROM r WHERE {match})",
    "anti": "SELECT e, NULL FROM s WHERE NOT EXISTS (SELECT 1 FROM r WHERE {match})",
}

numbers = st.one_of(st.none(), st.integers(-4, 4), st.sampled_from([LARGE, -LARGE]))
rows = st.lists(st.tuples(st.one_of(st.none(), st.integers(0, 3)), numbers, numbers), max_size=40)


def as_table(triples, names, sort):
    kind, value = TYPES[sort]
    columns = list(zip(*triples, strict=True)) or [[], [], []]
    ends = [[None if n is None else value(n) for n in column] for column in columns[1:]]
    return pa.table(
        {
            "k": pa.array(columns[0], pa.int64()),
            **{name: pa.array(end, kind) for name, end in zip(names, ends, strict=True)},
            names[0][0].replace("s", "e"): pa.array(range(len(triples)), pa.int64()),
        }
    )


def comparable(value):
    """What SQLite compares as the type would be."""
    if isinstance(value, dt.datetime):
        return value.replace(tzinfo=value.tzinfo or dt.UTC).timestamp()
    if isinstance(value, dt.date):
        return value.toordinal()
    return int(value * 100) if isinstance(value, decimal.Decimal) else value


def sql_join(how, match, stream, master):
    db = sqlite3.connect(":memory:")
    for name, table in (("s", stream), ("r", master)):
        db.execute(f"CREATE TABLE {name} ({', '.join(table.column_names)})")
        marks = ", ".join("?" * table.num_columns)
        values = [[comparable(value) for value in row.values()] for row in table.to_pylist()]
        db.executemany(f"INSERT INTO {name} VALUES ({marks})", values)
    return sorted(db.execute(SQL[how].format(match=match)).fetchall(), key=repr)


@pytest.mark.parametrize("condition", CONDITIONS, ids=[written for _, written in CONDITIONS])
@MODEST
@given(
    sort=st.sampled_from(list(TYPES)),
    stream=rows.filter(bool),
    master=rows,
    how=st.sampled_from(list(SQL)),
    keyed=st.booleans(),
    chunk=st.sampled_from([1, 7, 100]),
    group=st.sampled_from([0, 3, 20]),
    memory=st.sampled_from(["64KiB", "1MiB"]),
)
def test_a_condition_joins_as_sql_does(
    condition, sort, stream, master, how, keyed, chunk, group, memory, tmp_path
):
    events, relation = as_table(stream, ["s1", "s2"], sort), as_table(master, ["r1", "r2"], sort)
    asked, written = condition
    match = f"{written} AND s.k = r.k" if keyed else written
    expected = sql_join(how, match, events, relation)
    source = relation
    if group:
        source = tmp_path / "r.parquet"
        pq.write_table(relation, source, row_group_size=group)
    joined = join(
        events.to_batches(max_chunksize=chunk),
        source,
        on="k" if keyed else (),
        condition=asked,
        how=how,
        columns=["r"],
        memory=memory,
    )
    got = [(row["e"], row.get("r")) for batch in joined for row in batch.to_pylist()]
    assert sorted(got, key=repr) == expected
