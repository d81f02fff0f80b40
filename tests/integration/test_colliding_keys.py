"""Text keys that share a 64-bit hash are told apart, whatever R lies in and whoever joins."""

import numpy as np
import pytest

from dovetail.join.algorithms import ALGORITHMS
from dovetail.join.engine import Engine
from dovetail.node.master import MasterJoin
from tests.collisions import COLLIDING
from tests.integration.master_kit import texts
from tests.integration.stores import STORES, events_of, opened
from tests.unit.engine_kit import rows_each

OTHERS = [f"key {n}" for n in range(2000)]


def drive(engine, relation):
    """Read until nothing waits; give the rows of each answered event by its id."""
    step = MasterJoin(engine, relation).step if hasattr(relation, "renew") else None
    while request := engine.wants():
        answers = step() if step else engine.feed(relation.read(request, engine.disk_buffer))
        yield from zip(answers.ids.tolist(), rows_each(answers), strict=True)


def test_they_share_a_hash():
    assert len(set(COLLIDING)) == len(COLLIDING)
    assert len(np.unique(texts(*COLLIDING).values)) == 1


@pytest.mark.parametrize("store", STORES)
def test_each_gets_its_own_rows(store, database, tmp_path):
    """The nth of them has n rows; the last is not asked for, and of the first there is no row."""
    held = [text for n, text in enumerate(COLLIDING) for _ in range(n)]
    asked = [*OTHERS[:50], *COLLIDING[:-1], *OTHERS[900:950], *COLLIDING[:-1], "nowhere"]
    with opened(store, [*OTHERS, *held], database, tmp_path) as relation:
        expected = [held.count(key) + OTHERS.count(key) for key in asked]
        for algorithm in ALGORITHMS:
            engine = Engine(algorithm, relation.facts, 4 << 20)
            assert engine.offer(events_of(asked)).accepted == len(asked)
            got = dict(drive(engine, relation))
            assert [got[nth] for nth in range(len(asked))] == expected, algorithm
