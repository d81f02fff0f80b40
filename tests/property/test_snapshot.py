"""A join over snapshot files gives what SQL gives, whatever is asked and however it is read."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dovetail.join.algorithms import ALGORITHMS, Parameters
from dovetail.join.engine import Engine
from dovetail.master.snapshot.order import sorted_rows
from dovetail.master.snapshot.relation import SnapshotRelation
from dovetail.master.snapshot.writer import write_snapshot
from tests.property.engine_cases import cases, int_keys
from tests.property.test_engine_exact import check, drive

MODEST = settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
POOL = 16_000
steps = st.lists(st.integers(0, 50), min_size=1, max_size=6).filter(any)


class Driven:
    """A snapshot that is read into the disk buffer of an engine."""

    def __init__(self, relation, disk_buffer):
        self._relation = relation
        self._disk_buffer = disk_buffer

    def read(self, request):
        return self._relation.read(request, self._disk_buffer)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@MODEST
@given(
    case=cases(),
    steps=steps,
    page_bytes=st.sampled_from([1, 60, 500, 8192]),
    disk_buffer=st.sampled_from([40_000, 400_000, 3_000_000]),
    options=st.fixed_dictionaries(
        {
            "direct": st.booleans(),
            "read_ahead": st.booleans(),
            "partition_pages": st.integers(1, 4),
            "queue_depth": st.integers(1, 3),
        }
    ),
    pages=st.integers(0, 5),
)
def test_an_algorithm_gives_what_sql_gives(
    algorithm, case, steps, page_bytes, disk_buffer, options, pages
):
    rows = sorted_rows(case.relation()._rows)
    key = "int" if case.make_keys is int_keys else "text"
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "snapshot"
        write_snapshot(folder, [rows], key=key, page_bytes=page_bytes)
        with SnapshotRelation(folder, **options) as relation:
            engine = Engine(
                algorithm,
                relation.facts,
                POOL + disk_buffer,
                parameters=Parameters(pages=pages, keys=12),
                disk_buffer=disk_buffer,
            )
            check(drive(engine, Driven(relation, disk_buffer), case, steps), case)
