"""From the previous release to the present one and back, under load: nothing is lost or twice.

Both releases are on the topics meanwhile, and take over from each other all that is kept there:
batches in flight, ledgers, migrations, requests by HTTP, orders. Progress above what is
committed is not shown to be: code that forgets it passes, too.
"""

from __future__ import annotations

import re

import psycopg
import pytest

from deploy.local.home import CHECKOUT
from tests.chaos.run import KEYS, load_master, spec
from tests.e2e.api import Api
from tests.e2e.test_http import post, sales
from tests.e2e.test_kill import assert_exact
from tests.upgrade.conftest import under_load
from tests.upgrade.rollout import against_the_flow, at_once, backwards, kill, roll

RATE = 2_000.0
BY_HTTP = 50
PRODUCT = re.compile(rb'"product_id":(\d+)')

# The same products by a text; a seventh of them has two rows.
_BY_SKU = """
CREATE TABLE articles AS
    SELECT 'sku-' || product_id AS sku, name, vendor, price, updated_at FROM offers;
CREATE INDEX ON articles (sku);
ANALYZE articles;
"""


def by_sku():
    """A left join by a text, over a scan: events wait for its cycle, above what is committed."""
    of = spec("ssbj")
    fields = {**of["source"]["fields"], "product_id": "text"}
    return {
        **of,
        "source": {**of["source"], "fields": fields},
        "master": {**of["master"], "table": "articles", "key": "sku"},
        "join": "left",
    }


def respelled(event):
    return PRODUCT.sub(rb'"product_id":"sku-\1"', event)


def assert_nobody_ended_but(pipeline, *killed):
    """Whatever the supervisor had to start again was killed by the test."""
    ended = [report.partition(" ")[0] for report in pipeline.reports]
    assert sorted(ended) == sorted(killed), pipeline.reports


def assert_all_run_by(pipeline, revision):
    """What was ordered before the upgrade holds, and control hears it of everybody."""
    api, stages = Api(pipeline), len(pipeline.names()) - 1
    applied = api.until(
        lambda: len(found := api("GET", "P")["applied"]) == stages and found, "heard of all"
    )
    assert set(applied.values()) == {revision}, applied


def assert_nothing_was_foreign(pipeline):
    assert list(pipeline.messages(pipeline.topology.foreign)) == []


@pytest.mark.timeout(1_800)
def test_service_by_service_and_back_nothing_is_lost_or_repeated(run_previous, previous, database):
    load_master(database)
    with run_previous(spec("auto")) as pipeline:
        order = against_the_flow(pipeline.names())
        new, old = "cache_phase-1", "cache_phase-0"
        half = order.index([old])
        request = pipeline.url("ingest"), sales(1, BY_HTTP)
        status, answer, _ = post(*request, key="till-1")
        assert status == 202
        api = Api(pipeline)
        settings = {"settings": {"memory": "12MiB"}, "why": "a test", "from_revision": 1}
        api.done(api("PATCH", "P", 202, json=settings)["job"])

        with under_load(pipeline, RATE, 1, KEYS) as load:
            pipeline.wait_until(lambda seen: seen.hits > 0, "both phases answer")
            roll(pipeline, load, order[:half], CHECKOUT)
            for name in (old, new):
                kill(pipeline, name)
            roll(pipeline, load, order[half:], CHECKOUT)
            status, again, headers = post(*request, key="till-1")
            if "partition" in answer:  # 0.2.0 sent all of a request's events to one
                answer["partitions"] = [answer.pop("partition")]
            assert (status, again) == (202, answer)
            assert headers["Idempotent-Replayed"] == "true"
            load.stop()
            sent = load.sent + BY_HTTP
        assert_exact(pipeline, sent)
        assert_nobody_ended_but(pipeline, old, new)
        assert_nothing_was_foreign(pipeline)
        assert_all_run_by(pipeline, revision=2)

        with under_load(pipeline, RATE, 2, KEYS) as load:
            roll(pipeline, load, backwards(order), previous)
            load.stop()
            sent += load.sent
        assert_exact(pipeline, sent)
        assert_nobody_ended_but(pipeline, old, new)
        assert_all_run_by(pipeline, revision=2)


@pytest.mark.timeout(1_800)
def test_all_at_once_given_up_half_way_done_again_and_back_nothing_is_lost_or_repeated(
    run_previous, previous, database
):
    load_master(database)
    with psycopg.connect(database) as connection:
        connection.execute(_BY_SKU)
    with (
        run_previous(by_sku()) as pipeline,
        under_load(pipeline, RATE, 3, KEYS, respelled) as load,
    ):
        waves = at_once(pipeline.names())
        pipeline.wait_until(lambda seen: seen.hits > 0, "both phases answer")
        roll(pipeline, load, waves[:1], CHECKOUT, pending=True)
        roll(pipeline, load, waves[:1], previous, pending=True)
        roll(pipeline, load, waves, CHECKOUT, pending=True)
        roll(pipeline, load, backwards(waves), previous, pending=True)
        load.stop()
        assert_exact(pipeline, load.sent)
        assert_nobody_ended_but(pipeline)
        assert_nothing_was_foreign(pipeline)
