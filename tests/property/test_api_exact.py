"""The Python function gives what SQL gives, whatever lies where and whoever asks for it."""

import sqlite3

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dovetail.api import join
from dovetail.join.algorithms import ALGORITHMS, AUTO

MODEST = settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    print_blob=True,
)
SQL = {
    "inner": "SELECT e, r, v FROM s JOIN r ON {same}",
    "left": "SELECT e, r, v FROM s LEFT JOIN r ON {same}",
    "semi": "SELECT e, NULL, NULL FROM s WHERE EXISTS (SELECT 1 FROM r WHERE {same})",
    "anti": "SELECT e, NULL, NULL FROM s WHERE NOT EXISTS (SELECT 1 FROM r WHERE {same})",
}

numbers = st.one_of(st.none(), st.integers(-3, 30), st.integers(0, 2))
texts = numbers.map(lambda n: None if n is None else "ü" * (n % 3) + f"key {n}")
KEYS = {
    "int": (numbers, ["a"]),
    "text": (texts, ["a"]),
    "composite": (st.tuples(numbers, texts), ["a", "b"]),
}


def as_columns(keys, names, types):
    parts = list(zip(*keys, strict=True)) if len(names) > 1 else [keys]
    return {
        name: pa.array(list(part), types[name])
        for name, part in zip(names, parts or [[]] * len(names), strict=True)
    }


def sql_join(how, names, stream, master):
    db = sqlite3.connect(":memory:")
    for table, rows, extra in (("s", stream, ["e"]), ("r", master, ["r", "v"])):
        columns = [*names, *extra]
        db.execute(f"CREATE TABLE {table} ({', '.join(columns)})")
        marks = ", ".join("?" * len(columns))
        values = [tuple(row[name] for name in columns) for row in rows]
        db.executemany(f"INSERT INTO {table} VALUES ({marks})", values)
    same = " AND ".join(f"s.{name} = r.{name}" for name in names)
    return sorted(db.execute(SQL[how].format(same=same)).fetchall(), key=repr)


@st.composite
def cases(draw):
    sort = draw(st.sampled_from(list(KEYS)))
    keys, names = KEYS[sort]
    types = {"a": pa.string() if sort == "text" else pa.int32(), "b": pa.string()}
    master = draw(st.lists(keys, max_size=60))
    stream = draw(st.lists(keys, min_size=1, max_size=80))
    table = pa.table(
        {
            **as_columns(master, names, types),
            "r": pa.array(range(len(master)), pa.int64()),
            "v": pa.array(
                [None if i % 4 == 0 else "v" * (i % 50) for i in range(len(master))], pa.string()
            ),
        }
    ).sort_by([(name, "ascending") for name in names])
    events = pa.table({**as_columns(stream, names, types), "e": pa.array(range(len(stream)))})
    return names, table, events


def got(batches):
    rows = [row for batch in batches for row in batch.to_pylist()]
    return [(row["e"], row.get("r"), row.get("v")) for row in rows]


@pytest.mark.parametrize("algorithm", [*ALGORITHMS, AUTO])
@MODEST
@given(
    case=cases(),
    how=st.sampled_from(list(SQL)),
    order=st.sampled_from([None, "source", 0, 5]),
    group=st.sampled_from([1, 3, 20]),
    chunk=st.sampled_from([1, 7, 100]),
    memory=st.sampled_from([64_000, "1MiB"]),
)
def test_parquet_in_the_order_of_the_key_serves_every_algorithm(
    algorithm, case, how, order, group, chunk, memory, tmp_path
):
    names, table, events = case
    path = tmp_path / "r.parquet"
    pq.write_table(table, path, row_group_size=group)
    batches = events.to_batches(max_chunksize=chunk)
    joined = got(
        join(batches, path, on=names, how=how, algorithm=algorithm, order=order, memory=memory)
    )
    expected = sql_join(how, names, events.to_pylist(), table.to_pylist())
    assert sorted(joined, key=repr) == expected
    if order == "source":
        assert [event for event, *_ in joined] == sorted(event for event, *_ in joined)


@pytest.mark.parametrize("algorithm", ["srj", "ssbj", "cachejoin", "meshjoin"])
@MODEST
@given(case=cases(), distance=st.integers(0, 12), chunk=st.sampled_from([1, 7, 100]))
def test_no_event_moves_further_than_the_order_allows(algorithm, case, distance, chunk):
    names, table, events = case
    batches = events.to_batches(max_chunksize=chunk)
    # An event with several rows stands for itself once, and so does one without a key.
    places = list(
        dict.fromkeys(
            event
            for event, *_ in got(
                join(batches, table, on=names, how="left", algorithm=algorithm, order=distance)
            )
        )
    )
    assert sorted(places) == list(range(events.num_rows))
    assert all(abs(place - now) <= distance for now, place in enumerate(places))
