"""A drained pipeline changes its layout and number of fused nodes; an undrained one does not."""

from __future__ import annotations

import json
import re
import uuid
from contextlib import ExitStack
from urllib.parse import urlsplit

import psycopg
import pytest

from deploy.local.home import CHECKOUT, Home
from dovetail.errors import StackError
from dovetail.stream.topics import admin_of
from dovetail.testing.pipeline import RunningPipeline
from tests.e2e.proxy import Proxy

SPEC = {
    "source": {"partitions": 2, "fields": {"sale": "int", "product": "int"}},
    "key": "product",
    "master": {"table": "goods", "key": "id", "columns": ["name"]},
    "memory": "16MiB",
    "slots": 4,
}
KEYS = 400
CHANGES = [("split", 1), ("fused", 1), ("fused", 2), ("fused", 1), ("split", 1)]
DRAIN = "as it was laid out before, drain it, and change the layout then"


@pytest.fixture
def laid_out(request, stack, kernels, database):
    """Make the test's pipeline in a layout, to be entered; its topics stay until the test ends."""
    with psycopg.connect(database) as connection:
        connection.execute("CREATE TABLE goods (id int PRIMARY KEY, name text)")
        connection.execute(
            "INSERT INTO goods SELECT k, 'row ' || k FROM generate_series(1, %s) k"
            " WHERE k %% 5 > 0",
            (KEYS,),
        )
    folder = re.sub(r"[^a-z0-9]+", "-", request.node.name).strip("-")
    home = Home(stack.home.folder / "pipelines" / folder, CHECKOUT / ".dovetail")
    name = f"test-{uuid.uuid4().hex[:12]}"

    def make(layout, nodes=1, database_url=database):
        spec = {"name": name, **SPEC, "layout": layout, "nodes": nodes}
        environment = {"DATABASE_URL": database_url}
        return RunningPipeline(home, stack.bootstrap, database, spec, environment=environment)

    yield make
    admin = admin_of(make("split").settings)
    own = [topic for topic in admin.list_topics(timeout=30).topics if topic.startswith(name)]
    for deletion in admin.delete_topics(own).values():
        deletion.result(30)


def sales(first, products):
    yield from (
        json.dumps({"sale": first + n, "product": product}).encode()
        for n, product in enumerate(products)
    )
    yield b"{"


def assert_exact(pipeline, sent):
    final = pipeline.drain()
    assert final.problems == []
    assert final.taken == sent
    assert final.taken == final.enriched + final.unmatched + final.dead_lettered
    verdict = pipeline.verdict()
    assert verdict.differences == []
    assert (verdict.events, verdict.outputs) == (sent, verdict.expected)
    return final


@pytest.mark.timeout(600)
def test_a_drained_pipeline_changes_its_layout_without_loss_or_repetition(laid_out):
    sent = 0
    for layout, nodes in CHANGES:
        with laid_out(layout, nodes) as pipeline:
            for _ in range(2):
                # Sent while it starts, too: what waits on the source is nobody's yet.
                pipeline.send(sales(sent, range(1, KEYS + 1)))
                sent += KEYS + 1
                assert_exact(pipeline, sent)
        pipeline.send(sales(sent, range(1, KEYS + 1)))
        sent += KEYS + 1
    with laid_out(layout, nodes) as pipeline:
        assert_exact(pipeline, sent)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("before", "after"), [(("split", 1), ("fused", 1)), (("fused", 1), ("split", 1))]
)
def test_an_undrained_one_is_refused_with_the_cure(before, after, laid_out, database):
    address = urlsplit(database)
    with ExitStack() as entered:
        proxy = entered.enter_context(Proxy(address.hostname, address.port))
        through = database.replace(f":{address.port}/", f":{proxy.port}/")
        with laid_out(*before, through) as pipeline:
            pipeline.send(sales(0, range(1, 51)))
            pipeline.wait_until(
                lambda seen: seen.drained and seen.taken == 51, "what can be cached is"
            )
            sent, hits = 51, pipeline.audit().hits
            while pipeline.audit().hits < hits + 40:
                pipeline.send(sales(sent, range(1, 51)))
                sent += 51
                assert_exact(pipeline, sent)
            proxy.cut()
            hits = pipeline.audit().hits
            # One that has to be read, and waits; and others behind it, answered by the cache.
            pipeline.send(sales(sent, [51, 52, *range(1, 51)]))
            sent += 53
            pipeline.wait_until(lambda seen: seen.hits > hits, "hits overtake it")
        with pytest.raises(StackError, match=DRAIN), laid_out(*after):
            pass
        with laid_out(*before) as pipeline:
            assert_exact(pipeline, sent)
        with laid_out(*after) as pipeline:
            assert_exact(pipeline, sent)
