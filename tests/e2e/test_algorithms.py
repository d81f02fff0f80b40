"""Every algorithm over Kafka and PostgreSQL gives what SQL gives.

All combinations with the kinds of join, of keys and numbers of nodes are many: `make matrix` runs
them all. Here every one of each has its turn.
"""

from __future__ import annotations

import os

import psycopg
import pytest

from dovetail.pipeline.spec import Algorithm, JoinKind
from tests.e2e import shop

SHAPES = {"int": shop.INT, "text": shop.TEXT, "composite": shop.COMPOSITE}
NODES = (1, 2, 4)
ROUNDS = 3


def combinations():
    """All with DOVETAIL_MATRIX set, else a few in which nobody is left out."""
    algorithms, kinds, shapes = list(Algorithm), list(JoinKind), list(SHAPES)
    if os.environ.get("DOVETAIL_MATRIX"):
        for algorithm in algorithms:
            for kind in kinds:
                for shape in shapes:
                    for nodes in NODES:
                        yield algorithm, kind, shape, nodes
        return
    for number, algorithm in enumerate(algorithms):
        turn = number // len(shapes)
        yield (
            algorithm,
            kinds[number % len(kinds)],
            shapes[(number + turn) % len(shapes)],
            NODES[(number + turn + 1) % len(NODES)],
        )


@pytest.mark.parametrize(
    ("algorithm", "kind", "shape", "nodes"),
    [pytest.param(*one, id="-".join(map(str, one))) for one in combinations()],
)
def test_the_pipeline_gives_what_sql_gives(algorithm, kind, shape, nodes, run_within, database):
    of = SHAPES[shape]
    of.fill(database)
    with psycopg.connect(database) as connection:
        connection.execute(f"CREATE INDEX ON goods ({', '.join(of.columns)})")
    spec = {**of.spec(str(kind)), "algorithm": str(algorithm), "nodes": nodes}
    with run_within(spec) as pipeline:
        events = of.good_events()
        for _ in range(ROUNDS):
            pipeline.send(events)
            final = pipeline.drain()
            assert not final.problems
        verdict = pipeline.verdict()
        assert verdict.differences == []
        assert final.taken == verdict.events == ROUNDS * len(events)
        assert final.outputs == verdict.outputs == verdict.expected > 0
