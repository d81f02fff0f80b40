"""What `layout: fused` promises, in short; `make test-fused` runs every end-to-end test on it."""

from __future__ import annotations

import pytest

from tests.e2e import shop, test_chain, test_join_kinds, test_order
from tests.e2e.test_kill import KEYS, SALES, assert_exact, load_catalogue, under_load

FUSED = {"layout": "fused"}


@pytest.mark.parametrize("nodes", [1, 2])
def test_the_pipeline_gives_what_sql_gives(nodes, run_within, database):
    def run(spec):
        return run_within({**spec, **FUSED, "nodes": nodes})

    test_join_kinds.test_the_pipeline_gives_what_sql_gives("inner", shop.TEXT, run, database)


def test_every_table_of_a_chain_adds_what_sql_adds(run_within, database):
    def run(spec):
        return run_within({**spec, **FUSED, "nodes": 1})

    test_chain.test_every_table_of_a_chain_adds_what_sql_adds(test_chain.CHAIN, run, database)


@pytest.mark.parametrize(("nodes", "order"), [(1, "key"), (2, {"within": 50})], ids=str)
def test_the_sink_is_in_order(nodes, order, run_within, database):
    def run(spec):
        return run_within({**spec, **FUSED, "nodes": nodes})

    test_order.test_the_sink_is_in_order("srj", order, run, database)


@pytest.mark.timeout(300)
def test_a_node_is_killed_under_load_and_the_output_stays_exact(run_pipeline, database):
    """One of two is in `make test-fused` and `make chaos LAYOUT=fused`."""
    load_catalogue(database, rows=KEYS, report=lambda _: None)
    spec = {**SALES, **FUSED, "nodes": 1}
    with run_pipeline(spec) as pipeline, under_load(pipeline) as load:
        pipeline.wait_until(lambda seen: seen.hits > 0, "it answers")
        answered = pipeline.audit().enriched
        before = pipeline.kill("node-0")
        pipeline.wait_until(lambda seen: seen.enriched > answered, "it goes on")
        pipeline.wait_until_ready()
        assert pipeline.pid("node-0") != before
        load.stop()
        assert_exact(pipeline, load.sent)
