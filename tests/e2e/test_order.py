"""The order that a pipeline asks for, as a consumer of its sink sees it."""

from __future__ import annotations

import json
import os
import random
from itertools import product

import psycopg
import pytest

from dovetail.demo.catalogue import load_catalogue
from dovetail.testing.disorder import came_by_slot, disorder, disorder_of_keys, left_by_slot
from dovetail.verify import Judge, read_all
from tests.e2e.test_kill import KEYS, SALES, assert_exact, under_load

ORDERS = ["key", "source", {"within": 50}]
ALGORITHMS = ["srj", "ssbj", "hybridjoin"]
THOROUGH = bool(os.environ.get("DOVETAIL_MATRIX"))
"""As `make matrix` wants it: everything with everything."""
CASES = list(product(ALGORITHMS, ORDERS) if THOROUGH else zip(ALGORITHMS, ORDERS, strict=True))
GOODS = 3_000
HOT = 40
WAVE = 3_000
MOST_WAVES = 20


def spec(algorithm, order):
    return {
        "source": {"partitions": 3, "fields": {"sale": "int", "id": "int"}},
        "key": "id",
        "master": {"table": "goods", "columns": ["name"]},
        "algorithm": algorithm,
        "order": order,
        "memory": "16MiB",
        "nodes": 2,
        "slots": 4,
    }


def fill(database):
    """Up to three rows a key, an index by it, and no row at all for every tenth."""
    with psycopg.connect(database) as connection:
        connection.execute("CREATE TABLE goods (id bigint, name text)")
        connection.execute(
            "INSERT INTO goods SELECT id, 'no. ' || n FROM generate_series(0, %s) id,"
            " generate_series(1, 1 + id %% 3) n WHERE id %% 10 <> 9",
            [GOODS],
        )
        connection.execute("CREATE INDEX ON goods (id)")


def sales(chance):
    """Half of them of a few keys, which are soon cached; the others of any."""
    for sale in range(WAVE):
        hot = chance.random() < 0.5
        key = chance.randrange(HOT if hot else GOODS)
        yield json.dumps({"sale": sale, "id": key}).encode()


def run(pipeline, *, cached):
    """Send until the cache has answered a wave's worth, if it is to; then some waves at once."""
    chance = random.Random(8)
    for _ in range(MOST_WAVES):
        pipeline.send(sales(chance))
        if pipeline.drain().hits > WAVE or not cached:
            break
    for _ in range(3):
        pipeline.send(sales(chance))
    final = pipeline.drain()
    assert final.problems == []
    assert (final.hits > WAVE) == cached
    verdict = pipeline.verdict()
    assert verdict.differences == []
    assert final.outputs == verdict.outputs == verdict.expected > 0


def disorders(pipeline):
    """The scrambling distances of the slots, and the largest one within a key."""
    came = came_by_slot(pipeline.settings, pipeline.topology)
    left = left_by_slot(pipeline.settings, pipeline.topology)
    assert left.keys() == set(range(pipeline.spec.slots))
    by_slot = [disorder([event for _, event in came[slot]], left[slot]) for slot in left]
    return by_slot, max(disorder_of_keys(came[slot], left[slot]) for slot in left)


@pytest.mark.parametrize(
    ("algorithm", "order"), CASES, ids=[f"{algorithm}-{order}" for algorithm, order in CASES]
)
def test_the_sink_is_in_order(algorithm, order, run_within, database):
    fill(database)
    with run_within(spec(algorithm, order)) as pipeline:
        run(pipeline, cached=algorithm != "hybridjoin")
        by_slot, within_keys = disorders(pipeline)
    if order == "key":
        assert within_keys == 0
    else:
        assert max(by_slot) <= pipeline.spec.order.within


def test_without_an_order_hits_overtake_misses(run_within, database):
    fill(database)
    with run_within(spec("srj", "none")) as pipeline:
        run(pipeline, cached=True)
        by_slot, _ = disorders(pipeline)
    assert min(by_slot) > 50


@pytest.mark.timeout(600)
@pytest.mark.parametrize("order", ORDERS if THOROUGH else ["source"], ids=str)
def test_the_order_is_kept_when_services_are_killed_and_slots_move(order, run_pipeline, database):
    load_catalogue(database, rows=KEYS, report=lambda _: None)
    # With one partition the source's order is that of every slot.
    of = {**SALES, "source": {**SALES["source"], "partitions": 1}, "nodes": 2, "order": order}
    with run_pipeline(of) as pipeline, under_load(pipeline) as load:

        def goes_on():
            then = pipeline.audit().enriched
            pipeline.wait_until(lambda seen: seen.enriched > then, "it goes on")

        pipeline.wait_until(lambda seen: seen.hits > 0, "the cache answers")
        for name in ("disk_phase-0", "cache_phase-1", "mapper", "disk_phase-1"):
            pipeline.kill(pipeline.process_of(name))
            pipeline.wait_until_ready()
            goes_on()
        if pipeline.has_nodes:
            pipeline.add_node(2)
            pipeline.wait_until_ready()
            goes_on()
            pipeline.remove_node(0)
            goes_on()
        load.stop()
        assert_exact(pipeline, load.sent)

        judge = Judge(pipeline.spec)
        came = [
            (judge.key_of(message.value()), (message.partition(), message.offset()))
            for message in read_all(pipeline.settings, pipeline.topology.source)
        ]
        left = left_by_slot(pipeline.settings, pipeline.topology)
    for outputs in left.values():
        if order == "key":
            assert disorder_of_keys(came, outputs) == 0
        else:
            within = pipeline.spec.order.within
            assert disorder([event for _, event in came], outputs) <= within
